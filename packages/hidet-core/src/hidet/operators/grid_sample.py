"""Sampling images x[n, c, *space] at the places of a grid[n, *out, d], d the number of spatial axes.

Grid coordinates run from -1 to 1 over the image, the last spatial axis first; coordinates follow torch. They and the
weights are in the arithmetic type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dims import Dim
from hidet.errors import ShapeError, UnsupportedOp
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.interpolate import Tap, cubic_weights, floor_index, real, weighted_sum
from hidet.operators.rules import require_dtype, require_rank, require_same_dtype, same_extent, shape_text, widen

Placed = Callable[[Expr], Expr]


def _position(coordinate: Expr, extent: Dim, align_corners: bool) -> Expr:
    """A grid coordinate in pixels."""
    width = real(build.index(extent), coordinate.dtype)
    if align_corners:
        return (coordinate + 1) / 2 * (width - 1)
    return ((coordinate + 1) * width - 1) / 2


def _clipped(position: Expr, extent: Dim) -> Expr:
    return build.minimum(build.maximum(position, 0), real(build.index(extent) - 1, position.dtype))


def _reflected(position: Expr, extent: Dim, align_corners: bool) -> Expr:
    """Mirrored at the centres of the border pixels, or at their outer edges, until inside."""
    width = real(build.index(extent), position.dtype)
    low = 0.0 if align_corners else -0.5
    span = width - 1 if align_corners else width
    distance = build.unary("abs", position - low)
    safe = build.maximum(span, 1)
    rest = build.binary("rem", distance, safe)
    is_even = build.equal(build.binary("rem", build.unary("floor", distance / safe), 2), 0)
    mirrored = build.select(is_even, rest + low, safe - rest + low)
    return build.select(span > 0, mirrored, build.const(0, position.dtype))


def _inside(position: Expr, extent: Dim, padding: str, align_corners: bool) -> Expr:
    """Where a position is read: moved into the image by border and reflection padding, kept near it by zeros."""
    if padding == "border":
        return _clipped(position, extent)
    if padding == "reflection":
        return _clipped(_reflected(position, extent, align_corners), extent)
    # Far places read nothing; bringing them near keeps the conversion to an integer defined.
    return build.minimum(build.maximum(position, -4), real(build.index(extent) + 4, position.dtype))


def _taps(position: Expr, mode: str, placed: Placed) -> list[Tap]:
    """Pixels and weights on one axis; `placed` moves single pixels of the cubic mode into the image."""
    if mode == "nearest":
        nearest = build.cast(build.unary("round", position), build.INDEX)
        return [(nearest, build.const(1, position.dtype))]
    weight = position - build.unary("floor", position)
    first = floor_index(position)
    if mode == "linear":
        return [(first, 1 - weight), (first + 1, weight)]
    shifted = [build.unary("floor", position) + (shift - 1) for shift in range(4)]
    return [(floor_index(placed(tap)), w) for tap, w in zip(shifted, cubic_weights(weight), strict=True)]


_MODES = ("nearest", "linear", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample(x: Operand, grid: Operand, *, mode: str, padding: str, align_corners: bool) -> Definition:
    name = "grid_sample"
    require_dtype(name, x, "float")
    require_same_dtype(name, (x, grid))
    require_rank(name, x, at_least=4, at_most=5)
    require_rank(name, grid, at_least=x.rank, at_most=x.rank)
    for what, value_, known in (("mode", mode, _MODES), ("padding", padding, _PADDINGS)):
        if value_ not in known:
            raise UnsupportedOp(f"operator {name} has no {what} {value_!r}; it has: {', '.join(known)}")
    batch = same_extent(x.shape[0], grid.shape[0], f"operator {name}: images against grids")
    space = x.shape[2:]
    if grid.shape[-1] != len(space):
        raise ShapeError(f"operator {name}: grid of shape {shape_text(grid.shape)} for {len(space)} spatial axes")

    def value(n: Expr, c: Expr, *out: Expr) -> Expr:
        def read(places: Sequence[Expr]) -> Expr:
            # Under every padding: the neighbour after the last pixel has weight 0, and a NaN coordinate is nowhere.
            pixel = widen(x[(n, c, *places)])
            rows = zip(places, space, strict=True)
            legal = build.logical_and(*[c for p, n in rows for c in (p >= 0, p < build.index(n))])
            return build.select(legal, pixel, build.const(0, pixel.dtype))

        taps = []
        for axis, extent in enumerate(space):
            coordinate = widen(grid[(n, *out, len(space) - 1 - axis)])
            position = _position(coordinate, extent, align_corners)

            def placed(tap: Expr, extent: Dim = extent) -> Expr:
                return _inside(tap, extent, padding, align_corners)

            # The cubic mode pads its taps one by one, the others the position.
            taps.append(_taps(position if mode == "cubic" else placed(position), mode, placed))
        return build.cast(weighted_sum(taps, read), x.dtype)

    return single((x, grid), compute(name, (batch, x.shape[1], *grid.shape[1:-1]), value))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="grid_sample",
        inputs=("x", "grid"),
        attributes=(
            Attribute("mode", "linear", "nearest, linear or cubic"),
            Attribute("padding", "zeros", "zeros, border or reflection: what lies outside the image"),
            Attribute("align_corners", False),
        ),
        kind="anchor",
        define=_grid_sample,
        doc="x[n, c, *space] sampled at grid[n, *out, d] -> [n, c, *out]; torch.nn.functional.grid_sample. One "
        "floating-point type.",
    ),
)
