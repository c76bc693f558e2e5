"""Convolutions with any order of axes, strides, padding, dilations, groups; batch norms with given statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.mapping.move import padded


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "batch_norm_inference": _batch_norm,
        "convolution": _convolution,
        "dynamic_conv": lambda e, x, w, pads, **attributes: _convolution(
            e, x, w, **{**attributes, "padding": e.array_of(pads, "the padding")}
        ),
    }


def _pairs(e: Emitter, padding: Any, count: int) -> list[tuple[int, int]]:
    flat = e.whole(() if padding is None else numpy.asarray(padding).reshape(-1), "the padding")
    if not flat:
        return [(0, 0)] * count
    if len(flat) != 2 * count:
        raise ImportFailed(f"{e.operator}: {len(flat)} numbers of padding, expected {2 * count}")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _numbers(e: Emitter, attribute: Any, what: str, count: int) -> tuple[int, ...]:
    found = e.whole(attribute, what)
    if found and (len(found) != count or min(found) < 1):
        raise ImportFailed(f"{what} of {e.operator} are {list(found)}, expected {count} numbers from 1 on")
    return found or (1,) * count


def _order(e: Emitter, rank: int, batch: Any, feature: Any, space: Any) -> tuple[int, ...]:
    """The places of batch, channels and space among the axes of a tensor of that rank."""
    order = (int(batch), int(feature), *e.whole(space, "the spatial dimensions"))
    if sorted(order) != list(range(rank)):
        raise ImportFailed(f"{e.operator} has the dimensions {list(order)}, expected those of a tensor of rank {rank}")
    return order


def _convolution(
    e: Emitter,
    x: Value,
    w: Value,
    *,
    input_batch_dimension: Any,
    input_feature_dimension: Any,
    input_spatial_dimensions: Any,
    kernel_input_feature_dimension: Any,
    kernel_output_feature_dimension: Any,
    kernel_spatial_dimensions: Any,
    output_batch_dimension: Any,
    output_feature_dimension: Any,
    output_spatial_dimensions: Any,
    window_strides: Any = None,
    padding: Any = None,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    window_reversal: Any = None,
    feature_group_count: Any = 1,
    batch_group_count: Any = 1,
    **_: Any,
) -> Value:
    rank = x.tensor.rank
    images = e.transpose(x, _order(e, rank, input_batch_dimension, input_feature_dimension, input_spatial_dimensions))
    kernel_order = (kernel_output_feature_dimension, kernel_input_feature_dimension, kernel_spatial_dimensions)
    filters = e.transpose(w, _order(e, w.tensor.rank, *kernel_order))
    space = rank - 2
    dtype = e.result.dtype
    images, filters = e.cast(images, dtype), e.cast(filters, dtype)
    strides = _numbers(e, window_strides, "the strides", space)
    spread = _numbers(e, lhs_dilation, "the dilations of the input", space)
    dilation = _numbers(e, rhs_dilation, "the dilations", space)
    pads = _pairs(e, padding, space)
    reversal = e.whole(window_reversal, "the reversal")
    flipped = [2 + axis for axis, flag in enumerate(reversal) if flag]
    if flipped:
        filters = e.emit("flip", filters, axes=tuple(flipped))
    groups, parts = int(feature_group_count), int(batch_group_count)
    if groups < 1 or parts < 1:
        raise ImportFailed(f"{e.operator} with {groups} groups of features and {parts} of the batch")
    if parts > 1:
        images, groups = _batch_as_channels(e, images, parts, groups), parts
    if space == 0:
        made = e.emit("matmul", images, e.transpose(filters, (1, 0)))
    elif any(step > 1 for step in spread):
        made = _spread_out(e, images, filters, strides, pads, spread, dilation, groups)
    else:
        made = _plain(e, images, filters, strides, pads, dilation, groups)
    order = _order(e, rank, output_batch_dimension, output_feature_dimension, output_spatial_dimensions)
    return e.transpose(made, [order.index(axis) for axis in range(rank)])


def _batch_as_channels(e: Emitter, images: Value, parts: int, groups: int) -> Value:
    """Parts of the batch side by side as channels: each has filters of its own, as groups of channels have."""
    batch, channels, *space = images.tensor.shape
    if groups != 1 or not isinstance(batch, int) or batch % parts:
        raise UnsupportedOp(f"{e.operator} with {parts} groups of a batch of {batch}")
    apart = e.transpose(e.reshape(images, (parts, batch // parts, channels, *space)), (1, 0, *range(2, 3 + len(space))))
    return e.reshape(apart, (batch // parts, parts * channels, *space))


def _plain(
    e: Emitter,
    images: Value,
    filters: Value,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    if any(a < 0 or b < 0 for a, b in pads):
        images = _grown(e, images, pads, (1,) * len(pads))
        pads = [(0, 0)] * len(pads)
    attrs = {"stride": tuple(strides), "padding": tuple(pads), "dilation": tuple(dilation), "groups": groups}
    return e.emit("conv", images, filters, **attrs)


def _grown(e: Emitter, images: Value, pads: Sequence[tuple[int, int]], spread: Sequence[int]) -> Value:
    low, high = ([0, 0, *(pair[side] for pair in pads)] for side in (0, 1))
    return padded(e, images, e.constant(0, images.tensor.dtype), low, high, [0, 0, *(step - 1 for step in spread)])


def _spread_out(
    e: Emitter,
    images: Value,
    filters: Value,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    spread: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """With zeros between the elements of the input: the transpose of a convolution, where its windows do not step."""
    reach = [(taps - 1) * step for taps, step in zip(filters.tensor.shape[2:], dilation, strict=True)]
    before = [r - low for r, (low, _) in zip(reach, pads, strict=True)]
    more = [high - low for low, high in pads]
    numbers = [n for n in (*before, *more) if isinstance(n, int)]
    fits = len(numbers) == 2 * len(pads) and all(isinstance(n, int) and n >= 0 for n in before)
    fits = fits and all(0 <= extra < step for extra, step in zip(more, spread, strict=True))
    if any(step != 1 for step in strides) or not fits:
        return _plain(e, _grown(e, images, pads, spread), filters, strides, [(0, 0)] * len(pads), dilation, groups)
    # conv_transpose adds where conv gathers: its filters are reversed and their channels exchanged.
    outputs, inputs, *taps = filters.tensor.shape
    turned = e.emit("flip", filters, axes=tuple(range(2, filters.tensor.rank)))
    if groups > 1:
        turned = e.reshape(turned, (groups, outputs // groups, inputs, *taps))
        turned = e.transpose(turned, (0, 2, 1, *range(3, turned.tensor.rank)))
        turned = e.reshape(turned, (groups * inputs, outputs // groups, *taps))
    else:
        turned = e.transpose(turned, (1, 0, *range(2, turned.tensor.rank)))
    return e.emit(
        "conv_transpose",
        images,
        turned,
        stride=tuple(spread),
        padding=tuple(before),
        output_padding=tuple(more),
        dilation=tuple(dilation),
        groups=groups,
    )


def _batch_norm(
    e: Emitter,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    epsilon: Any,
    feature_index: Any,
    **_: Any,
) -> Value:
    axis = e.axis(feature_index, x.tensor.rank, "the feature index")
    order = [axis, *(n for n in range(x.tensor.rank) if n != axis)]
    order = [order[1], axis, *order[2:]] if x.tensor.rank > 1 else order
    images = e.transpose(x, order)
    made = e.emit("batch_norm", images, mean, variance, scale, offset, eps=float(epsilon))
    return e.transpose(made, [order.index(n) for n in range(x.tensor.rank)])
