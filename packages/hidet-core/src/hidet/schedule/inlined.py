"""An output of a task as one expression: what is fused before and behind the anchor put in place."""

from __future__ import annotations

from hidet.compute.definition import Compute, Operand
from hidet.errors import ScheduleError
from hidet.ir.expr import Access, Expr
from hidet.ir.visit import replace_accesses, substitute
from hidet.schedule.task import Task


def inlined_value(task: Task, epilogue: Compute) -> Expr:
    """An output's element from the task's inputs: prologues and stages are substituted where they are read.

    The stages of the anchor are `Compute`; ScheduleError for others.
    """
    if task.anchor is None:
        return epilogue.value
    sources = task.sources
    stages: dict[Operand, Compute] = {}

    def replacement(access: Access) -> Expr | None:
        source = sources.get(access.operand)
        if isinstance(source, Operand):
            return source[access.indices]
        stage = stages.get(access.operand) if source is None else source
        return None if stage is None else substitute(stage.value, dict(zip(stage.axes, access.indices, strict=True)))

    for stage in task.definition.stages:
        if not isinstance(stage, Compute):
            raise ScheduleError(f"task {task.name}: a stage of its anchor is a {type(stage).__name__}, not a Compute")
        stages[stage.result] = Compute(stage.result, stage.axes, replace_accesses(stage.value, replacement))
    return replace_accesses(epilogue.value, replacement)
