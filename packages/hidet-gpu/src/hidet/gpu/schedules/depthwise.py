"""Schedules depthwise convolutions of lines and images, in any layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.context import CompileContext
from hidet.gpu.schedules.cost_streams import depthwise_seconds
from hidet.gpu.schedules.depthwise_kernel import MOST_COUNTED, DepthwiseKernel, unproven_reaches
from hidet.gpu.schedules.depthwise_plan import Depthwise, depthwise_of, run_of
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.ir.stmt import Stmt
from hidet.ir.visit import accesses
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.target import gpu_target


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread computes of each channel."""

    pixels: int
    rows: int


class DepthwiseRule(ScheduleRule[Depthwise, Tile]):
    """Schedules depthwise convolutions of lines and images."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Depthwise] | None:
        """None for other groups and ranks, and for filters of symbolic sizes."""
        found = depthwise_of(task, gpu_target(ctx.target))
        return None if found is None else Match(task, found)

    def space(self, match: Match[Depthwise], ctx: CompileContext) -> Space[Tile]:
        """The tile of a thread."""
        pixels = Knob("pixels", (1, 2, 4), "results of a thread along the last axis")
        rows = Knob("rows", (1, 2, 4) if match.data.is_kept else (1,), "rows of results of a thread")
        return Space((pixels, rows), Tile)

    def default(self, match: Match[Depthwise], ctx: CompileContext) -> Tile:
        """As large a tile as keeps the device busy."""
        return Tile(match.data.pixels, match.data.rows)

    def predict(self, match: Match[Depthwise], params: Tile, ctx: CompileContext) -> float | None:
        """By the model of `cost_streams`."""
        constants, target = known_constants(ctx), gpu_target(ctx.target)
        if constants is None:
            return None
        return depthwise_seconds(match.task, match.data, params.pixels, params.rows, target, constants)

    def build(self, match: Match[Depthwise], params: Tile, ctx: CompileContext) -> Program:
        """A kernel for aligned addresses, and one of a channel a thread."""
        task, conv = match.task, replace(match.data, pixels=params.pixels, rows=params.rows)
        builder = ProgramBuilder(task)
        conv = replace(conv, run=run_of(conv.output, conv.pixels))
        reaches, operands = unproven_reaches(conv), tuple[Operand, ...]()
        if any(dims.prove_lt(reach, MOST_COUNTED) is False for reach in reaches):
            fast, conditions = DepthwiseKernel(builder, task, conv, is_small=False), []
        else:
            fast = DepthwiseKernel(builder, task, conv, is_small=True)
            conditions = [builder.size(reach) < MOST_COUNTED for reach in reaches]
        if conv.lanes > 1 or conv.run > 1:
            extra = [access.operand for access in accesses(conv.value)]
            operands = (conv.image.operand, conv.weight.operand, task.epilogues[0].result, *extra)

        def anywhere() -> Stmt:
            alone = replace(conv, lanes=1, run=1)
            return DepthwiseKernel(builder, task, alone, is_small=not reaches).launch()

        builder.run(builder.by_alignment(operands, fast.launch(), anywhere, conditions))
        return builder.program()
