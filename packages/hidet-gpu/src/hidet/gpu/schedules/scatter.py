"""Writing at computed places, an update a thread.

Where updates may meet and replace each other, the last one has to win: every place that they compete for gets the
number of the last update there, by an atomic maximum, which is the same in any order of threads; then those write.
Sums and extremes of integers are the same in any order, too, and made by atomics. Floats add up in the order of their
updates: these are sorted by their places, and a thread reduces those of one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.compute.definition import Compute, Operand, Routine, Scan, Scatter, fresh_axes
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.ordered_updates import Contest, can_be_ordered, competing_axes, reduce_in_order
from hidet.gpu.schedules.row_sort import can_order
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Evaluate, If, Stmt
from hidet.schedule.fallback import FallbackRule, Items, NestBuilder, StageScope
from hidet.schedule.rule import Match, Program
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

_ATOMICS = {"sum": "gpu.reduce_add_at", "max": "gpu.reduce_max_at", "min": "gpu.reduce_min_at"}
"""Combiners, by name, that are the same in any order for integers, and what does them."""
_WORDS = (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)


class ScatterRule(FallbackRule):
    """Schedules updates at computed places."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """None where updates are combined in an order and their number is not known."""
        stages = task.definition.stages if task.anchor is not None else ()
        scatters = [stage for stage in stages if isinstance(stage, Scatter)]
        if not scatters or any(isinstance(stage, Routine | Scan) for stage in stages):
            return None
        orders = can_order(gpu_target(ctx.target))
        return Match(task) if all(_is_free(stage) or (orders and can_be_ordered(stage)) for stage in scatters) else None

    def build(self, match: Match[None], params: None, ctx: CompileContext) -> Program:
        """One kernel a stage, three for a stage whose updates compete, besides the copy of its base."""
        return _ScatterNest(match.task, gpu_target(ctx.target)).program()


def _is_free(stage: Scatter) -> bool:
    return stage.combine is None or _atomic(stage) is not None or not _competing(stage)


def _atomic(stage: Scatter) -> str | None:
    """What combines an update with its place in one step; None where nothing does."""
    if stage.combine is None or stage.result.dtype not in _WORDS:
        return None
    return _ATOMICS.get(stage.combine.name)


def _competing(stage: Scatter) -> list[int]:
    """Axes along which updates may meet, by number."""
    return [] if stage.is_distinct else competing_axes(stage)


class _ScatterNest(NestBuilder):
    def __init__(self, task: Task, target: GpuTarget) -> None:
        super().__init__(task, is_by_element=True)
        self._target = target

    def stage(self, stage: Compute | Scan | Scatter | Routine) -> None:
        """Add the kernels of one stage."""
        if not isinstance(stage, Scatter) or not _competing(stage):
            super().stage(stage)
            return
        if not self.task.in_place:
            super().stage(Compute(stage.result, stage.base_axes, stage.base))
        atomic = _atomic(stage)
        if atomic is not None:
            self._combine(stage, atomic)
            return
        contest = Contest(stage, _competing(stage))
        if stage.combine is not None:
            reduce_in_order(self, stage, contest, self._target)
            return
        owner = Operand("owner", contest.dtype, contest.shape)
        pointer = self.scratch(owner.name, owner.dtype, dims.product(owner.shape))
        self.places[owner] = (pointer, contiguous_strides(owner.shape))
        super().stage(Compute(owner, fresh_axes(owner.rank), build.const(-1, owner.dtype)))
        self._claim(stage, contest, owner)
        self._write(stage, contest, owner)

    def _combine(self, stage: Scatter, atomic: str) -> None:
        """Every update in one step, in any order."""
        opened = self.opened(stage)
        strides = [opened.scope.size(stride, "stride") for stride in self.places[stage.result][1]]
        before, update = opened.lowering.statements(opened.lowering.resolve(stage.update, {}))
        place = build.address(opened.pointers[stage.result], build.flatten(self._indices(opened, stage), strides))
        body = build.seq([*before, Evaluate(intrinsic_call(atomic, place, update))])
        items = Items(tuple(stage.axes), tuple(stage.extents), self._where(opened, stage, body))
        self.emit(opened.scope, opened.outer, items)

    def _claim(self, stage: Scatter, contest: Contest, owner: Operand) -> None:
        """The number of the last update at every place."""
        opened, place = self._with_owner(stage, owner)
        indices = self._indices(opened, stage)
        where = build.address(place, self._flat(opened, contest.owner_indices(indices), owner.shape))
        claim: Stmt = Evaluate(intrinsic_call("gpu.reduce_max_at", where, self._number(opened, stage, contest)))
        body = self._where(opened, stage, claim)
        self.emit(opened.scope, opened.outer, Items(contest.axes, contest.extents, body))

    def _write(self, stage: Scatter, contest: Contest, owner: Operand) -> None:
        """Updates that are the last at their place."""
        opened, place = self._with_owner(stage, owner)
        indices = self._indices(opened, stage)
        last = build.load(place, self._flat(opened, contest.owner_indices(indices), owner.shape))
        before, update = opened.lowering.statements(opened.lowering.resolve(stage.update, {}))
        write = build.seq([*before, self.store(stage.result, opened.pointers, opened.scope, indices, update)])
        body = self._where(opened, stage, If(build.equal(last, self._number(opened, stage, contest)), write))
        self.emit(opened.scope, opened.outer, Items(tuple(stage.axes), tuple(stage.extents), body))

    def _with_owner(self, stage: Scatter, owner: Operand) -> tuple[StageScope, Var]:
        opened = self.opened(stage)
        place = opened.scope.pointer(owner.name, owner.dtype)
        opened.outer.append(self.places[owner][0])
        return opened, place

    def _indices(self, opened: StageScope, stage: Scatter) -> list[Expr]:
        return [opened.lowering.resolve(index, {}) for index in stage.indices]

    def _flat(self, opened: StageScope, indices: Sequence[Expr], extents: Sequence[Dim]) -> Expr:
        """The place in row-major order."""
        return build.flatten(indices, [opened.scope.size(stride, "stride") for stride in contiguous_strides(extents)])

    def _number(self, opened: StageScope, stage: Scatter, contest: Contest) -> Expr:
        """The number of an update among those that compete."""
        axes = [stage.axes[n] for n in contest.competing]
        return build.cast(self._flat(opened, axes, [stage.extents[n] for n in contest.competing]), contest.dtype)

    def _where(self, opened: StageScope, stage: Scatter, body: Stmt) -> Stmt:
        return body if stage.condition is None else If(opened.lowering.resolve(stage.condition, {}), body)
