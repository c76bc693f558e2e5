"""Schedules depthwise convolutions of lines and images, in any layout."""

from __future__ import annotations

from dataclasses import replace

from hidet.cuda.schedules.depthwise_kernel import DepthwiseKernel
from hidet.cuda.schedules.depthwise_plan import depthwise_of, run_of
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.ir.visit import accesses
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task
from hidet.target import Target


class DepthwiseRule:
    """Schedules depthwise convolutions of lines and images."""

    def match(self, task: Task, target: Target) -> Match | None:
        """None for other groups and ranks, and for filters of symbolic sizes."""
        found = depthwise_of(task)
        return None if found is None else Match(task, found)

    def space(self, match: Match, target: Target) -> SearchSpace:
        """The tile of a thread."""
        rows = (1, 2, 4) if match.data.is_kept else (1,)
        return SearchSpace({"pixels": (1, 2, 4), "rows": rows})

    def default(self, match: Match, target: Target) -> Params:
        """As large a tile as keeps the device busy."""
        return {"pixels": match.data.pixels, "rows": match.data.rows}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """A kernel for aligned addresses, and one of a channel a thread."""
        task, conv = match.task, replace(match.data, pixels=params["pixels"], rows=params["rows"])
        builder = ProgramBuilder(task)
        conv = replace(conv, run=run_of(conv.output, conv.pixels))
        launch = DepthwiseKernel(builder, task, conv).launch()
        if conv.lanes == conv.run == 1:
            builder.run(launch)
            return builder.program()
        extra = [access.operand for access in accesses(conv.value)]
        operands = (conv.image.operand, conv.weight.operand, task.epilogues[0].result, *extra)
        alone = replace(conv, lanes=1, run=1)
        builder.run(builder.by_alignment(operands, launch, DepthwiseKernel(builder, task, alone).launch))
        return builder.program()
