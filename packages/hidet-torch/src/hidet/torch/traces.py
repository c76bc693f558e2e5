"""What became of a graph of dynamo's, for torch's structured trace (TORCH_TRACE), which tlparse shows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hidet.torch import compat

if TYPE_CHECKING:
    from hidet.compiler.lowered import LoweredGraph
    from hidet.context import CompileContext
    from hidet.runtime.compiled import CompiledGraph


def trace_compilation(compiled: CompiledGraph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """The compile report, tasks and schedules as artifacts; they are written where somebody traces alone."""
    compat.trace_artifact("hidet_report", partial(str, compiled.report()))
    compat.trace_artifact("hidet_tasks", partial(_tasks, lowered))
    compat.trace_artifact("hidet_schedules", partial(_schedules, lowered, ctx))


def _tasks(lowered: LoweredGraph) -> str:
    from hidet.schedule.task_text import print_tasks

    return "\n".join(print_tasks(part.task_graph) for part in lowered.main)


def _schedules(lowered: LoweredGraph, ctx: CompileContext) -> str:
    from hidet.schedule.schedule_text import print_schedules

    return "\n".join(print_schedules(part, ctx) for part in lowered.main)
