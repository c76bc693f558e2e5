"""Pooling to a given output size: output position i covers the input from floor(i * n / m) to ceil((i + 1) * n / m).

Where n is a multiple of m all windows are alike; otherwise they differ by up to one position, which is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet.compute.definition import ARGMAX, MAX, SUM, Definition, Operand, compute, reduce, single
from hidet.dims import Dim, ceildiv, floordiv, minimum, mod
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import arithmetic_dtype, require_dtype, require_rank, widen


@dataclass(frozen=True, slots=True)
class Shares:
    """How the spatial axes of an input are shared among output positions.

    lead: extents before the spatial axes. space, result: extents of input and output.
    taps: the most input positions of one output position, an axis; is_even: whether all have as many.
    """

    lead: tuple[Dim, ...]
    space: tuple[Dim, ...]
    result: tuple[Dim, ...]
    taps: tuple[Dim, ...]
    is_even: tuple[bool, ...]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Shape of the output."""
        return (*self.lead, *self.result)

    def ranges(self, out: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
        """First input position and number of positions, an axis, of the output position `out`."""
        found = []
        for i, extent, want, taps, even in zip(out, self.space, self.result, self.taps, self.is_even, strict=True):
            width, count = build.index(extent), build.index(want)
            first = i * build.index(taps) if even else (i * width) // count
            number = build.index(taps) if even else ((i + 1) * width + (count - 1)) // count - first
            found.append((first, number))
        return found

    def legal(self, ranges: Sequence[tuple[Expr, Expr]], taps: Sequence[Expr]) -> Expr:
        """Whether `taps` are within `ranges`."""
        rows = zip(taps, ranges, self.is_even, strict=True)
        return build.logical_and(*[tap < number for tap, (_, number), even in rows if not even])


def shares_of(name: str, x: Operand, size: Sequence[Dim | None]) -> Shares:
    """How the last axes of `x` are shared among `size` output positions; a size None keeps the extent."""
    require_rank(name, x, at_least=len(size))
    split = x.rank - len(size)
    space = x.shape[split:]
    result = tuple(extent if want is None else want for extent, want in zip(space, size, strict=True))
    even = tuple(want != 0 and mod(extent, want) == 0 for extent, want in zip(space, result, strict=True))
    taps = tuple(
        floordiv(extent, want) if is_even else _most_taps(extent, want)
        for extent, want, is_even in zip(space, result, even, strict=True)
    )
    return Shares(x.shape[:split], space, result, taps, even)


def _most_taps(extent: Dim, want: Dim) -> Dim:
    if want == 0:
        return 0
    if isinstance(extent, int) and isinstance(want, int):
        # Shares repeat with the period of n * i mod m, so the first m starts show every width.
        return max(-((-(i + 1) * extent) // want) - (i * extent) // want for i in range(want))
    return minimum(extent, ceildiv(extent, want) + 1)


def _adaptive_avg_pool(x: Operand, *, size: Sequence[Dim | None]) -> Definition:
    require_dtype("adaptive_avg_pool", x, "float")
    shares = shares_of("adaptive_avg_pool", x, size)
    split = len(shares.lead)

    def value(*axes: Expr) -> Expr:
        lead, ranges = axes[:split], shares.ranges(axes[split:])

        def term(*taps: Expr) -> Expr:
            element = widen(x[(*lead, *[first + tap for (first, _), tap in zip(ranges, taps, strict=True)])])
            return build.select(shares.legal(ranges, taps), element, build.const(0, element.dtype))

        count: Expr = build.index(1)
        for _, number in ranges:
            count = count * number
        total = reduce(SUM, shares.taps, term)
        return build.cast(total / build.cast(count, total.dtype), x.dtype)

    return single((x,), compute("adaptive_avg_pool", shares.shape, value))


def _adaptive_max_pool(x: Operand, *, size: Sequence[Dim | None]) -> Definition:
    name = "adaptive_max_pool"
    require_dtype(name, x, "number")
    shares = shares_of(name, x, size)
    split, wide = len(shares.lead), arithmetic_dtype(x.dtype)
    strides = contiguous_strides(shares.space)

    def windowed(
        axes: Sequence[Expr], element: Callable[[Expr, Sequence[Expr], Expr], Expr | tuple[Expr, ...]]
    ) -> Callable[..., Expr | tuple[Expr, ...]]:
        lead, ranges = axes[:split], shares.ranges(axes[split:])

        def at(*taps: Expr) -> Expr | tuple[Expr, ...]:
            places = [first + tap for (first, _), tap in zip(ranges, taps, strict=True)]
            return element(widen(x[(*lead, *places)]), places, shares.legal(ranges, taps))

        return at

    def largest(element: Expr, places: Sequence[Expr], legal: Expr) -> Expr:
        return build.select(legal, element, MAX.identity((wide,))[0])

    def with_position(element: Expr, places: Sequence[Expr], legal: Expr) -> tuple[Expr, ...]:
        nothing, last = ARGMAX.identity((wide, build.INDEX))
        return build.select(legal, element, nothing), build.select(legal, build.flatten(places, strides), last)

    value = compute(
        name, shares.shape, lambda *axes: build.cast(reduce(MAX, shares.taps, windowed(axes, largest)), x.dtype)
    )
    index = compute(
        "indices", shares.shape, lambda *axes: reduce(ARGMAX, shares.taps, windowed(axes, with_position), 1)
    )
    return Definition((x,), (value, index), (value.result, index.result))


_SIZE = Attribute("size", doc="output extents of the last axes; None keeps an extent")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="adaptive_avg_pool",
        inputs=("x",),
        attributes=(_SIZE,),
        kind="anchor",
        define=_adaptive_avg_pool,
        family="pooling",
        layout="follows",
        doc="Average of each share of the last axes; torch adaptive_avg_pool1d to 3d. Floating-point types.",
    ),
    OperatorSpec(
        name="adaptive_max_pool",
        inputs=("x",),
        attributes=(_SIZE,),
        kind="anchor",
        define=_adaptive_max_pool,
        family="pooling",
        layout="follows",
        doc="Largest of each share of the last axes, and as second result its i64 row-major position on them; "
        "torch adaptive_max_pool1d to 3d. Numbers.",
    ),
)
