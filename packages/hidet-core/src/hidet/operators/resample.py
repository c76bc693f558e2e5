"""Resampling along one axis, with every choice that ONNX Resize knows; several axes are resampled one after the other.

Output position i is carried to a place on the input (`transform`), around which input elements are weighted by a filter
that is 0 beyond `_SUPPORT` elements; antialiasing widens the filter by the factor that the axis shrinks. Places and
weights are f64, so that the choice of the nearest element does not depend on rounding. Filters: Keys, "Cubic
convolution interpolation for digital image processing", 1981, and the triangle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.compute.definition import SUM, Definition, Operand, compute, number, reduce, single
from hidet.dims import Dim, ceildiv, maximum
from hidet.errors import ShapeError, UnsupportedOp, suggestion
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import normalize_axis, require_dtype, widen

_WIDE = dtypes.f64
# Up to so many neighbours are added up in one expression; more are a loop.
_MOST_UNROLLED = 4


def _real(value: Expr | Dim) -> Expr:
    return number(value, _WIDE) if isinstance(value, int) else build.cast(build.index(value), _WIDE)


@dataclass(frozen=True, slots=True, eq=False)
class Resampling:
    """How positions on an axis of `size` elements lie on one of `extent`.

    scale: output over input; None is size / extent. window: the part of the input that is resampled, from 0 (the first
    element) to 1 (the last), of "tf_crop_and_resize" alone.
    """

    extent: Dim
    size: Dim
    scale: float | None
    window: tuple[float, float]

    @property
    def ratio(self) -> Expr:
        """Output elements an input element."""
        if self.scale is not None:
            return number(self.scale, _WIDE)
        if isinstance(self.extent, int) and isinstance(self.size, int):
            return number(self.size / max(self.extent, 1), _WIDE)
        return _real(self.size) / _real(self.extent)

    @property
    def width(self) -> Expr:
        """The extent of the output before it was rounded to a whole number."""
        return _real(self.size) if self.scale is None else number(self.scale, _WIDE) * _real(self.extent)

    @property
    def last(self) -> Expr:
        """The place of the last input element."""
        return _real(self.extent) - 1


def _centred(a: Resampling, i: Expr) -> Expr:
    return (i + 0.5) / a.ratio - 0.5


def _centred_unless_one(a: Resampling, i: Expr) -> Expr:
    return build.select(a.width > 1, _centred(a, i), number(0, _WIDE))


def _symmetric(a: Resampling, i: Expr) -> Expr:
    return _real(a.extent) / 2 * (1 - _real(a.size) / a.width) + _centred(a, i)


def _corners(a: Resampling, i: Expr) -> Expr:
    return build.select(build.equal(a.width, 1), number(0, _WIDE), i * a.last / (a.width - 1))


def _cropped(a: Resampling, i: Expr) -> Expr:
    start, stop = a.window
    step = i * ((stop - start) * a.last) / (a.width - 1)
    middle = a.last * ((stop - start) / 2)
    return build.select(build.equal(a.width, 1), middle, step) + a.last * start


_TRANSFORMS: dict[str, Callable[[Resampling, Expr], Expr]] = {
    "half_pixel": _centred,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _centred_unless_one,
    "align_corners": _corners,
    "asymmetric": lambda a, i: i / a.ratio,
    "tf_half_pixel_for_nn": lambda a, i: (i + 0.5) / a.ratio,
    "tf_crop_and_resize": _cropped,
}

_ROUNDINGS: dict[str, Callable[[Expr], Expr]] = {
    "round_prefer_floor": lambda place: build.unary("ceil", place - 0.5),
    "round_prefer_ceil": lambda place: build.unary("floor", place + 0.5),
    "floor": lambda place: build.unary("floor", place),
    "ceil": lambda place: build.unary("ceil", place),
}


def _triangle(distance: Expr, sharpness: float) -> Expr:
    return build.maximum(1 - distance, 0)


def _cubic(distance: Expr, sharpness: float) -> Expr:
    a, d = sharpness, distance
    near = (d * (a + 2) - (a + 3)) * d * d + 1
    far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    return build.select(d <= 1, near, build.select(d < 2, far, number(0, _WIDE)))


_FILTERS: dict[str, Callable[[Expr, float], Expr]] = {"linear": _triangle, "cubic": _cubic}
_SUPPORT = {"linear": 1, "cubic": 2}


def _known(what: str, given: str, table: Sequence[str]) -> None:
    if given not in table:
        raise UnsupportedOp(
            f"operator resample has no {what} {given!r}; it has: {', '.join(table)}", hint=suggestion(given, table)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Filter:
    """The weighted neighbours of places on an axis.

    sharpness: the cubic filter's coefficient. shrink: None, or output over input where the filter is widened.
    """

    mode: str
    sharpness: float
    shrink: Expr | None
    count: Dim

    def first(self, place: Expr) -> Expr:
        """The first of the `count` neighbours that can have a weight."""
        reach = number(_SUPPORT[self.mode], _WIDE)
        return (
            build.cast(
                build.unary("floor", place - (reach if self.shrink is None else reach / self.shrink)), build.INDEX
            )
            + 1
        )

    def weight(self, place: Expr, neighbour: Expr) -> Expr:
        """The weight of an input element, not normalised."""
        distance = build.unary("abs", build.cast(neighbour, _WIDE) - place)
        return _FILTERS[self.mode](distance if self.shrink is None else distance * self.shrink, self.sharpness)


def _filter(axis: Resampling, mode: str, sharpness: float, antialias: bool) -> _Filter:
    support = _SUPPORT[mode]
    if not antialias:
        return _Filter(mode, sharpness, None, 2 * support)
    if axis.scale is not None:
        shrink = min(axis.scale, 1.0)
        return _Filter(mode, sharpness, number(shrink, _WIDE), math.ceil(2 * support / shrink))
    widest = 1 if axis.size == 0 else ceildiv(axis.extent * (2 * support), axis.size)
    return _Filter(mode, sharpness, build.minimum(axis.ratio, 1.0), maximum(widest, 2 * support))


def _resample(
    x: Operand,
    *,
    axis: int,
    size: Dim,
    scale: float | None,
    mode: str,
    transform: str,
    rounding: str,
    cubic_coefficient: float,
    exclude_outside: bool,
    antialias: bool,
    window: tuple[float, float],
    outside: float | None,
) -> Definition:
    name = "resample"
    require_dtype(name, x, "data" if mode == "nearest" else "float")
    cut = normalize_axis(name, axis, x.rank)
    _known("mode", mode, ("nearest", *_FILTERS))
    _known("transform", transform, tuple(_TRANSFORMS))
    _known("rounding", rounding, tuple(_ROUNDINGS))
    extent = x.shape[cut]
    if extent == 0 and size != 0:
        raise ShapeError(f"operator {name} cannot make {size} elements of an axis without any")
    if scale is not None and scale <= 0:
        raise ShapeError(f"operator {name}: the scale is {scale}, expected a positive number")
    if antialias and mode == "nearest":
        raise UnsupportedOp(f"operator {name} has no antialiasing in mode nearest")
    along = Resampling(extent, size, scale, window)
    last = build.index(extent) - 1

    def clipped(position: Expr) -> Expr:
        return build.minimum(build.maximum(position, 0), last)

    def value(*axes: Expr) -> Expr:
        def read(position: Expr) -> Expr:
            return x[(*axes[:cut], clipped(position), *axes[cut + 1 :])]

        place = _TRANSFORMS[transform](along, build.cast(axes[cut], _WIDE))
        if mode == "nearest":
            result = read(build.cast(_ROUNDINGS[rounding](place), build.INDEX))
        else:
            weights = _filter(along, mode, cubic_coefficient, antialias)
            result = build.cast(_weighted(weights, place, read, along, exclude_outside), x.dtype)
        if outside is None:
            return result
        is_outside = build.binary("lor", place < 0, place > along.last)
        return build.select(is_outside, number(outside, x.dtype), result)

    shape = tuple(size if a == cut else n for a, n in enumerate(x.shape))
    return single((x,), compute(name, shape, value))


def _weighted(
    weights: _Filter, place: Expr, read: Callable[[Expr], Expr], along: Resampling, exclude_outside: bool
) -> Expr:
    """The weighted mean of the neighbours of `place`, in the arithmetic type."""
    first = weights.first(place)

    def weight(tap: Expr) -> Expr:
        found = weights.weight(place, first + tap)
        if not exclude_outside:
            return found
        legal = build.logical_and(first + tap >= 0, first + tap < build.index(along.extent))
        return build.select(legal, found, number(0, _WIDE))

    def total(term: Callable[[Expr], Expr]) -> Expr:
        if not isinstance(weights.count, int) or weights.count > _MOST_UNROLLED:
            return reduce(SUM, (weights.count,), term)
        terms = [term(build.index(tap)) for tap in range(weights.count)]
        return sum(terms[1:], start=terms[0])

    def term(tap: Expr) -> Expr:
        element = widen(read(first + tap))
        return element * build.cast(weight(tap), element.dtype)

    found = total(term)
    # Whole filters that are not widened have weights that add up to 1.
    needs_norm = exclude_outside or weights.shrink is not None
    return found / build.cast(total(weight), found.dtype) if needs_norm else found


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="resample",
        inputs=("x",),
        attributes=(
            Attribute("axis"),
            Attribute("size", doc="extent of the axis in the result"),
            Attribute("scale", None, "output over input; None is size over the extent of x"),
            Attribute("mode", "linear", "nearest, linear or cubic"),
            Attribute("transform", "half_pixel", "coordinate_transformation_mode of ONNX Resize"),
            Attribute("rounding", "round_prefer_floor", "nearest_mode of ONNX Resize"),
            Attribute("cubic_coefficient", -0.75, "-0.5 or -0.75"),
            Attribute("exclude_outside", False, "elements outside weigh nothing, instead of repeating the outermost"),
            Attribute("antialias", False, "widen the filter where the axis shrinks"),
            Attribute("window", (0.0, 1.0), "of tf_crop_and_resize: start and end of the part of the axis"),
            Attribute("outside", None, "value of places outside the axis; None repeats the outermost element"),
        ),
        define=_resample,
        doc="x resampled to `size` elements along one axis; ONNX Resize of one axis. nearest takes any element type, "
        "the others floating-point types.",
    ),
)
