"""Patches of images, colours, boxes of several classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.windows import Layout, padded, pads_of


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "AdjustContrastv2": _contrast,
        "AdjustHue": _turned,
        "AdjustSaturation": _saturated,
        "CombinedNonMaxSuppression": boxes_of_classes,
        "ExtractImagePatches": _patches,
        "HSVToRGB": _from_hues,
        "RGBToHSV": _to_hues,
    }


def _patches(
    e: Emitter, x: Value, ksizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str
) -> Value:
    """x[n, h, w, c] -> [n, rows, columns, kernel * c]: the pixels under each window, one after the other."""
    layout = Layout(True)
    images = layout.from_images(e, x)
    kernel, stride, dilation = (layout.space(numbers) for numbers in (ksizes, strides, rates))
    pads = pads_of(e, padding, (), layout, images.tensor.shape[2:], kernel, stride, dilation)
    images, rest = padded(e, images, pads, 0)
    n, c, *space = images.tensor.shape
    columns = e.emit("im2col", images, kernel=kernel, stride=stride, padding=rest, dilation=dilation)
    counts: list[Dim] = []
    for extent, taps, step, spread, (before, after) in zip(space, kernel, stride, dilation, rest, strict=True):
        counts.append(dims.floordiv(extent + before + after - (taps - 1) * spread - 1, step) + 1)
    size = dims.product(kernel)
    parts = e.transpose(e.reshape(columns, (n, c, size, *counts)), (0, 3, 4, 2, 1))
    return e.reshape(parts, (n, *counts, dims.product([size, c])))


# --- colours ---------------------------------------------------------------------------------------------------------


def _contrast(e: Emitter, x: Value, factor: Value) -> Value:
    """Distances to the mean of each channel of an image, multiplied."""
    mean = e.emit("mean", x, axes=(-3, -2), keepdim=True)
    return e.emit("add", e.emit("mul", e.emit("sub", x, mean), e.cast(factor, x.tensor.dtype)), mean)


def _channels(e: Emitter, x: Value) -> list[Value]:
    if x.tensor.shape[-1] != 3:
        raise ImportFailed(f"{e.operator} of {x.type}: expected 3 channels")
    return [e.emit("select", x, axis=-1, index=number) for number in range(3)]


def _to_hues(e: Emitter, x: Value) -> Value:
    """Red, green and blue as hue, saturation and value, all from 0 to 1."""
    dtype = x.tensor.dtype
    red, green, blue = _channels(e, x)
    value = e.emit("amax", x, axes=(-1,))
    span = e.emit("sub", value, e.emit("amin", x, axes=(-1,)))
    zero, sixth = e.constant(0, dtype), e.constant(1 / 6, dtype)
    share = e.emit("mul", e.emit("div", e.constant(1, dtype), span), sixth)

    def toward(a: Value, b: Value, start: float) -> Value:
        return e.emit("add", e.emit("mul", e.emit("sub", a, b), share), e.constant(start, dtype))

    hue = toward(red, green, 4 / 6)
    hue = e.emit("where", e.emit("equal", green, value), toward(blue, red, 2 / 6), hue)
    hue = e.emit("where", e.emit("equal", red, value), toward(green, blue, 0.0), hue)
    hue = e.emit("where", e.emit("greater", span, zero), hue, zero)
    hue = e.emit("where", e.emit("less", hue, zero), e.emit("add", hue, e.constant(1, dtype)), hue)
    saturation = e.emit("where", e.emit("greater", value, zero), e.emit("div", span, value), zero)
    return e.emit("stack", hue, saturation, value, axis=-1)


def _from_hues(e: Emitter, x: Value) -> Value:
    """The inverse of `_to_hues`: each colour is nearest the value around its own place in the circle of hues."""
    dtype = x.tensor.dtype
    hue, saturation, value = _channels(e, x)
    turn = e.emit("mul", hue, e.constant(6, dtype))

    def colour(centre: float, sign: float) -> Value:
        away = e.emit("abs", e.emit("sub", turn, e.constant(centre, dtype)))
        line = e.emit("add", e.emit("mul", away, e.constant(sign, dtype)), e.constant(-1 if sign > 0 else 2, dtype))
        share = e.emit("clamp", line, min=0.0, max=1.0)
        grey = e.emit("sub", e.constant(1, dtype), saturation)
        return e.emit("mul", e.emit("add", grey, e.emit("mul", saturation, share)), value)

    return e.emit("stack", colour(3, 1.0), colour(2, -1.0), colour(4, -1.0), axis=-1)


def _turned(e: Emitter, x: Value, delta: Value) -> Value:
    hue, saturation, value = _channels(e, _to_hues(e, x))
    turned = e.emit("add", hue, e.cast(delta, x.tensor.dtype))
    return _from_hues(e, e.emit("stack", e.emit("sub", turned, e.emit("floor", turned)), saturation, value, axis=-1))


def _saturated(e: Emitter, x: Value, scale: Value) -> Value:
    hue, saturation, value = _channels(e, _to_hues(e, x))
    scaled = e.emit("clamp", e.emit("mul", saturation, e.cast(scale, x.tensor.dtype)), min=0.0, max=1.0)
    return _from_hues(e, e.emit("stack", hue, scaled, value, axis=-1))


# --- boxes -----------------------------------------------------------------------------------------------------------


def boxes_of_classes(
    e: Emitter,
    boxes: Value,
    scores: Value,
    most: Value,
    total: Value,
    threshold: Value,
    least: Value,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
) -> tuple[Value, Value, Value, Value]:
    """Boxes [b, n, 1 or classes, 4] by scores [b, n, classes]: suppressed class by class, then the best of an image.

    Boxes, scores and classes of what is kept, then zeros; and how many an image has.
    """
    f32, i64 = dtypes.f32, dtypes.i64
    batch = scores.tensor.shape[0]
    count, classes, each = (_number(e, size) for size in (*scores.tensor.shape[1:], boxes.tensor.shape[2]))
    shared = each == 1
    by_class = e.transpose(scores, (0, 2, 1))
    if shared:
        grouped, rows = e.squeeze(boxes, (2,)), by_class
    else:
        images = dims.product([batch, classes])
        grouped = e.reshape(e.transpose(boxes, (0, 2, 1, 3)), (images, count, 4))
        rows = e.reshape(by_class, (images, 1, count))
    limits = e.cast(most, i64), e.cast(threshold, f32), e.cast(least, f32)
    places = e.reshape(e.emit("suppress_overlaps", grouped, rows, *limits), (batch, classes, count))
    is_kept = e.emit("greater_equal", places, e.constant(0, i64))
    position = e.emit("maximum", places, e.constant(0, i64))
    found = e.emit("gather", by_class, position, axis=2)
    found = e.emit("where", is_kept, found, e.constant(float("-inf"), f32))
    every = count * classes
    wanted = e.one_int(total, "the number of boxes of an image")
    if pad_per_class:
        wanted = min(wanted, e.one_int(most, "the number of boxes of a class") * classes)
    taken = min(wanted, every)
    best, order = e.emit_all("topk", (e.reshape(found, (batch, every)),), {"k": taken, "axis": -1})
    number = e.emit("trunc_divide", order, e.constant(count, i64))
    place = e.emit("gather", e.reshape(position, (batch, every)), order, axis=1)
    row = place if shared else e.emit("add", e.emit("mul", place, e.constant(classes, i64)), number)
    flat = e.reshape(boxes, (batch, count * each, 4))
    chosen = e.emit("gather_nd", flat, e.unsqueeze(row, (2,)), batch=1)
    if clip_boxes:
        chosen = e.emit("clamp", chosen, min=0.0, max=1.0)
    is_there = e.emit("greater", best, e.constant(float("-inf"), f32))
    zero = e.constant(0.0, f32)
    missing = wanted - taken
    return (
        _filled_up(e, e.emit("where", e.unsqueeze(is_there, (2,)), chosen, zero), missing),
        _filled_up(e, e.emit("where", is_there, best, zero), missing),
        _filled_up(e, e.emit("where", is_there, e.cast(number, f32), zero), missing),
        e.cast(e.emit("sum", is_there, axes=(1,)), dtypes.i32),
    )


def _number(e: Emitter, size: Dim) -> int:
    if not isinstance(size, int):
        raise UnsupportedOp(f"{e.operator} of an open number of boxes or classes, {size}")
    return size


def _filled_up(e: Emitter, x: Value, count: int) -> Value:
    """x[b, n, ...] with that many rows of zeros behind."""
    pads = ((0, 0), (0, count), *((0, 0) for _ in x.tensor.shape[2:]))
    return e.emit("pad", x, pads=pads, mode="constant", value=0) if count else x
