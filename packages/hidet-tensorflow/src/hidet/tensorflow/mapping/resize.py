"""Images sampled at other sizes: every axis by itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.windows import Layout


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "CropAndResize": _crops,
        "ResizeArea": _area,
        "ResizeBicubic": _cubic,
        "ResizeBilinear": lambda e, x, size, **flags: _resized(e, e.cast(x, dtypes.f32), size, "linear", **flags),
        "ResizeNearestNeighbor": lambda e, x, size, **flags: _resized(e, x, size, "nearest", **flags),
    }


def _resized(
    e: Emitter, x: Value, size: Value, mode: str, align_corners: bool = False, half_pixel_centers: bool = False
) -> Value:
    """x[n, h, w, c] of the size [height, width]."""
    layout = Layout(True)
    images = layout.from_images(e, x)
    options = _options(mode, align_corners, half_pixel_centers)
    for axis, extent in zip((2, 3), e.sizes(size, "the size"), strict=True):
        if _is_same(images.tensor.shape[axis], extent):
            continue
        images = e.emit("resample", images, axis=axis, size=extent, mode=mode, **options)
    return layout.to_images(e, images)


def _is_same(old: Dim, new: Dim) -> bool:
    return dims.prove_equal(old, new) is True


def _options(mode: str, align_corners: bool, half_pixel_centers: bool) -> dict[str, Any]:
    """Attributes of core's `resample`."""
    if mode == "nearest":
        if align_corners:
            # Halves go away from zero.
            return {"transform": "align_corners", "rounding": "round_prefer_ceil"}
        transform = "tf_half_pixel_for_nn" if half_pixel_centers else "asymmetric"
        return {"transform": transform, "rounding": "floor"}
    transform = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    return {"transform": transform}


# --- cubic -----------------------------------------------------------------------------------------------------------

_STEPS = 1024
"""TensorFlow looks the weights of a cubic up, in a table with that many places between two pixels."""

_WIDE = dtypes.f64
"""What the table is computed in."""


def _cubic(e: Emitter, x: Value, size: Value, align_corners: bool = False, half_pixel_centers: bool = False) -> Value:
    """Four neighbours an axis, weighted by a cubic (Keys, 1981) whose argument is rounded to the table's places."""
    images = e.cast(x, dtypes.f32)
    for axis, extent in zip((1, 2), e.sizes(size, "the size"), strict=True):
        if not _is_same(images.tensor.shape[axis], extent):
            images = _cubic_axis(e, images, axis, extent, align_corners, half_pixel_centers)
    return images


def _cubic_axis(e: Emitter, x: Value, axis: int, count: Dim, align_corners: bool, is_half_pixel: bool) -> Value:
    f32, i64 = dtypes.f32, dtypes.i64
    extent = x.tensor.shape[axis]
    reaches = (extent - 1, count - 1) if align_corners and count != 1 else (extent, count)
    ratio = e.emit("div", *(e.cast(e.size(reach), f32) for reach in reaches))
    steps = e.cast(e.emit("arange", start=0, stop=count, dtype=i64), f32)
    half = e.constant(0.5 if is_half_pixel else 0.0, f32)
    place = e.emit("sub", e.emit("mul", e.emit("add", steps, half), ratio), half)
    first = e.emit("floor", place)
    offset = e.emit("round", e.emit("mul", e.emit("sub", place, first), e.constant(float(_STEPS), f32)))
    share = e.emit("mul", e.cast(offset, _WIDE), e.constant(1 / _STEPS, _WIDE))
    rest = e.emit("sub", e.constant(1.0, _WIDE), share)
    coefficient = -0.5 if is_half_pixel else -0.75
    distances = ((_far, share), (_near, share), (_near, rest), (_far, rest))
    weights = [e.cast(weigh(e, distance, coefficient), f32) for weigh, distance in distances]
    last = e.size(extent - 1)
    taps = []
    for number in range(4):
        tap = e.emit("add", e.cast(first, i64), e.constant(number - 1, i64))
        inside = e.emit("minimum", e.emit("maximum", tap, e.constant(0, i64)), last)
        if is_half_pixel:
            is_inside = e.emit("equal", tap, inside)
            weights[number] = e.emit("where", is_inside, weights[number], e.constant(0.0, f32))
        taps.append(inside)
    if is_half_pixel:
        total = reduce(lambda a, b: e.emit("add", a, b), weights)
        weights = [e.emit("div", weight, total) for weight in weights]
    shape = tuple(count if number == axis else 1 for number in range(x.tensor.rank))
    terms = [
        e.emit("mul", e.emit("index_select", x, tap, axis=axis), e.reshape(weight, shape))
        for tap, weight in zip(taps, weights, strict=True)
    ]
    return reduce(lambda a, b: e.emit("add", a, b), terms)


