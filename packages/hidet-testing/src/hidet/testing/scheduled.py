"""Graphs whose programs were chosen for a target, run by the interpreter: no machine of that target is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dims
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.fusion.fuse import fuse
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.schedule.task import ForeignStep
from hidet.testing.interpret import concrete_attrs, interpret

Array = np.ndarray[Any, Any]


def scheduled_graph(graph: Graph, ctx: CompileContext) -> ScheduledGraph:
    """What the compiler makes of a graph for the context's target, up to machine code."""
    return select_schedules(fuse(run_graph_passes(graph, ctx), ctx), ctx)


Run = Callable[[ScheduledTask, Module, Sequence[Any]], None]
"""Runs the program of a step: its module, as it is compiled, on memory and sizes in the order of its parameters."""


def run_scheduled(
    scheduled: ScheduledGraph,
    arrays: Sequence[Array],
    lower: Callable[[Module], Module] = lambda module: module,
    *,
    sizes: Mapping[str, int] | None = None,
    run: Run = lambda step, module, arguments: run_module(module, arguments),
) -> list[Array]:
    """What the programs give for some inputs; results and scratch memory hold NaN, or all bits, before.

    lower: what the target does to a module before it is compiled. sizes: values of the graph's symbols. run: runs a
    program, by default in the interpreter. UnsupportedOp for steps that are no task and that numpy cannot do.
    """
    memory = _Memory(scheduled, sizes or {})
    graph = scheduled.task_graph.graph
    for value, array in zip(graph.inputs, arrays, strict=True):
        memory.fill(value, array)
    for value, constant in graph.constants.items():
        if value in scheduled.task_graph.types:
            memory.fill(value, constant.numpy())
    if graph.prepare is not None:
        for value, array in zip(graph.prepare.results, interpret(graph.prepare.graph, [], sizes), strict=True):
            memory.fill(value, array)
    for step in scheduled.steps:
        if isinstance(step, ForeignStep):
            _run_on_host(step.node, memory)
            continue
        for output, source in step.task.in_place:
            memory.share(step.task.outputs[output].value, step.task.inputs[source].value)
        tensors = (*step.task.inputs, *step.task.outputs)
        scratch = [np.full(memory.number(nbytes), 0xFF, np.uint8) for nbytes in step.program.scratch]
        module = lower(step.program.module)
        verify_module(module)
        numbers = [memory.number(dim) for dim in step.program.arguments]
        run(step, module, [*(memory.of(tensor.value) for tensor in tensors), *scratch, *numbers])
    return [memory.view(value).copy() for value in graph.outputs]


def _run_on_host(node: Node, memory: _Memory) -> None:
    """Let numpy do a step whose results are tensors of known sizes."""
    if node.op.evaluate is None or "defines" in node.attrs:
        raise UnsupportedOp(f"{node.op.name} is run outside of compiled code")
    given = [None if value is None else memory.view(value) for value in node.inputs]
    results = node.op.evaluate(given, concrete_attrs(node.attrs, memory.sizes))
    for value, result in zip(node.outputs, results, strict=True):
        memory.fill(value, result)


class _Memory:
    """Where the values of a graph lie. sizes: of its symbols."""

    def __init__(self, scheduled: ScheduledGraph, sizes: Mapping[str, int]) -> None:
        self.types = scheduled.task_graph.types
        self.aliases = scheduled.task_graph.aliases
        self.sizes = sizes
        self._held: dict[Value, Array] = {}

    def number(self, dim: Dim) -> int:
        """The value of a size."""
        return dims.evaluate(dim, self.sizes)

    def of(self, value: Value) -> Array:
        """The memory from a value's first element on."""
        alias = self.aliases.get(value)
        if alias is not None:
            whole = self.of(alias.base)
            dtype = self.types[alias.base].dtype.numpy()
            return whole.view(dtype)[self.number(alias.offset) :]
        if value not in self._held:
            type_ = self.types[value]
            nbytes = self._reach(type_) * type_.dtype.nbytes
            self._held[value] = np.full(nbytes, 0xFF, np.uint8).view(type_.dtype.numpy())
        return self._held[value]

    def share(self, value: Value, other: Value) -> None:
        """Let two values have the same memory."""
        self._held[value] = self.of(other)

    def view(self, value: Value) -> Array:
        """The value as an array of its shape."""
        type_ = self.types[value]
        memory = self.of(value).view(type_.dtype.numpy())
        strides = [self.number(stride) * memory.itemsize for stride in type_.element_strides]
        return np.lib.stride_tricks.as_strided(memory, tuple(map(self.number, type_.shape)), strides)

    def fill(self, value: Value, array: Array) -> None:
        """Give a value its elements."""
        self.view(value)[...] = array

    def _reach(self, type_: TensorType) -> int:
        """Elements from the first to the last one."""
        shape = tuple(map(self.number, type_.shape))
        if 0 in shape:
            return 0
        return 1 + sum((n - 1) * self.number(s) for n, s in zip(shape, type_.element_strides, strict=True))
