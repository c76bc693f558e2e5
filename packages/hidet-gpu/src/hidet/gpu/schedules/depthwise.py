"""Schedules depthwise convolutions of lines and images, in any layout."""

from __future__ import annotations

from dataclasses import replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.context import CompileContext
from hidet.gpu.schedules.cost_streams import depthwise_seconds
from hidet.gpu.schedules.depthwise_kernel import MOST_COUNTED, DepthwiseKernel, unproven_reaches
from hidet.gpu.schedules.depthwise_plan import Depthwise, Tile, depthwise_of, least_threads
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.ir.stmt import If, Stmt
from hidet.ir.visit import accesses
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import gpu_target

BY_SIZE = Tile(0, 0)
"""Stands for the tiles among which each call takes the largest that keeps the device busy."""


class DepthwiseRule(ScheduleRule[Depthwise, Tile]):
    """Schedules depthwise convolutions of lines and images."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Depthwise] | None:
        """None for other groups and ranks, and for filters of symbolic sizes."""
        found = depthwise_of(task, gpu_target(ctx.target))
        return None if found is None else Match(task, found)

    def space(self, match: Match[Depthwise], ctx: CompileContext) -> Space[Tile]:
        """The tile of a thread."""
        several = (0,) if self.default(match, ctx) == BY_SIZE else ()
        pixels = Knob("pixels", (*several, 1, 2, 4), "results of a thread along the last axis")
        rows = Knob("rows", (*several, *((1, 2, 4) if match.data.is_kept else (1,))), "rows of results of a thread")

        def is_whole(tile: Tile) -> bool:
            return (tile.pixels == 0) == (tile.rows == 0)

        return Space((pixels, rows), Tile, (Constraint("tiles by size are the default's", is_whole),))

    def default(self, match: Match[Depthwise], ctx: CompileContext) -> Tile:
        """As large a tile as keeps the device busy."""
        return BY_SIZE if len(match.data.tiles) > 1 else match.data.tiles[0]

    def predict(self, match: Match[Depthwise], params: Tile, ctx: CompileContext) -> float | None:
        """By the model of `cost_streams`."""
        constants, target, conv = known_constants(ctx), gpu_target(ctx.target), match.data
        if constants is None:
            return None
        tile = Tile(conv.pixels, conv.rows) if params == BY_SIZE else params
        return depthwise_seconds(match.task, conv, tile.pixels, tile.rows, target, constants)

    def build(self, match: Match[Depthwise], params: Tile, ctx: CompileContext) -> Program:
        """A kernel for aligned addresses for each tile, and one of a channel a thread."""
        task, conv, builder = match.task, match.data, ProgramBuilder(match.task)
        tiles = conv.tiles if params == BY_SIZE else (params,)
        convs = [conv.with_tile(tile) for tile in tiles]
        reaches = unproven_reaches(conv)
        is_small = all(dims.prove_lt(reach, MOST_COUNTED) is not False for reach in reaches)
        conditions = [builder.size(reach) < MOST_COUNTED for reach in reaches] if is_small else []
        operands: tuple[Operand, ...] = ()
        if any(each.lanes > 1 or each.run > 1 for each in convs):
            extra = [access.operand for access in accesses(conv.value)]
            operands = (conv.image.operand, conv.weight.operand, task.epilogues[0].result, *extra)
        launches = [DepthwiseKernel(builder, task, each, is_small=is_small).launch() for each in convs]
        busy = least_threads(gpu_target(ctx.target)) * conv.lanes
        fast: Stmt = launches[-1]
        for each, launch in zip(convs[-2::-1], launches[-2::-1], strict=True):
            # Tiles at the edge count as whole ones.
            is_busy = builder.size(dims.product(conv.output.shape)) >= busy * each.pixels * each.rows
            fast = If(is_busy, launch, fast)

        def anywhere() -> Stmt:
            alone = replace(convs[-1], lanes=1, run=1)
            return DepthwiseKernel(builder, task, alone, is_small=not reaches).launch()

        builder.run(builder.by_alignment(operands, fast, anywhere, conditions))
        return builder.program()
