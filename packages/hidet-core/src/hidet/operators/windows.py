"""Windows over the last axes of an input, as convolutions, poolings and columns of patches place them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hidet.dims import Dim, floordiv, prove_le
from hidet.errors import ShapeError
from hidet.graph.operator import Attribute
from hidet.ir import build
from hidet.ir.expr import Expr

Numbers = int | Sequence[int]
Padding = int | Sequence[int] | Sequence[Sequence[int]]
Pairs = tuple[tuple[int, int], ...]

STRIDE = Attribute("stride", 1, "one an axis, or one for all")
PADDING = Attribute("padding", 0, "a pair (before, after) an axis, or one number an axis, or one for all")
DILATION = Attribute("dilation", 1, "one an axis, or one for all")


def per_axis(name: str, what: str, value: Numbers, axes: int, least: int) -> tuple[int, ...]:
    """An attribute with one number an axis; one number alone counts for all. ShapeError otherwise."""
    numbers = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(numbers) == 1:
        numbers = numbers * axes
    if len(numbers) != axes or any(number < least for number in numbers):
        raise ShapeError(f"operator {name}: {what} is {value}: expected {axes} numbers of at least {least}")
    return numbers


def side_pairs(name: str, value: Padding, axes: int) -> Pairs:
    """Padding as a pair (before, after) for each axis; a single number stands for both sides."""
    entries: Sequence[int | Sequence[int]] = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(entries) == 1:
        entries = tuple(entries) * axes
    pairs = tuple((entry, entry) if isinstance(entry, int) else (entry[0], entry[-1]) for entry in entries)
    if len(pairs) != axes or any(isinstance(e, Sequence) and len(e) != 2 for e in entries):
        raise ShapeError(f"operator {name}: padding is {value}: expected {axes} pairs (before, after)")
    return pairs


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows lie on the spatial axes of one input.

    lead: extents before the spatial axes. space: those of the spatial axes. counts: how many windows an axis has.
    overhang: whether a window may reach past (start, end) of each axis.
    """

    lead: tuple[Dim, ...]
    space: tuple[Dim, ...]
    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    pads: Pairs
    dilations: tuple[int, ...]
    counts: tuple[Dim, ...]
    overhang: tuple[tuple[bool, bool], ...]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Shape of a result with an element a window."""
        return (*self.lead, *self.counts)

    @property
    def reaches(self) -> list[Dim]:
        """Input positions that a window spans, an axis."""
        return [(taps - 1) * spread + 1 for taps, spread in zip(self.kernel, self.dilations, strict=True)]

    @property
    def rooms(self) -> list[Dim]:
        """How far the first window may move, an axis; negative where it does not fit."""
        rows = zip(self.space, self.reaches, self.pads, strict=True)
        return [extent + before + after - reach for extent, reach, (before, after) in rows]

    def require_fit(self, name: str) -> None:
        """ShapeError where a window provably does not fit an axis with its padding."""
        for room, taps, extent in zip(self.rooms, self.kernel, self.space, strict=True):
            if prove_le(room, -1):
                what = f"operator {name}: windows of {taps} do not fit an axis of extent {extent} with its padding"
                raise ShapeError(what)

    def places(self, out: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Input positions under `taps` of the windows at `out`; they may lie outside."""
        rows = zip(out, taps, self.strides, self.dilations, self.pads, strict=True)
        return [i * step + tap * spread - before for i, tap, step, spread, (before, _) in rows]

    def legal(self, places: Sequence[Expr]) -> Expr:
        """Whether positions lie on the input."""
        return _inside(places, self.space, self.overhang)

    def above(self, places: Sequence[Expr], taps: Sequence[Expr]) -> tuple[list[Expr], Expr]:
        """The windows that have `taps` on positions of the input, and whether there are such."""
        rows = zip(places, taps, self.dilations, self.pads, strict=True)
        reached = [place + before - tap * spread for place, tap, spread, (before, _) in rows]
        numbers = [place // step for place, step in zip(reached, self.strides, strict=True)]
        on_grid = [build.equal(place % step, 0) for place, step in zip(reached, self.strides, strict=True) if step > 1]
        return numbers, build.logical_and(_inside(numbers, self.counts, [(True, True)] * len(numbers)), *on_grid)


def windows_of(
    name: str, shape: Sequence[Dim], kernel: Sequence[Dim], stride: Numbers, padding: Padding, dilation: Numbers
) -> Windows:
    """The windows over the last axes of `shape`. ShapeError for attributes of another number of axes than `kernel`."""
    rank, split = len(kernel), len(shape) - len(kernel)
    strides, dilations = per_axis(name, "stride", stride, rank, 1), per_axis(name, "dilation", dilation, rank, 1)
    pads = side_pairs(name, padding, rank)
    overhang = tuple((before > 0, after > 0) for before, after in pads)
    lead, space = tuple(shape[:split]), tuple(shape[split:])
    windows = Windows(lead, space, tuple(kernel), strides, pads, dilations, (), overhang)
    counts = [floordiv(room, step) + 1 for room, step in zip(windows.rooms, strides, strict=True)]
    return replace(windows, counts=tuple(counts))


def _inside(positions: Sequence[Expr], extents: Sequence[Dim], may_miss: Sequence[tuple[bool, bool]]) -> Expr:
    """Whether every position lies on its axis; only sides that can be missed are tested."""
    checks: list[Expr] = []
    for position, extent, (low, high) in zip(positions, extents, may_miss, strict=True):
        if low:
            checks.append(position >= 0)
        if high:
            checks.append(position < build.index(extent))
    return build.logical_and(*checks)
