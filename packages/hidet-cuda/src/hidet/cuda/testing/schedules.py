"""Schedules without a GPU: a graph's programs run by the simulator, and compiled for an architecture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hidet import dims
from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.cuda.nvrtc import Cubin, CubinBatch, compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.dims import Dim
from hidet.fusion.fuse import fuse
from hidet.gpu.codegen.source import KernelSource
from hidet.gpu.passes.block_launches import block_launches
from hidet.gpu.passes.invariant_division import invariant_division
from hidet.graph.graph import Graph, Value
from hidet.graph.parser import parse_graph
from hidet.graph.types import TensorType
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]


def context_for(arch: str = "sm_80", *, is_aligned: bool = True, options: Options | None = None) -> CompileContext:
    """A context without a cache.

    is_aligned: as the target says, whether calls copy inputs that are not. options: None are the defaults.
    """
    target, chosen = CudaTarget(arch), options if options is not None else Options()
    target.aligns_tensors = is_aligned
    return CompileContext(target=target, registry=load_registry(), options=chosen, cache=open_cache(enabled=False))


def schedule_text(text: str, arch: str = "sm_80", *, is_aligned: bool = True) -> ScheduledGraph:
    """The programs that a graph's text gets without passes that change the graph. is_aligned: as of `context_for`."""
    ctx = context_for(arch, is_aligned=is_aligned)
    return select_schedules(fuse(_parsed(text), ctx), ctx)


def with_threads(module: Module) -> Module:
    """A rule's module as code generation gets it from the passes of every GPU."""
    return invariant_division(block_launches(module))


def sources_of(text: str, arch: str = "sm_80", *, is_aligned: bool = True) -> list[str]:
    """CUDA C++ of every kernel. is_aligned: as of `context_for`."""
    scheduled = schedule_text(text, arch, is_aligned=is_aligned)
    modules = [with_threads(step.program.module) for step in _tasks(scheduled)]
    return [source.text for module in modules for source in CudaTarget(arch).sources(module)]


def assert_right(
    text: str,
    rule: str,
    tolerance: float,
    inputs: Mapping[str, Array] | None = None,
    sizes: Mapping[str, int] | None = None,
    arch: str = "sm_80",
) -> None:
    """Every program of a graph comes from `rule`, and the simulator finds in them what the graph means.

    inputs: by name; others are drawn from a normal distribution, with the number of the input as the seed. sizes: of
    the graph's symbols. arch: what the programs are for. Memory that is not written to is found as well: it starts as
    NaN, or as the largest number.
    """
    simulation = _Simulation(schedule_text(text, arch), sizes or {})
    assert {step.rule_name for step in _tasks(simulation.scheduled)} == {rule}
    graph = simulation.scheduled.task_graph.graph
    given = [(inputs or {}).get(value.name, simulation.drawn(value, n)) for n, value in enumerate(graph.inputs)]
    results = simulation.run(given)
    for value, right in zip(graph.outputs, interpret(graph, given), strict=True):
        found, wanted = results[value], np.asarray(right)
        both = (found.astype(np.float64), wanted.astype(np.float64))
        np.testing.assert_allclose(*both, rtol=tolerance, atol=tolerance)


def rules_of(text: str, arch: str = "sm_80") -> list[str]:
    """The rules that take the tasks of a graph's text, in order."""
    return [step.rule_name for step in _tasks(schedule_text(text, arch))]


def run_text(text: str, inputs: Mapping[str, Array], arch: str = "sm_80", offset: int = 0) -> list[Array]:
    """What the simulator finds a graph's programs to give for inputs by name. offset: elements between the start of the
    memory of each input, a multiple of 16 bytes, and its first one."""
    simulation = _Simulation(schedule_text(text, arch, is_aligned=offset == 0), {}, offset)
    graph = simulation.scheduled.task_graph.graph
    results = simulation.run([inputs[value.name] for value in graph.inputs])
    return [results[value] for value in graph.outputs]


