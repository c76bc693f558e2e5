"""Counting nodes by how they run, and warning of those that run slower than they should."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hidet.errors import FallbackWarning
from hidet.graph.graph import Node
from hidet.runtime.compiled import ProgramUse
from hidet.runtime.program import NodeCounts
from hidet.schedule.claims import FALLBACK
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import ForeignStep, Task

if TYPE_CHECKING:
    from hidet.plugins.registry import Registry

_NAMED_IN_WARNING = 8


def count_nodes(parts: Iterable[ScheduledGraph]) -> NodeCounts:
    """Nodes of a graph and its sub-graphs by class, each once; checks, and views that cost nothing, are in
    none.

    `names` and `places` tell of the nodes that are not plainly scheduled, a task of several by its anchor.
    """
    counts = {"scheduled": 0, "fallback": 0, "routine": 0, "control": 0, "host": 0, "eager": 0}
    told: list[tuple[str, str, str]] = []
    counted: set[Node] = set()
    for step in (step for part in parts for step in part.steps):
        kind = _kind(step)
        if kind == "check":
            continue
        nodes = (step.node,) if isinstance(step, ForeignStep) else step.task.nodes
        counts[kind] += len(set(nodes) - counted)
        counted.update(nodes)
        if kind != "scheduled":
            name = step.node.op.name if isinstance(step, ForeignStep) else step.task.op_name
            loc = step.node.loc if isinstance(step, ForeignStep) else step.task.loc
            told.append((kind, name, "" if loc is None else str(loc)))
    names = tuple((kind, name) for kind, name, _ in told)
    return NodeCounts(**counts, names=names, places=tuple(place for _, _, place in told))


def _kind(step: ScheduledTask | ForeignStep) -> str:
    if isinstance(step, ForeignStep):
        return step.node.op.kind
    if step.task.anchor is not None and step.task.anchor.op.has_effect:
        return "check"
    if step.rule_name != FALLBACK:
        return "scheduled"
    return "routine" if step.task.anchor is not None and step.task.anchor.op.kind == "routine" else "fallback"


def program_uses(parts: Iterable[ScheduledGraph], registry: Registry) -> tuple[ProgramUse, ...]:
    """The programs of a graph and its sub-graphs, with what each of them computes, in the order of their first use.

    registry: tells whose the rules are.
    """
    rules: dict[str, str] = {}
    tasks: dict[str, list[str]] = {}
    for step in (step for part in parts for step in part.steps):
        if isinstance(step, ScheduledTask):
            rules.setdefault(step.symbol, step.rule_name)
            tasks.setdefault(step.symbol, []).append(step.task.summary)
    return tuple(
        ProgramUse(symbol, rule, tuple(tasks[symbol]), str(registry.owners["schedules", rule]))
        for symbol, rule in rules.items()
    )


def chosen_parameters(parts: Iterable[ScheduledGraph]) -> dict[str, int]:
    """How many tasks have parameters that a plug-in chose, by the reason that it gave."""
    steps = (step for part in parts for step in part.steps if isinstance(step, ScheduledTask))
    return dict(Counter(step.decision.reason for step in steps if step.decision.is_chosen))


def fallback_anchors(parts: Iterable[ScheduledGraph]) -> list[Task]:
    """Tasks whose anchor (matmul, conv, attention, norm, softmax, pooling) no schedule takes."""
    steps = (step for part in parts for step in part.steps if isinstance(step, ScheduledTask))
    return [
        step.task
        for step in steps
        if step.rule_name == FALLBACK and step.task.anchor is not None and step.task.anchor.op.kind == "anchor"
    ]


def has_warned(parts: Sequence[ScheduledGraph]) -> bool:
    """Whether scheduling these has warned: of anchors on the fallback nest, or of a rule that failed."""
    steps = (step for part in parts for step in part.steps if isinstance(step, ScheduledTask))
    return bool(fallback_anchors(parts)) or any(
        answer.outcome == "failed" for step in steps for answer in step.decision.answers
    )


def warn_of_fallbacks(parts: Iterable[ScheduledGraph], target: str) -> None:
    """One FallbackWarning for all anchors on the fallback nest, with operators, types and places; none without any."""
    tasks = fallback_anchors(parts)
    if not tasks:
        return
    lines = [
        f"  {task.summary}" + ("" if task.loc is None else f" at {task.loc}") for task in tasks[:_NAMED_IN_WARNING]
    ]
    if len(tasks) > len(lines):
        lines.append(f"  and {len(tasks) - len(lines)} more")
    message = f"no schedule of target {target} takes {len(tasks)} operators; they run as plain loops, slowly:\n"
    hint = "the compile report lists them; a plug-in may offer a schedule (`hidet plugins` shows those loaded)"
    warnings.warn(FallbackWarning(message + "\n".join(lines), hint=hint), stacklevel=3)
