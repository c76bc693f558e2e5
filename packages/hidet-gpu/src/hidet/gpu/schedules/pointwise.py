"""Pointwise computations: element-wise chains, windows and filters of few channels, every element from its own inputs,
by one thread.

A thread computes neighbours along the axis on which the result is contiguous, with accesses of 16 bytes. A program has
two kernels: one for addresses that are multiples of 16 bytes, and a plain one of an element a thread. Which one runs is
decided when it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from hidet.compute.definition import Compute
from hidet.context import CompileContext
from hidet.gpu.schedules.cost_streams import pointwise_seconds, transposed_seconds
from hidet.gpu.schedules.counts import Counts
from hidet.gpu.schedules.exchange import WARP
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.pointwise_kernel import launch_fused, launch_pointwise
from hidet.gpu.schedules.pointwise_layout import (
    Pointwise,
    allowed_lanes,
    pointwise_of,
    with_lanes,
    with_short_axis,
    with_wide_writes,
)
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.transpose import launch_transposed, transposed_of
from hidet.ir.expr import Reduce
from hidet.ir.visit import walk
from hidet.schedule.affine import as_dim
from hidet.schedule.cost import element_count, extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import gpu_target

_LARGE_WINDOW = 64
"""Elements of a window from which a thread is too slow for it, unless there are many windows."""
_MANY = 512
"""Windows for each multiprocessor that are many."""
_THREADS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class PointwiseShare:
    """How results are dealt out to threads.

    elements: of a thread, for each output. threads: of a block. tile_warps: warps of a block that writes results
    through a tile, where tensors lie in different orders; 0 computes them as others. Elements and threads are of blocks
    without a tile.
    """

    elements: Counts
    threads: int = 256
    tile_warps: int = 8


class PointwiseRule(ScheduleRule[Sequence[Pointwise], PointwiseShare]):
    """What pointwise rules have in common."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Sequence[Pointwise]] | None:
        """None where an anchor's definition has other stages than `Compute`, and for updates in place."""
        if task.in_place:
            return None
        if task.anchor is not None and not all(isinstance(stage, Compute) for stage in task.definition.stages):
            return None
        target = gpu_target(ctx.target)
        found = (pointwise_of(task, number, target) for number in range(len(task.outputs)))
        outputs = tuple(with_short_axis(task, pointwise) for pointwise in found)
        return Match(task, outputs if len(outputs) == 1 else tuple(with_wide_writes(task, each) for each in outputs))

    def space(self, match: Match[Sequence[Pointwise]], ctx: CompileContext) -> Space[PointwiseShare]:
        """Elements of a thread, and threads of a block."""
        return Space(_share_knobs(match, ctx, self.default(match, ctx)), PointwiseShare)

    def default(self, match: Match[Sequence[Pointwise]], ctx: CompileContext) -> PointwiseShare:
        """As many elements as 16 bytes have, as far as there is work for the device."""
        return PointwiseShare(Counts(tuple(pointwise.lanes for pointwise in match.data)))

    def predict(self, match: Match[Sequence[Pointwise]], params: PointwiseShare, ctx: CompileContext) -> float | None:
        """By the model of `cost_streams`."""
        constants = known_constants(ctx)
        if constants is None:
            return None
        outputs = list(zip(match.data, params.elements.each, strict=True))
        return pointwise_seconds(match.task, outputs, params.threads, gpu_target(ctx.target), constants)

    def build(self, match: Match[Sequence[Pointwise]], params: PointwiseShare, ctx: CompileContext) -> Program:
        """For each output a kernel of 16 bytes and one of an element a thread."""
        builder = ProgramBuilder(match.task)
        # What `match` has found out is for the lanes of the default.
        own = [
            pointwise if lanes == pointwise.lanes else with_lanes(match.task, pointwise, lanes)
            for pointwise, lanes in zip(match.data, params.elements.each, strict=True)
        ]
        if len(own) > 1:
            launch_fused(builder, match.task, own, params.threads)
        else:
            launch_pointwise(builder, match.task, own[0], params.threads)
        return builder.program()


