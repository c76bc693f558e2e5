"""Schedules without a GPU: a graph's programs run by the simulator, and compiled for an architecture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from hidet import dims
from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.passes.block_launches import block_launches
from hidet.cuda.target import CudaTarget
from hidet.dims import Dim
from hidet.graph.graph import Graph, Value
from hidet.graph.interpret import interpret
from hidet.graph.parser import parse_graph
from hidet.graph.types import TensorType
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.passes.graph.fuse import fuse
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules

Array = np.ndarray[Any, Any]


def schedule_text(text: str, arch: str = "sm_80") -> ScheduledGraph:
    """The programs that a graph's text gets, without any pass that changes the graph."""
    target, registry = CudaTarget(arch), load_registry()
    ctx = CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))
    return select_schedules(fuse(_parsed(text), ctx), ctx)


def sources_of(text: str, arch: str = "sm_80") -> list[str]:
    """CUDA C++ of every kernel."""
    modules = [block_launches(step.program.module) for step in _tasks(schedule_text(text, arch))]
    return [source.text for module in modules for source in CudaTarget(arch).sources(module)]


def assert_right(text: str, rule: str, tolerance: float, inputs: Mapping[str, Array] | None = None) -> None:
    """Every program of a graph comes from `rule`, and the simulator finds in them what the graph means.

    inputs: by name; others are drawn from a normal distribution, with the number of the input as the seed. Memory that
    is not written to is found as well: it starts as NaN, or as the largest number.
    """
    graph = _parsed(text)
    given = {value: (inputs or {}).get(value.name, _drawn(value, n)) for n, value in enumerate(graph.inputs)}
    expected = interpret(graph, list(given.values()))
    scheduled = schedule_text(text)
    assert {step.rule_name for step in _tasks(scheduled)} == {rule}
    # The scheduled graph was parsed on its own: its inputs are others, in the same order.
    memory = {
        value: _laid_out(array, value.tensor)
        for value, array in zip(scheduled.task_graph.graph.inputs, given.values(), strict=True)
    }
    for step in _tasks(scheduled):
        _run(step, scheduled, memory)
    for value, right in zip(scheduled.task_graph.graph.outputs, expected, strict=True):
        found = _view(_place(value, scheduled, memory), scheduled.task_graph.types.get(value, value.tensor))
        wanted = np.asarray(right).astype(np.float64)
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


def assert_compiles(text: str, arch: str) -> None:
    """Every kernel of a graph compiles without spills and without remarks of the assembler."""
    target = CudaTarget(arch)
    for step in _tasks(schedule_text(text, arch)):
        for source in target.sources(block_launches(step.program.module)):
            cubin = compile_cubin(source, arch)
            spilled = {kernel: usage.spill_bytes for kernel, usage in cubin.usage.items() if usage.spill_bytes}
            assert not spilled, f"{spilled} bytes are spilled"
            assert cubin.remarks == ()


def _parsed(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text), load_registry().operators)


def _tasks(scheduled: ScheduledGraph) -> list[ScheduledTask]:
    return [step for step in scheduled.steps if isinstance(step, ScheduledTask)]


def _drawn(value: Value, seed: int) -> Array:
    type_ = value.tensor
    drawn = np.random.default_rng(seed).standard_normal([_number(extent) for extent in type_.shape])
    return np.asarray(drawn > 0 if type_.dtype.is_bool else drawn).astype(type_.dtype.numpy())


def _run(step: ScheduledTask, scheduled: ScheduledGraph, memory: dict[Value, Array]) -> None:
    module = block_launches(step.program.module)
    verify_module(module)
    for tensor in step.task.outputs:
        if _root(tensor.value, scheduled) not in memory:
            memory[tensor.value] = np.full(_reach(tensor.type), _poison(tensor.type), tensor.type.dtype.numpy())
    tensors = [_place(tensor.value, scheduled, memory) for tensor in (*step.task.inputs, *step.task.outputs)]
    scratch = [np.zeros(_number(nbytes), np.uint8) for nbytes in step.program.scratch]
    run_module(module, [*tensors, *scratch, *map(dims.as_dim, step.program.arguments)])


def _root(value: Value, scheduled: ScheduledGraph) -> Value:
    alias = scheduled.task_graph.aliases.get(value)
    return value if alias is None else alias.base


def _place(value: Value, scheduled: ScheduledGraph, memory: Mapping[Value, Array]) -> Array:
    """The memory from a value's first element on."""
    alias = scheduled.task_graph.aliases.get(value)
    return memory[value] if alias is None else memory[alias.base][_number(alias.offset) :]


def _reach(type_: TensorType) -> int:
    pairs = zip(type_.shape, type_.element_strides, strict=True)
    return 1 + sum((_number(n) - 1) * _number(stride) for n, stride in pairs)


def _poison(type_: TensorType) -> Any:
    return np.nan if type_.dtype.is_float else type_.dtype.max


def _view(memory: Array, type_: TensorType) -> Array:
    strides = [_number(stride) * memory.itemsize for stride in type_.element_strides]
    return np.lib.stride_tricks.as_strided(memory, [_number(n) for n in type_.shape], strides)


def _laid_out(array: Array, type_: TensorType) -> Array:
    """The memory of a copy of an array with a type's strides."""
    memory = np.zeros(_reach(type_), array.dtype)
    _view(memory, type_)[...] = array
    return memory


def _number(dim: Dim) -> int:
    """A size, which is fixed in these graphs."""
    assert isinstance(dim, int)
    return dim
