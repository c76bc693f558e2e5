"""Why tasks read from memory what other tasks make, instead of being one with them."""

from __future__ import annotations

from dataclasses import dataclass

from hidet.graph.graph import Value
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import ForeignStep


@dataclass(frozen=True, slots=True)
class Cut:
    """A value between two steps of a graph. made_by: the step that makes it. reason: why there are two."""

    value: Value
    made_by: int
    reason: str


def cuts_of(scheduled: ScheduledGraph) -> dict[int, list[Cut]]:
    """The cuts before each task, by the number of its step."""
    steps = scheduled.steps
    maker: dict[Value, int] = {}
    for number, step in enumerate(steps):
        nodes = step.task.nodes if isinstance(step, ScheduledTask) else (step.node,)
        maker.update((value, number) for node in nodes for value in node.outputs)
    noted = scheduled.task_graph.cuts
    found: dict[int, list[Cut]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, ForeignStep):
            continue
        for node in step.task.nodes:
            for value in node.values:
                source = maker.get(value, number)
                if source != number:
                    reason = _two_of_a_kind(steps[source], step) or noted.get((value, node), "it is needed in memory")
                    found.setdefault(number, []).append(Cut(value, source, reason))
    return found


def _two_of_a_kind(source: ScheduledTask | ForeignStep, target: ScheduledTask) -> str:
    """Why tasks are two that nothing could make one; "" where fusion decided."""
    if isinstance(source, ForeignStep):
        return f"{source.node.op.name} runs outside of compiled code"
    if source.task.anchor is not None and target.task.anchor is not None:
        return f"{source.task.op_name} and {target.task.op_name} have schedules of their own"
    return ""