class ElementwiseRule(PointwiseRule):
    """Schedules tasks without an anchor; those whose tensors lie in different orders through tiles."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Sequence[Pointwise]] | None:
        """None for tasks with an anchor."""
        return None if task.anchor is not None else super().match(task, ctx)

    def space(self, match: Match[Sequence[Pointwise]], ctx: CompileContext) -> Space[PointwiseShare]:
        """As of other rules, and blocks that write through a tile, where there are such."""
        default = self.default(match, ctx)
        if any(transposed_of(match.task, pointwise) is None for pointwise in match.data):
            return super().space(match, ctx)
        most = gpu_target(ctx.target).block_threads
        warps = Knob("tile_warps", (0, 4, 8, 16, 32), "warps of a block with a tile; 0: without a tile")

        def is_of_tile(share: PointwiseShare) -> bool:
            return share.tile_warps == 0 or replace(share, tile_warps=default.tile_warps) == default

        return Space(
            (*_share_knobs(match, ctx, default), warps),
            PointwiseShare,
            (
                Constraint(f"a block has at most {most} threads", lambda share: share.tile_warps * WARP <= most),
                Constraint("elements and threads are of blocks without a tile", is_of_tile),
            ),
        )

    def predict(self, match: Match[Sequence[Pointwise]], params: PointwiseShare, ctx: CompileContext) -> float | None:
        """As of other rules, or of blocks that write through a tile."""
        constants = known_constants(ctx)
        if constants is None or any(transposed_of(match.task, pointwise) is None for pointwise in match.data):
            return super().predict(match, params, ctx)
        return transposed_seconds(match.task, params.tile_warps, gpu_target(ctx.target), constants)

    def build(self, match: Match[Sequence[Pointwise]], params: PointwiseShare, ctx: CompileContext) -> Program:
        """Through a tile, or as other rules do."""
        transposed = [transposed_of(match.task, pointwise) for pointwise in match.data] if params.tile_warps else [None]
        if None in transposed:
            return super().build(match, params, ctx)
        builder = ProgramBuilder(match.task)
        for each in transposed:
            assert each is not None
            launch_transposed(builder, match.task, each, params.tile_warps)
        return builder.program()


class WindowRule(PointwiseRule):
    """Schedules pooling of any kind and rank, of windows that a thread can go through."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Sequence[Pointwise]] | None:
        """None for few large windows."""
        sizes = [
            _size(node) for stage in task.definition.stages if isinstance(stage, Compute) for node in _reductions(stage)
        ]
        few = element_count(task.outputs[0].type.shape) < per_device(_MANY, gpu_target(ctx.target))
        if few and max(sizes, default=1) > _LARGE_WINDOW:
            return None
        return super().match(task, ctx)


class GroupedConvRule(PointwiseRule):
    """Schedules convolutions in groups: depthwise ones, and what is too narrow for matrix units."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Sequence[Pointwise]] | None:
        """None for one group."""
        assert task.anchor is not None
        return super().match(task, ctx) if task.anchor.attrs["groups"] != 1 else None


def _share_knobs(match: Match[Sequence[Pointwise]], ctx: CompileContext, default: PointwiseShare) -> tuple[Knob, Knob]:
    allowed = [tuple(allowed_lanes(match.task, pointwise)) for pointwise in match.data]
    limits = sorted({lanes for each in allowed for lanes in each})
    capped = [Counts(tuple(max(lanes for lanes in each if lanes <= limit) for each in allowed)) for limit in limits]
    elements = tuple(dict.fromkeys([*capped, default.elements]))
    most = gpu_target(ctx.target).block_threads
    threads = tuple(count for count in _THREADS if count <= most)
    return Knob("elements", elements, "results of a thread"), Knob("threads", threads, "threads of a block")


def _reductions(stage: Compute) -> list[Reduce]:
    return [node for node in walk(stage.value) if isinstance(node, Reduce)]


def _size(node: Reduce) -> int:
    """About how many elements are reduced."""
    sizes = [as_dim(extent) for extent in node.extents]
    return prod(1 if size is None else extent_estimate(size) for size in sizes)