def assert_compiles(text: str, arch: str) -> None:
    """Every kernel of a graph compiles without spills and without remarks of the assembler."""
    target = CudaTarget(arch)
    for step in _tasks(schedule_text(text, arch)):
        for source in target.sources(with_threads(step.program.module)):
            cubin = compile_cubin(source, arch)
            spilled = {kernel: usage.spill_bytes for kernel, usage in cubin.usage.items() if usage.spill_bytes}
            assert not spilled, f"{spilled} bytes are spilled"
            assert cubin.remarks == ()


def compile_cubins(sources: Iterable[KernelSource], arch: str) -> list[Cubin]:
    """Machine code of many sources, in order, compiled by threads."""
    with CubinBatch(arch) as batch:
        for source in sources:
            batch.submit(source)
        return batch.finish()


def _parsed(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text), load_registry().operators)


def _tasks(scheduled: ScheduledGraph) -> list[ScheduledTask]:
    return [step for step in scheduled.steps if isinstance(step, ScheduledTask)]


@dataclass(frozen=True, slots=True, eq=False)
class _Simulation:
    """A graph's programs for sizes by symbol. offset: of inputs, in elements."""

    scheduled: ScheduledGraph
    sizes: Mapping[str, int]
    offset: int = 0

    def run(self, inputs: Sequence[Array]) -> dict[Value, Array]:
        """The graph's outputs."""
        graph = self.scheduled.task_graph.graph
        memory = {value: self._laid_out(array, value.tensor) for value, array in zip(graph.inputs, inputs, strict=True)}
        for step in _tasks(self.scheduled):
            self._step(step, memory)
        types = self.scheduled.task_graph.types
        return {
            value: self._view(self._place(value, memory), types.get(value, value.tensor)) for value in graph.outputs
        }

    def drawn(self, value: Value, seed: int) -> Array:
        """Random elements for an input."""
        type_ = value.tensor
        drawn = np.random.default_rng(seed).standard_normal(self._numbers(type_.shape))
        return np.asarray(drawn > 0 if type_.dtype.is_bool else drawn).astype(type_.dtype.numpy())

    def _numbers(self, sizes: Iterable[Dim]) -> list[int]:
        return [dims.evaluate(dim, self.sizes) for dim in sizes]

    def _step(self, step: ScheduledTask, memory: dict[Value, Array]) -> None:
        module = with_threads(step.program.module)
        verify_module(module)
        aliases = self.scheduled.task_graph.aliases
        for tensor in step.task.outputs:
            if tensor.value not in aliases:
                poison = np.nan if tensor.type.dtype.is_float else tensor.type.dtype.max
                memory[tensor.value] = np.full(self._reach(tensor.type), poison, tensor.type.dtype.numpy())
        tensors = [self._place(tensor.value, memory) for tensor in (*step.task.inputs, *step.task.outputs)]
        scratch = [np.zeros(nbytes, np.uint8) for nbytes in self._numbers(step.program.scratch)]
        run_module(module, [*tensors, *scratch, *self._numbers(step.program.arguments)])

    def _place(self, value: Value, memory: Mapping[Value, Array]) -> Array:
        """The memory from a value's first element on."""
        alias = self.scheduled.task_graph.aliases.get(value)
        return memory[value] if alias is None else memory[alias.base][self._numbers([alias.offset])[0] :]

    def _reach(self, type_: TensorType) -> int:
        shape, strides = self._numbers(type_.shape), self._numbers(type_.element_strides)
        return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))

    def _view(self, memory: Array, type_: TensorType) -> Array:
        strides = [stride * memory.itemsize for stride in self._numbers(type_.element_strides)]
        # Some types of a byte, f8e5m2 is one, have no name in what numpy makes views by.
        plain = memory.view(np.uint8) if memory.itemsize == 1 else memory
        return np.lib.stride_tricks.as_strided(plain, self._numbers(type_.shape), strides).view(memory.dtype)

    def _laid_out(self, array: Array, type_: TensorType) -> Array:
        """The memory of a copy of an array with a type's strides."""
        memory = np.zeros(self.offset + self._reach(type_), array.dtype)[self.offset :]
        self._view(memory, type_)[...] = array
        return memory
