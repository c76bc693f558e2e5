"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dims
from hidet.dims import Dim
from hidet.errors import ImportFailed, ShapeError, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.windows import Layout, Pairs, layout_of, padded, pads_of, require_plain


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "Conv2D": _conv,
        "Conv2DBackpropInput": _transposed,
        "Conv3D": _conv,
        "Conv3DBackpropInputV2": _transposed,
        "DepthwiseConv2dNative": _depthwise,
    }


def _kernel(e: Emitter, filters: Value) -> tuple[int, ...]:
    """Spatial extents of filters[*space, …, …]."""
    kernel = tuple(extent for extent in filters.tensor.shape[:-2] if isinstance(extent, int))
    if len(kernel) != filters.tensor.rank - 2:
        raise UnsupportedOp(f"{e.operator} with filters of symbolic extents, {filters.type}")
    return kernel


def _conv(e: Emitter, x: Value, filters: Value, **window: Any) -> Value:
    """filters[*space, c / groups, o]."""
    rank = filters.tensor.rank
    weight = e.transpose(filters, (rank - 1, rank - 2, *range(rank - 2)))
    return convolved(e, x, weight, _kernel(e, filters), None, **window)


def _depthwise(e: Emitter, x: Value, filters: Value, **window: Any) -> Value:
    """filters[*space, c, m]: channel c gives channels c * m to c * m + m - 1."""
    *kernel, channels, times = filters.tensor.shape
    weight = e.transpose(filters, (2, 3, 0, 1))
    weight = e.reshape(weight, (dims.product([channels, times]), 1, *kernel))
    return convolved(e, x, weight, _kernel(e, filters), channels, **window)


def convolved(
    e: Emitter,
    x: Value,
    weight: Value,
    kernel: Sequence[int],
    groups: Dim | None,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (),
    **_: Any,
) -> Value:
    """A convolution of images as the model has them. weight[o, c / groups, *space]; groups: None where it tells.

    Other attributes as of TensorFlow's convolutions.
    """
    layout = layout_of(e, data_format)
    dilations = dilations or (1,) * len(strides)
    require_plain(e, layout, "strides", strides)
    require_plain(e, layout, "dilations", dilations)
    stride, dilation = layout.space(strides), layout.space(dilations)
    if padding == "VALID":
        x, pads = _without_pad(e, x, layout)
        images = layout.from_images(e, x)
    else:
        images = layout.from_images(e, x)
        pads = pads_of(e, padding, explicit_paddings, layout, images.tensor.shape[2:], kernel, stride, dilation)
    images, rest = padded(e, images, pads, 0)
    count = dims.floordiv(images.tensor.shape[1], weight.tensor.shape[1]) if groups is None else groups
    if not isinstance(count, int):
        raise ShapeError(f"{e.operator} of {x.type}: the number of channels is open")
    made = e.emit("conv", images, weight, None, stride=stride, padding=rest, dilation=dilation, groups=count)
    return layout.to_images(e, made)


def _without_pad(e: Emitter, x: Value, layout: Layout) -> tuple[Value, Pairs]:
    """x before zeros were added around its spatial axes, and how many: the convolution adds them itself."""
    none: Pairs = ((0, 0),) * (x.tensor.rank - 2)
    node = e.made_by(x, "pad")
    if node is None or node.attrs["mode"] != "constant" or node.attrs["value"] != 0:
        return x, none
    pads = node.attrs["pads"]
    outer = (pads[0], pads[-1] if layout.is_last else pads[1])
    space = tuple(pads[1:-1] if layout.is_last else pads[2:])
    is_plain = all(isinstance(number, int) and number >= 0 for pair in space for number in pair)
    return (node.values[0], space) if is_plain and all(pair == (0, 0) for pair in outer) else (x, none)


def _transposed(
    e: Emitter,
    sizes: Value,
    filters: Value,
    x: Value,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (),
    **_: Any,
) -> Value:
    """filters[*space, o, c]; sizes: the shape of the result, with or without batch and channels."""
    layout = layout_of(e, data_format)
    dilations = dilations or (1,) * len(strides)
    require_plain(e, layout, "strides", strides)
    kernel = _kernel(e, filters)
    axes = len(kernel)
    stride, dilation = layout.space(strides), layout.space(dilations)
    wanted: Sequence[Dim] = e.sizes(sizes, "the sizes")
    space = wanted if len(wanted) == axes else wanted[1:-1] if layout.is_last else wanted[2:]
    if len(space) != axes:
        raise ImportFailed(f"{e.operator}: {len(wanted)} sizes, expected {axes} or {axes + 2}")
    images = layout.from_images(e, x)
    pads = pads_of(e, padding, explicit_paddings, layout, space, kernel, stride, dilation)
    given, extra = [], []
    rows = zip(images.tensor.shape[2:], space, kernel, stride, dilation, pads, strict=True)
    for extent, result, taps, step, spread, (before, after) in rows:
        if padding == "SAME":
            # The windows over the result are as many as the axis has elements, whatever its extent.
            total = dims.maximum(0, (extent - 1) * step + (taps - 1) * spread + 1 - result)
            before, after = dims.floordiv(total, 2), total - dims.floordiv(total, 2)
        more = result - ((extent - 1) * step + (taps - 1) * spread + 1 - before - after)
        given.append((_number(e, before), _number(e, after)))
        extra.append(_number(e, more))
    rank = filters.tensor.rank
    weight = e.transpose(filters, (rank - 1, rank - 2, *range(rank - 2)))
    made = e.emit(
        "conv_transpose",
        images,
        weight,
        None,
        stride=stride,
        padding=tuple(given),
        output_padding=tuple(extra),
        dilation=dilation,
    )
    return layout.to_images(e, made)


def _number(e: Emitter, size: Dim) -> int:
    if not isinstance(size, int):
        raise UnsupportedOp(f"{e.operator} to a shape whose padding, {size}, depends on open sizes")
    return size
