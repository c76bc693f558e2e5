"""Attention without matrix units, of any type and layout, on GPUs whose warps exchange values."""

from __future__ import annotations

from hidet.context import CompileContext
from hidet.errors import ScheduleError
from hidet.gpu.schedules.attention_launch import problem_of, run_by_alignment, simt_launch
from hidet.gpu.schedules.attention_simt import SimtTiles
from hidet.gpu.schedules.attention_tiles import simt_space, simt_tiles
from hidet.gpu.schedules.exchange import has_warps
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Space
from hidet.schedule.task import Task
from hidet.target import gpu_target


class SimtAttentionRule(ScheduleRule[AttentionProblem, SimtTiles]):
    """Schedules attention with or without log-sum-exp, for any strides, masks and numbers of queries."""

    def match(self, task: Task, ctx: CompileContext) -> Match[AttentionProblem] | None:
        """Attention alone, rows of k and v of a known length."""
        if not has_warps(gpu_target(ctx.target)):
            raise ScheduleError("threads of a row exchange values in a warp of 32")
        return Match(task, problem_of(task))

    def space(self, match: Match[AttentionProblem], ctx: CompileContext) -> Space[SimtTiles]:
        """Rows of a block, and keys of a step."""
        return simt_space(match.data, gpu_target(ctx.target))

    def default(self, match: Match[AttentionProblem], ctx: CompileContext) -> SimtTiles:
        """The tiles that the device is done with first."""
        return simt_tiles(match.data, gpu_target(ctx.target))

    def build(self, match: Match[AttentionProblem], params: SimtTiles, ctx: CompileContext) -> Program:
        """A kernel whose accesses are as wide as the tensors' alignment lets them be."""
        builder, problem, target = ProgramBuilder(match.task), match.data, gpu_target(ctx.target)
        fast = simt_launch(builder, problem, params, target, None, is_aligned=True)
        run_by_alignment(
            builder, problem, fast, lambda: simt_launch(builder, problem, params, target, None, is_aligned=False)
        )
        return builder.program()
