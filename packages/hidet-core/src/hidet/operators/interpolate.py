"""Resampling images x[n, c, *space]: to a given size, or at given places.

Coordinates follow torch: pixel centres are at i + 0.5 unless `align_corners`, which makes the centres of the corner
pixels meet. Coordinates are f32 (f64 for f64 images); weights and sums are in the arithmetic type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, number, single
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ShapeError, UnsupportedOp
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import require_dtype, require_rank, widen

# Keys, "Cubic convolution interpolation for digital image processing", 1981, with the coefficient that torch uses.
_CUBIC = -0.75

Tap = tuple[Expr, Expr]


def real(extent: Expr, dtype: DType) -> Expr:
    """An integer as a float."""
    return build.cast(extent, dtype)


def floor_index(x: Expr) -> Expr:
    """The pixel at or before a position."""
    return build.cast(build.unary("floor", x), build.INDEX)


def _ratio(extent: Dim, size: Dim, scale: float | None, align_corners: bool, dtype: DType) -> Expr:
    """Input pixels an output pixel."""
    if align_corners:
        if isinstance(extent, int) and isinstance(size, int):
            return number((extent - 1) / (size - 1) if size > 1 else 0, dtype)
        steps = build.maximum(build.index(size) - 1, 1)
        return real(build.index(extent) - 1, dtype) / real(steps, dtype)
    if scale is not None:
        return number(1 / scale, dtype)
    if isinstance(extent, int) and isinstance(size, int):
        return number(extent / size if size else 0, dtype)
    return real(build.index(extent), dtype) / real(build.index(size), dtype)


def _nearest(i: Expr, extent: Dim, ratio: Expr, align_corners: bool) -> list[Tap]:
    place = floor_index(real(i, ratio.dtype) * ratio)
    return [(build.minimum(place, build.index(extent) - 1), number(1, ratio.dtype))]


def _nearest_exact(i: Expr, extent: Dim, ratio: Expr, align_corners: bool) -> list[Tap]:
    place = floor_index((real(i, ratio.dtype) + 0.5) * ratio)
    return [(build.minimum(place, build.index(extent) - 1), number(1, ratio.dtype))]


def _source(i: Expr, ratio: Expr, align_corners: bool) -> Expr:
    position = real(i, ratio.dtype)
    return position * ratio if align_corners else (position + 0.5) * ratio - 0.5


def _linear(i: Expr, extent: Dim, ratio: Expr, align_corners: bool) -> list[Tap]:
    source = build.maximum(_source(i, ratio, align_corners), 0)
    first = floor_index(source)
    last = build.index(extent) - 1
    weight = source - build.unary("floor", source)
    return [(build.minimum(first, last), 1 - weight), (build.minimum(first + 1, last), weight)]


def cubic_weights(t: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """Weights of the pixels at -1, 0, 1 and 2 for a place `t` in [0, 1) after pixel 0."""

    def near(d: Expr) -> Expr:
        return (d * (_CUBIC + 2) - (_CUBIC + 3)) * d * d + 1

    def far(d: Expr) -> Expr:
        return ((d * _CUBIC - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def _cubic(i: Expr, extent: Dim, ratio: Expr, align_corners: bool) -> list[Tap]:
    source = _source(i, ratio, align_corners)
    first = floor_index(source)
    last = build.index(extent) - 1
    weights = cubic_weights(source - build.unary("floor", source))
    return [
        (build.minimum(build.maximum(first + (shift - 1), 0), last), weight) for shift, weight in enumerate(weights)
    ]


_MODES: dict[str, Callable[[Expr, Dim, Expr, bool], list[Tap]]] = {
    "nearest": _nearest,
    "nearest_exact": _nearest_exact,
    "linear": _linear,
    "cubic": _cubic,
}


NEAREST = ("nearest", "nearest_exact")


def weighted_sum(taps: Sequence[Sequence[Tap]], read: Callable[[Sequence[Expr]], Expr]) -> Expr:
    """The sum of the pixels at every combination of taps, one an axis, each by the product of its weights."""
    if not taps:
        return read(())

    def read_behind(place: Expr) -> Callable[[Sequence[Expr]], Expr]:
        return lambda rest: read((place, *rest))

    terms = [weighted_sum(taps[1:], read_behind(place)) for place, _ in taps[0]]
    if len(terms) == 1:
        return terms[0]
    total = terms[0] * build.cast(taps[0][0][1], terms[0].dtype)
    for term, (_, weight) in zip(terms[1:], taps[0][1:], strict=True):
        total = total + term * build.cast(weight, term.dtype)
    return total


def resampling_taps(
    name: str,
    x: Operand,
    size: Sequence[Dim],
    mode: str,
    align_corners: bool,
    scales: Sequence[float | None] | None,
) -> Callable[[Sequence[Expr]], list[list[Tap]]]:
    """For an output position, the input pixels and weights on each spatial axis of `x`."""
    is_nearest = mode in NEAREST
    require_dtype(name, x, "data" if is_nearest else "float")
    require_rank(name, x, at_least=3)
    if mode not in _MODES:
        raise UnsupportedOp(f"operator {name} has no mode {mode!r}; it has: {', '.join(_MODES)}")
    space, rank = x.shape[2:], x.rank - 2
    if len(size) != rank or (scales is not None and len(scales) != rank):
        raise ShapeError(f"operator {name} takes a size and a scale an axis of {rank}, got {size} and {scales}")
    dtype = dtypes.f64 if x.dtype == dtypes.f64 and not is_nearest else dtypes.f32
    meets = align_corners and not is_nearest
    given = (None,) * rank if scales is None else scales
    ratios = [_ratio(extent, m, s, meets, dtype) for extent, m, s in zip(space, size, given, strict=True)]

    def taps(out: Sequence[Expr]) -> list[list[Tap]]:
        rows = zip(out, space, ratios, strict=True)
        return [_MODES[mode](i, extent, ratio, meets) for i, extent, ratio in rows]

    return taps


def _interpolate(
    x: Operand,
    *,
    size: Sequence[Dim],
    mode: str,
    align_corners: bool,
    scales: Sequence[float | None] | None,
) -> Definition:
    taps = resampling_taps("interpolate", x, size, mode, align_corners, scales)

    def value(n: Expr, c: Expr, *out: Expr) -> Expr:
        found = taps(out)
        if mode in NEAREST:
            return x[(n, c, *[axis[0][0] for axis in found])]
        return build.cast(weighted_sum(found, lambda places: widen(x[(n, c, *places)])), x.dtype)

    return single((x,), compute("interpolate", (*x.shape[:2], *size), value))


SIZE = Attribute("size", doc="output extents of the spatial axes")
RESAMPLING = (
    Attribute("mode", "nearest", "nearest, nearest_exact, linear (bilinear, trilinear) or cubic"),
    Attribute("align_corners", False, "without effect on the nearest modes"),
    Attribute("scales", None, "output over input, one an axis or None; None computes it from the extents"),
)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="interpolate",
        inputs=("x",),
        attributes=(SIZE, *RESAMPLING),
        kind="anchor",
        define=_interpolate,
        layout="follows",
        doc="x[n, c, *space] resampled to [n, c, *size]; torch.nn.functional.interpolate without antialiasing. nearest "
        "modes take any element type, the others floating-point types.",
    ),
)
