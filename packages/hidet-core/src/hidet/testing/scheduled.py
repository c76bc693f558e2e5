"""Graphs whose programs were chosen for a target, run by the interpreter: no machine of that target is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hidet.context import CompileContext
from hidet.dims import as_dim
from hidet.errors import UnsupportedOp
from hidet.graph.graph import Graph, Value
from hidet.graph.types import TensorType
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.passes.graph.fuse import fuse
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules

Array = np.ndarray[Any, Any]


def scheduled_graph(graph: Graph, ctx: CompileContext) -> ScheduledGraph:
    """What the compiler makes of a graph for the context's target, up to machine code."""
    return select_schedules(fuse(run_graph_passes(graph, ctx), ctx), ctx)


def run_scheduled(
    scheduled: ScheduledGraph, arrays: Sequence[Array], lower: Callable[[Module], Module] = lambda module: module
) -> list[Array]:
    """What the programs give for inputs of fixed shape; results and scratch memory hold NaN, or all bits, before.

    lower: what the target does to a module before it is compiled. UnsupportedOp for steps that are no task.
    """
    memory = _Memory(scheduled)
    for value, array in zip(scheduled.task_graph.graph.inputs, arrays, strict=True):
        memory.fill(value, array)
    for value, constant in scheduled.task_graph.graph.constants.items():
        if value in scheduled.task_graph.types:
            memory.fill(value, constant.numpy())
    for step in scheduled.steps:
        if not isinstance(step, ScheduledTask):
            raise UnsupportedOp(f"{step.node.op.name} is run outside of compiled code")
        for output, source in step.task.in_place:
            memory.share(step.task.outputs[output].value, step.task.inputs[source].value)
        tensors = (*step.task.inputs, *step.task.outputs)
        scratch = [np.full(_number(nbytes), 0xFF, np.uint8) for nbytes in step.program.scratch]
        module = lower(step.program.module)
        verify_module(module)
        sizes = [_number(dim) for dim in step.program.arguments]
        run_module(module, [*(memory.of(tensor.value) for tensor in tensors), *scratch, *sizes])
    return [memory.view(value).copy() for value in scheduled.task_graph.graph.outputs]


class _Memory:
    """Where the values of a graph lie."""

    def __init__(self, scheduled: ScheduledGraph) -> None:
        self.types = scheduled.task_graph.types
        self.aliases = scheduled.task_graph.aliases
        self._held: dict[Value, Array] = {}

    def of(self, value: Value) -> Array:
        """The memory from a value's first element on."""
        alias = self.aliases.get(value)
        if alias is not None:
            whole = self.of(alias.base)
            dtype = self.types[alias.base].dtype.numpy()
            return whole.view(dtype)[_number(alias.offset) :]
        if value not in self._held:
            type_ = self.types[value]
            self._held[value] = np.full(_reach(type_) * type_.dtype.nbytes, 0xFF, np.uint8).view(type_.dtype.numpy())
        return self._held[value]

    def share(self, value: Value, other: Value) -> None:
        """Let two values have the same memory."""
        self._held[value] = self.of(other)

    def view(self, value: Value) -> Array:
        """The value as an array of its shape."""
        type_ = self.types[value]
        memory = self.of(value).view(type_.dtype.numpy())
        strides = [_number(stride) * memory.itemsize for stride in type_.element_strides]
        return np.lib.stride_tricks.as_strided(memory, tuple(map(_number, type_.shape)), strides)

    def fill(self, value: Value, array: Array) -> None:
        """Give a value its elements."""
        self.view(value)[...] = array


def _number(dim: Any) -> int:
    found = as_dim(dim)
    if not isinstance(found, int):
        raise UnsupportedOp(f"{found} is no fixed size")
    return found


def _reach(type_: TensorType) -> int:
    """Elements from the first to the last one."""
    shape = tuple(map(_number, type_.shape))
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * _number(s) for n, s in zip(shape, type_.element_strides, strict=True))
