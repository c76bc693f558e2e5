"""Chosen schedules as text, for dumps: which rule each task has, by which parameters, and why.

task 0 matmul_fused2, key 6c1d0f5a2b3e4d7f: rule gemm of hidet-cpu, priority 10, the first rule that takes it
  parameters: Tile(rows=6, columns=16)
  asked packed: declined
  asked gemv: cannot: the matrix has 64 rows
  asked gemm: matched
  not asked: fallback
  program matmul_fused2_0f3a5b7c9d1e2f40, arguments [32, 64], scratch [4096]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import TaskKey
from hidet.schedule.task_text import task_title

if TYPE_CHECKING:
    from hidet.context import CompileContext


def print_schedules(scheduled: ScheduledGraph, ctx: CompileContext) -> str:
    """The schedule of each task, in order; tasks with a key that has been shown refer to its first one."""
    first: dict[TaskKey, int] = {}
    blocks: list[str] = []
    tasks = (step for step in scheduled.steps if isinstance(step, ScheduledTask))
    for number, step in enumerate(tasks):
        title = task_title(step.task, number)
        same = first.setdefault(step.task.key, number)
        blocks.append("\n".join(_lines(step, title, ctx)) if same == number else f"{title}: as task {same}")
    return "\n\n".join(blocks) + "\n"


def _lines(step: ScheduledTask, title: str, ctx: CompileContext) -> Iterator[str]:
    decision, registry = step.decision, ctx.registry
    spec, owner = registry.schedules[step.rule_name], registry.owners["schedules", step.rule_name]
    yield f"{title}: rule {spec.name} of {owner.dist or owner.plugin}, priority {spec.priority}, {decision.reason}"
    if decision.params is not None:
        yield f"  parameters: {decision.params!r}"
    yield from (f"  asked {answer.rule}: {answer}" for answer in decision.answers)
    asked = {answer.rule for answer in decision.answers}
    others = [s.name for s in registry.schedules_for(step.task.op_name, ctx.target.name) if s.name not in asked]
    if others:
        yield f"  not asked: {', '.join(others)}"
    sizes = ", ".join(map(str, step.program.arguments))
    scratch = ", ".join(map(str, step.program.scratch))
    yield f"  program {step.symbol}, arguments [{sizes}], scratch [{scratch}]"
