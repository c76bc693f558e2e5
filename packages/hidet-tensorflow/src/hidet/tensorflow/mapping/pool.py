"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dims, dtypes
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.windows import Layout, layout_of, padded, pads_of, require_plain


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "AvgPool": _average,
        "AvgPool3D": _average,
        "MaxPool": _largest,
        "MaxPool3D": _largest,
        "MaxPoolV2": lambda e, x, ksize, strides, **window: _largest(
            e, x, ksize=e.ints(ksize, "the windows"), strides=e.ints(strides, "the strides"), **window
        ),
        "MaxPoolWithArgmax": _largest_with_place,
    }


def _largest(e: Emitter, x: Value, *, data_format: str = "NHWC", **window: Any) -> Value:
    layout = layout_of(e, data_format)
    images = layout.from_images(e, x)
    dtype = x.tensor.dtype
    images, attrs = _windows(e, images, layout, float("-inf") if dtype.is_float else int(dtype.min), **window)
    return layout.to_images(e, e.emit("max_pool", images, **attrs))


def _average(e: Emitter, x: Value, *, data_format: str = "NHWC", **window: Any) -> Value:
    """What is added around the input does not count."""
    layout = layout_of(e, data_format)
    images = layout.from_images(e, x)
    found, attrs = _windows(e, images, layout, 0, **window)
    if found is not images:
        raise UnsupportedOp(f"{e.operator} with padding that depends on open sizes, of {x.type}")
    return layout.to_images(e, e.emit("avg_pool", images, count_include_pad=False, **attrs))


def _windows(
    e: Emitter,
    images: Value,
    layout: Layout,
    value: float,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    **_: Any,
) -> tuple[Value, dict[str, Any]]:
    """Images with what must be added to them, and attributes of core's pooling."""
    require_plain(e, layout, "ksize", ksize)
    require_plain(e, layout, "strides", strides)
    kernel, stride = layout.space(ksize), layout.space(strides)
    pads = pads_of(e, padding, explicit_paddings, layout, images.tensor.shape[2:], kernel, stride, (1,) * len(kernel))
    images, rest = padded(e, images, pads, value)
    return images, {"kernel": kernel, "stride": stride, "padding": rest}


def _largest_with_place(
    e: Emitter, x: Value, *, Targmax: DType = dtypes.i64, include_batch_in_index: bool = False, **window: Any
) -> tuple[Value, Value]:
    """The place is that in the flat image [h, w, c], or in the flat batch of images."""
    layout = Layout(True)
    images = layout.from_images(e, x)
    found, attrs = _windows(e, images, layout, 0, **window)
    if found is not images:
        raise UnsupportedOp(f"{e.operator} with padding that depends on open sizes, of {x.type}")
    values, place = e.emit_all("max_pool_with_indices", (images,), attrs)
    batch, channels, *space = images.tensor.shape
    channel = e.reshape(e.emit("arange", start=0, stop=channels, dtype=dtypes.i64), (channels, 1, 1))
    place = e.emit("add", e.emit("mul", place, e.size(channels)), channel)
    if include_batch_in_index:
        image = e.reshape(e.emit("arange", start=0, stop=batch, dtype=dtypes.i64), (batch, 1, 1, 1))
        place = e.emit("add", place, e.emit("mul", image, e.size(dims.product([channels, *space]))))
    return layout.to_images(e, values), e.cast(layout.to_images(e, place), Targmax)
