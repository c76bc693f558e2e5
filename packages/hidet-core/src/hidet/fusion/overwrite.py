"""Results that overwrite an input of the graph: when they may be written straight into its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.fusion.group import alias_root
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Value
from hidet.ir.visit import accesses
from hidet.schedule.task import ForeignStep, Task, TaskGraph

if TYPE_CHECKING:
    from hidet.context import CompileContext


def early_overwrites(task_graph: TaskGraph) -> tuple[int, ...]:
    """Numbers of the outputs that overwrite an input while it is read: by a later step, or out of order by theirs."""
    graph, aliases = task_graph.graph, task_graph.aliases
    if not graph.mutates:
        return ()
    written: dict[Value, int] = {}
    last_read: dict[Value, int] = {}
    for position, step in enumerate(task_graph.steps):
        reads, writes = _tensors(step)
        written.update((alias_root(value, aliases), position) for value in writes)
        last_read.update((alias_root(value, aliases), position) for value in reads)

    def is_early(target: Value, value: Value) -> bool:
        position, last = written.get(value, -1), last_read.get(target, -1)
        if position < 0 or last != position:
            return position < 0 or last > position
        return not _reads_before_writing(task_graph.steps[position], value, target, task_graph)

    return tuple(o for source, o in graph.mutates if is_early(graph.inputs[source], graph.outputs[o]))


@dataclass(frozen=True)
class CopyOverwrites:
    """Computes some outputs, given by their numbers, in memory of their own and copies them at the end of the graph."""

    name: ClassVar[str] = "copy-overwrites"
    outputs: tuple[int, ...]

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The graph with the copying nodes behind its own."""
        builder = GraphBuilder(ctx.registry.operators, graph.name)
        results = list(graph.outputs)
        for number in self.outputs:
            value = results[number]
            (results[number],) = builder.emit_all("copy", [value], {}, [value.type])
        return replace(graph, nodes=(*graph.nodes, *builder.nodes), outputs=tuple(results))


def _tensors(step: Task | ForeignStep) -> tuple[list[Value], list[Value]]:
    """What a step reads and writes."""
    if isinstance(step, ForeignStep):
        return list(step.node.values), list(step.node.outputs)
    return [t.value for t in step.inputs], [t.value for t in step.outputs]


def _reads_before_writing(step: Task | ForeignStep, value: Value, target: Value, task_graph: TaskGraph) -> bool:
    """Whether the step reads each element of `target` no later than it writes that element of `value` over it."""
    if isinstance(step, ForeignStep):
        return True
    roots = [
        (alias_root(step.outputs[o].value, task_graph.aliases), alias_root(step.inputs[i].value, task_graph.aliases))
        for o, i in step.in_place
    ]
    if (value, target) in roots:
        return True
    # An anchor's program may write results before it has read all inputs; only index-by-index programs may not.
    if step.anchor is not None or len(step.outputs) != 1:
        return False
    (epilogue,) = step.epilogues
    for tensor in step.inputs:
        if alias_root(tensor.value, task_graph.aliases) is not target:
            continue
        same_place = tensor.value is target and tensor.type.element_strides == step.outputs[0].type.element_strides
        reads = [access for access in accesses(epilogue.value) if access.operand is tensor.operand]
        if not same_place or any(access.indices != epilogue.axes for access in reads):
            return False
    return True