def _near(e: Emitter, x: Value, a: float) -> Value:
    """((a + 2) x - (a + 3)) x² + 1: the weight of a neighbour at most 1 away."""
    inner = _line(e, x, a + 2, -(a + 3))
    return _line(e, e.emit("mul", e.emit("mul", inner, x), x), 1.0, 1.0)


def _far(e: Emitter, x: Value, a: float) -> Value:
    """((a y - 5 a) y + 8 a) y - 4 a of y = x + 1: the weight of a neighbour between 1 and 2 away."""
    y = _line(e, x, 1.0, 1.0)
    inner = _line(e, y, a, -5 * a)
    inner = e.emit("add", e.emit("mul", inner, y), e.constant(8 * a, _WIDE))
    return e.emit("add", e.emit("mul", inner, y), e.constant(-4 * a, _WIDE))


def _line(e: Emitter, x: Value, slope: float, start: float) -> Value:
    scaled = x if slope == 1.0 else e.emit("mul", x, e.constant(slope, _WIDE))
    return e.emit("add", scaled, e.constant(start, _WIDE))


# --- area ------------------------------------------------------------------------------------------------------------


def _area(e: Emitter, x: Value, size: Value, align_corners: bool = False) -> Value:
    """Means of the parts of x[n, h, w, c] that each pixel of the result covers: a product for either axis."""
    images = e.cast(x, dtypes.f32)
    for axis, extent in zip((1, 2), e.sizes(size, "the size"), strict=True):
        if not _is_same(images.tensor.shape[axis], extent):
            n, h, w, c = images.tensor.shape
            shares = _shares(e, images.tensor.shape[axis], extent, align_corners)
            rows = e.reshape(images, (n, h, dims.product([w, c])) if axis == 1 else (dims.product([n, h]), w, c))
            images = e.reshape(e.emit("matmul", shares, rows), (n, extent, w, c) if axis == 1 else (n, h, extent, c))
    return images


def _shares(e: Emitter, extent: Dim, count: Dim, align_corners: bool) -> Value:
    """[count, extent]: how much of each pixel is in the means; beyond the last one is the last one again."""
    f32 = dtypes.f32
    reaches = (extent - 1, count - 1) if align_corners and count != 1 else (extent, count)
    ratio = e.emit("div", *(e.cast(e.size(reach), f32) for reach in reaches))
    one = e.constant(1.0, f32)
    steps = e.unsqueeze(e.cast(e.emit("arange", start=0, stop=count, dtype=dtypes.i64), f32), (1,))
    low, high = e.emit("mul", steps, ratio), e.emit("mul", e.emit("add", steps, one), ratio)
    pixel = e.cast(e.emit("arange", start=0, stop=extent, dtype=dtypes.i64), f32)
    is_last = e.emit("equal", pixel, e.cast(e.size(extent - 1), f32))
    end = e.emit("where", is_last, e.constant(float("inf"), f32), e.emit("add", pixel, one))
    covered = e.emit("sub", e.emit("minimum", end, high), e.emit("maximum", pixel, low))
    # A difference of what is large loses digits that a pixel within one needs.
    is_within = e.emit("logical_and", e.emit("less", pixel, low), e.emit("less", high, end))
    covered = e.emit("where", is_within, ratio, e.emit("maximum", covered, e.constant(0.0, f32)))
    return e.emit("div", covered, ratio)


