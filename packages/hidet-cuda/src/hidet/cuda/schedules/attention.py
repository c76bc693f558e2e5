"""Scaled dot-product attention on a GPU.

16-bit floats are multiplied on tensor cores by the tile program of core, everything else by a kernel without. Few
queries on many keys (decoding) do not fill the device: the keys are then split over blocks, whose results a second
kernel merges in their order (Dao et al., "Flash-Decoding", 2023).

Which kernel runs is decided at every call, unless all tensors are known to begin at multiples of 16 bytes: tensors of
users may start anywhere, and copies in the background may not.
"""

from __future__ import annotations

from typing import cast

from hidet.context import CompileContext
from hidet.cuda.schedules.attention_plan import Plan, choose_plan, plans_by_size, suits_tensor_cores
from hidet.cuda.schedules.attention_space import attention_space
from hidet.cuda.schedules.attention_tiles import launches_by_size
from hidet.cuda.schedules.cost_attention import attention_seconds
from hidet.cuda.tile.machine import COPIES
from hidet.gpu.schedules.attention_launch import problem_of, run_by_alignment, simt_launch
from hidet.gpu.schedules.attention_simt import SimtTiles
from hidet.gpu.schedules.attention_tiles import simt_tiles
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Space
from hidet.schedule.task import Task
from hidet.target import gpu_target


class AttentionRule(ScheduleRule[AttentionProblem, Plan | SimtTiles]):
    """Schedules attention with or without log-sum-exp, for any strides, masks and numbers of queries."""

    def match(self, task: Task, ctx: CompileContext) -> Match[AttentionProblem] | None:
        """Attention alone, rows of k and v of a known length up to LARGEST_ROW."""
        return Match(task, problem_of(task))

    def space(self, match: Match[AttentionProblem], ctx: CompileContext) -> Space[Plan | SimtTiles]:
        """Tiles of the kernel for tensor cores where they can be used, else of the one without."""
        space = attention_space(match.data, self.default(match, ctx), gpu_target(ctx.target))
        return cast("Space[Plan | SimtTiles]", space)

    def default(self, match: Match[AttentionProblem], ctx: CompileContext) -> Plan | SimtTiles:
        """Large tiles, as long as there are enough to keep the device busy."""
        problem, target = match.data, gpu_target(ctx.target)
        uses_units = suits_tensor_cores(problem) and ctx.option("cuda.matrix_units")
        if not uses_units:
            return simt_tiles(problem, target)
        return plans_by_size(problem, target) or choose_plan(problem, target)

    def predict(self, match: Match[AttentionProblem], params: Plan | SimtTiles, ctx: CompileContext) -> float | None:
        """By the model of `cost_attention`."""
        constants = known_constants(ctx)
        if constants is None:
            return None
        target = gpu_target(ctx.target)
        likely = choose_plan(match.data, target) if isinstance(params, Plan) and params.others else params
        return attention_seconds(match.data, likely, target, constants)

    def build(self, match: Match[AttentionProblem], params: Plan | SimtTiles, ctx: CompileContext) -> Program:
        """A kernel for tensor cores where they can be used, and one for everything else."""
        problem = match.data
        builder = ProgramBuilder(match.task)
        target = gpu_target(ctx.target)
        simt = params if isinstance(params, SimtTiles) else simt_tiles(problem, target)
        if isinstance(params, Plan):
            fast = launches_by_size(builder, problem, params, target)
        else:
            fast = simt_launch(builder, problem, simt, target, COPIES, is_aligned=True)
        run_by_alignment(
            builder, problem, fast, lambda: simt_launch(builder, problem, simt, target, COPIES, is_aligned=False)
        )
        return builder.program()
