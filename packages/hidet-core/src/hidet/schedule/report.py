"""Counting nodes by how they run."""

from __future__ import annotations

from hidet.runtime.program import NodeCounts
from hidet.schedule.select import FALLBACK, ScheduledGraph, ScheduledTask


def count_nodes(scheduled: ScheduledGraph) -> NodeCounts:
    """Nodes by class; `names` pairs each class with the operators in it that are not plainly scheduled."""
    counts = {"scheduled": 0, "fallback": 0, "routine": 0, "host": 0, "eager": 0}
    names: list[tuple[str, str]] = []
    for step in scheduled.steps:
        if isinstance(step, ScheduledTask):
            kind = "fallback" if step.rule_name == FALLBACK else "scheduled"
            if step.task.anchor is not None and step.task.anchor.op.kind == "routine":
                kind = "routine"
            counts[kind] += len(step.task.nodes)
            name = step.task.op_name
        else:
            kind, name = ("host" if step.node.op.kind == "host" else "eager"), step.node.op.name
            counts[kind] += 1
        if kind != "scheduled":
            names.append((kind, name))
    return NodeCounts(**counts, names=tuple(names))
