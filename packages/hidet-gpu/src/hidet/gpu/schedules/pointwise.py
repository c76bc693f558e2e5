"""Pointwise computations: element-wise chains, windows and filters of few channels, every element from its own inputs,
by one thread.

A thread computes neighbours along the axis on which the result is contiguous, with accesses of 16 bytes. A program has
two kernels: one for addresses that are multiples of 16 bytes, and a plain one of an element a thread. Which one runs is
decided when it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hidet.compute.definition import Compute
from hidet.context import CompileContext
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.pointwise_kernel import launch_fused, launch_pointwise
from hidet.gpu.schedules.pointwise_layout import Pointwise, pointwise_of
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.transpose import launch_transposed, transposed_of
from hidet.ir.expr import Reduce
from hidet.ir.visit import walk
from hidet.schedule.affine import as_dim
from hidet.schedule.cost import element_count, extent_estimate
from hidet.schedule.rule import FixedRule, Match, Program
from hidet.schedule.task import Task
from hidet.target import gpu_target

_LARGE_WINDOW = 64
"""Elements of a window from which a thread is too slow for it, unless there are many windows."""
_MANY = 512
"""Windows for each multiprocessor that are many."""


class PointwiseRule(FixedRule[Sequence[Pointwise]]):
    """What pointwise rules have in common."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Sequence[Pointwise]] | None:
        """None where an anchor's definition has other stages than `Compute`, and for updates in place."""
        if task.in_place:
            return None
        if task.anchor is not None and not all(isinstance(stage, Compute) for stage in task.definition.stages):
            return None
        target = gpu_target(ctx.target)
        return Match(task, tuple(pointwise_of(task, number, target) for number in range(len(task.outputs))))

    def build(self, match: Match[Sequence[Pointwise]], params: None, ctx: CompileContext) -> Program:
        """For each output a kernel of 16 bytes and one of an element a thread."""
        outputs = match.data
        builder = ProgramBuilder(match.task)
        if len(outputs) > 1:
            launch_fused(builder, match.task, outputs)
        else:
            launch_pointwise(builder, match.task, outputs[0])
        return builder.program()


class ElementwiseRule(PointwiseRule):
    """Schedules tasks without an anchor; those whose tensors lie in different orders through tiles."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Sequence[Pointwise]] | None:
        """None for tasks with an anchor."""
        return None if task.anchor is not None else super().match(task, ctx)

    def build(self, match: Match[Sequence[Pointwise]], params: None, ctx: CompileContext) -> Program:
        """Through a tile, or as other rules do."""
        transposed = [transposed_of(match.task, pointwise) for pointwise in match.data]
        if None in transposed:
            return super().build(match, params, ctx)
        builder = ProgramBuilder(match.task)
        for each in transposed:
            assert each is not None
            launch_transposed(builder, match.task, each)
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


def _reductions(stage: Compute) -> list[Reduce]:
    return [node for node in walk(stage.value) if isinstance(node, Reduce)]


def _size(node: Reduce) -> int:
    """About how many elements are reduced."""
    sizes = [as_dim(extent) for extent in node.extents]
    return prod(1 if size is None else extent_estimate(size) for size in sizes)
