"""What became of a graph of dynamo's, for torch's structured trace (TORCH_TRACE), which tlparse shows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hidet.schedule.schedule_text import print_schedules
from hidet.schedule.task_text import print_tasks
from hidet.torch import compat

if TYPE_CHECKING:
    from hidet.compiler.lowering import LoweredGraph
    from hidet.context import CompileContext
    from hidet.runtime.compiled import CompiledGraph


def trace_compilation(compiled: CompiledGraph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """The compile report, tasks and schedules as artifacts; they are written where somebody traces alone."""
    compat.trace_artifact("hidet_report", partial(str, compiled.report()))
    compat.trace_artifact("hidet_tasks", lambda: "\n".join(print_tasks(part.task_graph) for part in lowered.main))
    compat.trace_artifact("hidet_schedules", lambda: "\n".join(print_schedules(part, ctx) for part in lowered.main))
