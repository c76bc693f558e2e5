"""Reductions by several threads an element: a warp, or a block where elements are few and long.

Every stage of the anchor's definition is a kernel, as in the fallback nest; a stage that reduces enough is computed by
threads that each reduce a part and then exchange what they have, in the same order every time.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Compute, Operand
from hidet.context import CompileContext
from hidet.gpu.schedules.cost_streams import reduce_seconds
from hidet.gpu.schedules.counts import Counts
from hidet.gpu.schedules.exchange import WARP, block_number, has_warps, reduce_lanes, reduce_warps, thread_in_block
from hidet.gpu.schedules.items import decode_item
from hidet.gpu.schedules.occupancy import per_device
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Reduce, Var
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch, Stmt
from hidet.ir.visit import accesses, has_reduce, walk
from hidet.schedule.affine import affine_offset, as_dim
from hidet.schedule.device_constants import known_constants
from hidet.schedule.fallback import Items, NestBuilder
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

_BLOCK = 256
_LANES = (1, WARP, 128, 256, 512, 1024)
_THREADS = (64, 128, 256, 512)
_LEAST = 32
"""Elements a reduction has at least for a warp to share them."""
_LONG = 4096
"""Elements from which a block shares them, if there are few results."""
_FEW = 8
_MANY = 128
"""Results for each multiprocessor: up to which they are few, and from which one thread each keeps it busy."""
_HUGE = 1 << 14
"""Elements from which a block of all threads it can have shares them."""


@dataclass(frozen=True, slots=True)
class ReduceShare:
    """How elements are shared by threads.

    lanes: threads that share an element, for each stage: 1, a warp, or a whole block. threads: of blocks whose warps
    have elements of their own.
    """

    lanes: Counts
    threads: int = 128


class ReduceRule(ScheduleRule[None, ReduceShare]):
    """Schedules operators of compute stages with reductions."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """None where nothing reduces enough to be shared by threads, unless there is little to do: few results of short
        sums, a thread each."""
        stages = task.definition.stages if task.anchor is not None else ()
        target = gpu_target(ctx.target)
        if not has_warps(target) or not stages or not all(isinstance(stage, Compute) for stage in stages):
            return None
        computed = [stage for stage in stages if isinstance(stage, Compute)]
        is_shared = any(lanes_for(task, stage, target) > 1 for stage in computed)
        return Match(task) if is_shared or all(_is_little(stage, target) for stage in computed) else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[ReduceShare]:
        """Threads that share an element, and threads of a block."""
        default, most = self.default(match, ctx), gpu_target(ctx.target).block_threads
        reduces = [has_reduce(stage.value) for stage in _stages(match.task)]
        shared = [Counts(tuple(lanes if each else 1 for each in reduces)) for lanes in _LANES if lanes <= most]
        return Space(
            (
                Knob("lanes", tuple(dict.fromkeys([*shared, default.lanes])), "threads that share an element"),
                Knob("threads", tuple(count for count in _THREADS if count <= most), "threads of a block"),
            ),
            ReduceShare,
            (
                Constraint(
                    "a block has other threads only where a warp has an element",
                    lambda share: share.threads == default.threads or WARP in share.lanes.each,
                ),
            ),
        )

    def default(self, match: Match[None], ctx: CompileContext) -> ReduceShare:
        """A warp an element, or a block where elements are few and long."""
        target = gpu_target(ctx.target)
        return ReduceShare(Counts(tuple(lanes_for(match.task, stage, target) for stage in _stages(match.task))))

    def predict(self, match: Match[None], params: ReduceShare, ctx: CompileContext) -> float | None:
        """By the model of `cost_streams`."""
        constants = known_constants(ctx)
        if constants is None:
            return None
        stages = list(zip(_stages(match.task), params.lanes.each, strict=True))
        return reduce_seconds(match.task, stages, params.threads, gpu_target(ctx.target), constants)

    def build(self, match: Match[None], params: ReduceShare, ctx: CompileContext) -> Program:
        """One kernel a stage."""
        return _ReductionNest(match.task, params).program()


def _stages(task: Task) -> list[Compute]:
    return [stage for stage in task.definition.stages if isinstance(stage, Compute)]


def lanes_for(task: Task, stage: Compute, target: GpuTarget) -> int:
    """Threads that share an element of a stage: 1, a warp or a block."""
    reductions = [node for node in walk(stage.value) if isinstance(node, Reduce)]
    if not reductions:
        return 1
    extents = [[as_dim(extent) for extent in node.extents] for node in reductions]
    longest = max(_likely(sizes) for sizes in extents)
    results = _likely(stage.result.shape)
    if longest < _LEAST:
        return 1
    if longest >= _LONG and results < per_device(_FEW, target):
        return _BLOCK if longest < _HUGE else min(4 * _BLOCK, target.block_threads)
    is_along = any(_is_contiguous(task, node) for node in reductions)
    return WARP if is_along or results < per_device(_MANY, target) else 1


def _is_little(stage: Compute, target: GpuTarget) -> bool:
    """Whether a thread an element takes a few microseconds at most."""
    reductions = [node for node in walk(stage.value) if isinstance(node, Reduce)]
    reduced = [_likely([as_dim(extent) for extent in node.extents]) for node in reductions]
    return bool(reduced) and max(reduced) < _LEAST and _likely(stage.result.shape) < per_device(_MANY, target)


def _likely(sizes: Sequence[dims.Dim | None]) -> int:
    total = 1
    for size in sizes:
        total *= size if isinstance(size, int) else (dims.hint_value(size) or _LEAST) if size is not None else _LEAST
    return total


def _is_contiguous(task: Task, node: Reduce) -> bool:
    """Whether something that is reduced has neighbours along the last reduced axis."""
    strides = {
        operand: tensor.type.element_strides
        for operand, source in task.sources.items()
        for tensor in task.inputs
        if tensor.operand is source
    }
    for value in node.values:
        for access in accesses(value):
            own = strides.get(access.operand)
            offset = None if own is None else affine_offset(access.indices, own)
            if offset is not None and offset.coefficient(node.axes[-1]) == 1:
                return True
    return False


class _ReductionNest(NestBuilder):
    def __init__(self, task: Task, share: ReduceShare) -> None:
        super().__init__(task, is_by_element=True)
        self._threads = share.threads
        self._lanes = dict(zip(_stages(task), share.lanes.each, strict=True))
        self._writer: Var | None = None

    def lowering(self, scope: KernelScope) -> Lowering:
        return _SharedReduction(scope)

    def compute(self, stage: Compute, scope: KernelScope, lowering: Lowering, pointers: Mapping[Operand, Var]) -> Items:
        # Stages that follow the anchor reduce nothing.
        lanes = self._lanes.get(stage, 1)
        assert isinstance(lowering, _SharedReduction)
        lowering.lanes = lanes
        self._writer = lowering.lane if lanes > 1 else None
        items = super().compute(stage, scope, lowering, dict(pointers))
        if lanes == 1:
            return items
        return Items(items.axes, items.extents, items.body, lanes, lowering.lane)

    def store(
        self,
        operand: Operand,
        pointers: Mapping[Operand, Var],
        scope: KernelScope,
        indices: Sequence[Expr],
        value: Expr,
    ) -> Stmt:
        stmt = super().store(operand, dict(pointers), scope, indices, value)
        return stmt if self._writer is None else If(build.equal(self._writer, 0), stmt)

    def launch(self, function: Function, grid: tuple[Expr, ...], arguments: tuple[Expr, ...], items: Items) -> None:
        if items.lanes == 1 or items.lane is None:
            super().launch(function, grid, arguments, items)
            return
        threads = items.lanes if items.lanes > WARP else self._threads
        extents = [build.size_var(f"extent{n}") for n in range(len(grid))]
        count, wanted = (functools.reduce(operator.mul, sizes, build.index(1)) for sizes in (extents, grid))
        per_block, k = threads // items.lanes, IRBuilder()
        thread = k.let("thread", thread_in_block())
        k.declare(items.lane, thread % items.lanes)
        item = k.let("item", block_number() * per_block + thread // items.lanes)
        # Whole warps leave together; a block that shares an item has one for certain.
        with k.if_(item < count) if per_block > 1 else nullcontext():
            decode_item(k, build.cast(item, dtypes.u64), extents, function.grid_vars)
            k.emit(function.body)
        kernel = Function(function.name, (*function.params, *extents), k.body, kind="kernel")
        self.functions.append(kernel)
        blocks = (wanted + (per_block - 1)) // per_block
        self.launches.append(Launch(kernel.name, (blocks,), (*arguments, *grid), block=(build.index(threads),)))


class _SharedReduction(Lowering):
    """Reductions whose indices are dealt out to `lanes` threads. Those inside others stay with one thread."""

    def __init__(self, scope: KernelScope) -> None:
        super().__init__(scope, {})
        self.lanes = 1
        self.lane = build.size_var("lane")
        self._depth = 0

    def reduction(self, node: Reduce, before: list[Stmt], done: dict[tuple[Var, ...], tuple[Var, ...]]) -> Expr:
        """As one thread does it, but for the outermost ones."""
        self._depth += 1
        try:
            return super().reduction(node, before, done)
        finally:
            self._depth -= 1

    def loops(self, node: Reduce, accumulators: Sequence[Var], body: Stmt) -> list[Stmt]:
        """Each thread takes every lanes-th index, then the threads' accumulators are reduced together."""
        if self.lanes == 1 or self._depth > 1:
            return super().loops(node, accumulators, body)
        k, count = IRBuilder(), functools.reduce(operator.mul, node.extents)
        place = node.axes[0] if len(node.axes) == 1 else build.size_var("place")
        with k.loop(place, count - self.lane, self.lane, self.lanes):
            if len(node.axes) > 1:
                decode_item(k, build.cast(place, dtypes.u64), node.extents, node.axes)
            k.emit(body)
        reduce_lanes(k, node.combiner, accumulators, WARP)
        reduce_warps(k, node.combiner, accumulators, self.lanes // WARP, self.lane)
        return [k.body]
