"""Updates that meet: what they compete for, and combining them in their order.

sort keys of every update: its place, then its number  sorted
for the first sort key of every place: reduce all of them  a thread, in the order of their numbers
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.compute.definition import Scatter
from hidet.dtypes import DType
from hidet.gpu.schedules.row_sort import in_order
from hidet.gpu.schedules.row_sort_keys import RowKernel, Rows
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.visit import walk
from hidet.schedule.fallback import Items, NestBuilder, axes_apart
from hidet.schedule.lowering import Lowering
from hidet.schedule.routines.site import unflatten
from hidet.target import GpuTarget

_NOWHERE = (1 << 32) - 1
"""The place of updates whose condition is false."""


def competing_axes(stage: Scatter) -> list[int]:
    """Axes along which updates may meet, by number: all that number updates, or none where there is one update.

    Axes of extent 1 are among them, because positions are read along these, too.
    """
    apart = axes_apart(stage)
    found = [n for n, axis in enumerate(stage.axes) if axis not in apart]
    return found if any(stage.extents[n] != 1 for n in found) else []


def can_be_ordered(stage: Scatter) -> bool:
    """Whether numbers of places and of updates are known to fit half a sort key each."""
    contest = Contest(stage, competing_axes(stage))
    updates = dims.product([stage.extents[n] for n in contest.competing])
    places = dims.product([stage.result.shape[n] for n in contest.positions])
    return (
        isinstance(updates, int)
        and dims.prove_lt(updates, _NOWHERE) is True
        and dims.prove_lt(places, _NOWHERE) is True
    )


class Contest:
    """What updates compete for: places along the axes whose index is computed, anew for each value of the axes apart
    that such an index depends on.

    axes, extents: of the updates that have to be told apart. shape: of the table of winners. competing, shared: the
    axes, by number, that number the updates, and those apart. positions: which indices of a place are computed.
    """

    def __init__(self, stage: Scatter, competing: Sequence[int]) -> None:
        self.competing = competing
        apart = axes_apart(stage)
        values = (*stage.indices, *(() if stage.condition is None else (stage.condition,)))
        computed = [value for value in values if not any(value is axis for axis in apart)]
        read = {node for value in computed for node in walk(value) if isinstance(node, Var)}
        self.shared = [n for n, axis in enumerate(stage.axes) if axis in apart and axis in read]
        self.positions = [n for n, index in enumerate(stage.indices) if not any(index is axis for axis in apart)]
        numbers = sorted([*self.shared, *self.competing])
        self.axes = tuple(stage.axes[n] for n in numbers)
        self.extents = tuple(stage.extents[n] for n in numbers)
        self._before = [stage.axes[n] for n in self.shared]
        self.shape = (
            *(stage.extents[n] for n in self.shared),
            *(stage.result.shape[n] for n in self.positions),
        )
        count = dims.product([stage.extents[n] for n in self.competing])
        self.dtype: DType = dtypes.i32 if dims.prove_lt(count, 1 << 31) is True else dtypes.i64

    def owner_indices(self, indices: Sequence[Expr]) -> list[Expr]:
        """Where in the table of winners an update that is written at `indices` competes."""
        return [*self._before, *(indices[n] for n in self.positions)]


def reduce_in_order(nest: NestBuilder, stage: Scatter, contest: Contest, target: GpuTarget) -> None:
    """Add the kernels that combine updates with their places, each with the earliest first."""
    _Ordered(nest, stage, contest, target).add()


class _Ordered:
    def __init__(self, nest: NestBuilder, stage: Scatter, contest: Contest, target: GpuTarget) -> None:
        assert stage.combine is not None
        self.nest, self.stage, self.contest, self.combine = nest, stage, contest, stage.combine
        self.target = target
        self.shape = [stage.result.shape[n] for n in contest.positions]
        self.extents = [stage.extents[n] for n in contest.competing]
        self.count = dims.product(self.extents)
        self.outer = tuple(stage.axes[n] for n in contest.shared)
        self.others = tuple(stage.extents[n] for n in contest.shared)

    def add(self) -> None:
        """A sort, and the kernel that reduces."""
        rows = Rows(
            *(self.outer, self.others, self.count, (dtypes.u64,), (32, 64), self.target, self._sort_key),
            results=lambda kernel, sort_key: [],
            write=lambda k, kernel, place, values: None,
        )
        sort_keys = in_order(self.nest, self.stage, rows)
        opened = self.nest.opened(self.stage)
        scope, lowering = opened.scope, opened.lowering
        given = scope.pointer("sort_keys", dtypes.u64)
        opened.outer.append(sort_keys.parts[0])
        position, count = build.size_var("position"), scope.size(self.count)
        strides = [scope.size(stride) for stride in contiguous_strides(self.others)]
        start, last = build.flatten(self.outer, strides) * count, count - 1

        def place_of(number: Expr) -> Expr:
            return _upper(build.load(given, start + number))

        k = IRBuilder()
        own = k.let("own", place_of(position))
        places = unflatten(own, [scope.size(extent) for extent in self.shape])
        indices = [lowering.resolve(index, {}) for index in self.stage.indices]
        for number, place in zip(self.contest.positions, places, strict=True):
            indices[number] = place
        element = build.flatten(indices, [scope.size(s) for s in self.nest.places[self.stage.result][1]])
        result = opened.pointers[self.stage.result]
        is_first = build.binary(
            "lor", build.equal(position, 0), build.binary("ne", place_of(build.maximum(position - 1, 0)), own)
        )
        with k.if_(build.logical_and(build.binary("ne", own, _NOWHERE), is_first)):
            total, at = k.let("total", build.load(result, element)), k.let("at", position)
            is_same = build.logical_and(at < count, build.equal(place_of(build.minimum(at, last)), own))
            with k.while_(is_same):
                axes = self._axes(lowering, _lower(build.load(given, start + at)))
                before, update = lowering.statements(lowering.resolve(self.stage.update, axes))
                k.emit(*before)
                k.assign(total, self.combine.combine([total], [update])[0])
                k.assign(at, at + 1)
            k.store(result, element, total)
        apart = [n for n in range(len(self.stage.axes)) if n not in (*self.contest.shared, *self.contest.competing)]
        extents = (*self.others, self.count, *(self.stage.extents[n] for n in apart))
        items = Items((*self.outer, position, *(self.stage.axes[n] for n in apart)), extents, k.body)
        self.nest.emit(scope, opened.outer, items)

    def _axes(self, lowering: Lowering, number: Expr) -> dict[Var, Expr]:
        """The axes that number an update, from its number."""
        found = unflatten(number, [lowering.scope.size(extent) for extent in self.extents])
        return dict(zip((self.stage.axes[n] for n in self.contest.competing), found, strict=True))

    def _sort_key(self, kernel: RowKernel, position: Expr) -> Sequence[Expr]:
        """An update's place, in the upper half, and its number."""
        lowering = kernel.opened.lowering
        axes = self._axes(lowering, position)
        indices = [lowering.resolve(self.stage.indices[n], axes) for n in self.contest.positions]
        place = build.flatten(indices, [kernel.size(stride) for stride in contiguous_strides(self.shape)])
        if self.stage.condition is not None:
            place = build.select(lowering.resolve(self.stage.condition, axes), place, build.index(_NOWHERE))
        upper = build.binary("shl", build.cast(place, dtypes.u64), build.const(32, dtypes.u64))
        return [build.binary("or", upper, build.cast(position, dtypes.u64))]


def _upper(sort_key: Expr) -> Expr:
    return build.cast(build.binary("shr", sort_key, build.const(32, dtypes.u64)), dtypes.i64)


def _lower(sort_key: Expr) -> Expr:
    return build.cast(build.binary("and", sort_key, build.const(_NOWHERE, dtypes.u64)), dtypes.i64)