# --- crops -----------------------------------------------------------------------------------------------------------


def _crops(
    e: Emitter,
    x: Value,
    boxes: Value,
    images: Value,
    size: Value,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Value:
    """x[images[b]] in boxes[b, 4] (y1, x1, y2, x2 as parts of the extent less one) -> [b, *size, c], f32."""
    height, width = e.sizes(size, "the size")
    chosen = e.cast(e.emit("index_select", x, images, axis=0, wraps=False), dtypes.f32)
    rows = _places(e, boxes, 0, 2, x.tensor.shape[1], height)
    columns = _places(e, boxes, 1, 3, x.tensor.shape[2], width)
    sampled = _sampled(e, chosen, rows, 1, x.tensor.shape[1], method)
    sampled = _sampled(e, sampled, columns, 2, x.tensor.shape[2], method)
    outside = e.emit(
        "logical_or",
        e.unsqueeze(_outside(e, rows, x.tensor.shape[1]), (2, 3)),
        e.unsqueeze(_outside(e, columns, x.tensor.shape[2]), (1, 3)),
    )
    return e.emit("where", outside, e.constant(extrapolation_value, dtypes.f32), sampled)


def _places(e: Emitter, boxes: Value, low: int, high: int, extent: Dim, count: Dim) -> Value:
    """Where the samples of each box lie on an axis, [b, count]: from its low to its high edge, or in its middle."""
    first, last = (e.unsqueeze(e.emit("select", boxes, axis=1, index=side), (1,)) for side in (low, high))
    reach = e.cast(e.size(extent - 1), dtypes.f32)
    steps = e.cast(e.emit("arange", start=0, stop=count, dtype=dtypes.i64), dtypes.f32)
    if count == 1:
        middle = e.emit("mul", e.emit("mul", e.emit("add", first, last), e.constant(0.5, dtypes.f32)), reach)
        return e.emit("add", middle, steps)
    gaps = e.cast(e.size(count - 1), dtypes.f32)
    step = e.emit("div", e.emit("mul", e.emit("sub", last, first), reach), gaps)
    return e.emit("add", e.emit("mul", first, reach), e.emit("mul", steps, step))


def _outside(e: Emitter, places: Value, extent: Dim) -> Value:
    limit = e.cast(e.size(extent - 1), dtypes.f32)
    below = e.emit("less", places, e.constant(0.0, dtypes.f32))
    return e.emit("logical_or", below, e.emit("greater", places, limit))


def _sampled(e: Emitter, x: Value, places: Value, axis: int, extent: Dim, method: str) -> Value:
    """x[b, ...] at `places`[b, count] of an axis; those outside are some element."""
    limit = e.cast(e.size(extent - 1), dtypes.f32)
    inside = e.emit("minimum", e.emit("maximum", places, e.constant(0.0, dtypes.f32)), limit)
    if method == "nearest":
        rounded = e.emit("floor", e.emit("add", inside, e.constant(0.5, dtypes.f32)))
        return _rows(e, x, rounded, axis)
    low = e.emit("floor", inside)
    high = e.emit("ceil", inside)
    share = e.unsqueeze(e.emit("sub", inside, low), (1, 3) if axis == 2 else (2, 3))
    return e.emit("lerp", _rows(e, x, low, axis), _rows(e, x, high, axis), share)


def _rows(e: Emitter, x: Value, places: Value, axis: int) -> Value:
    """x[b, ...] at whole places[b, count] of an axis after the batch."""
    index = e.cast(places, dtypes.i64)
    front = e.transpose(x, (0, axis, *(n for n in range(1, x.tensor.rank) if n != axis)))
    made = e.emit("gather_nd", front, e.unsqueeze(index, (2,)), batch=1)
    order = list(range(2, x.tensor.rank))
    order.insert(axis - 1, 1)
    return e.transpose(made, (0, *order))
