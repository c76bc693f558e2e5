"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.dims import Dim, floordiv
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.convolution.default": _convolution,
        "aten.convolution_backward.default": _convolution_backward,
    }


def _per_axis(numbers: Sequence[int], axes: int) -> tuple[int, ...]:
    return tuple(numbers) * axes if len(numbers) == 1 else tuple(numbers)


def _convolution(
    e: TorchEmitter,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    if 0 in e.result.shape:
        # Of images without elements torch makes results without channels, whatever the filters say.
        return e.emit("full", shape=e.result.shape, value=0, dtype=e.result.dtype)
    axes = weight.tensor.rank - 2
    window = {
        "stride": _per_axis(stride, axes),
        "padding": _per_axis(padding, axes),
        "dilation": _per_axis(dilation, axes),
        "groups": groups,
    }
    image = x if x.tensor.rank == axes + 2 else e.unsqueeze(x, (0,))
    if transposed:
        result = e.emit("conv_transpose", image, weight, bias, output_padding=_per_axis(output_padding, axes), **window)
    else:
        result = e.emit("conv", image, weight, bias, **window)
    return e.reshape(result, e.result.shape)


def _convolution_backward(
    e: TorchEmitter,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[Dim] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """Gradients of x, weight and bias; each is a convolution again (Dumoulin and Visin, 2016, chapter 4)."""
    axes = weight.tensor.rank - 2
    if x.tensor.rank != axes + 2:
        raise UnsupportedOp("the gradient of a convolution without a batch axis")
    steps, pads, spread = (_per_axis(numbers, axes) for numbers in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        window = {"stride": steps, "padding": pads, "dilation": spread, "groups": groups}
        if transposed:
            of_x = e.emit("conv", grad, weight, None, **window)
        else:
            extra = _uncovered(grad, x, weight, steps, pads, spread)
            of_x = e.emit("conv_transpose", grad, weight, None, output_padding=extra, **window)
    if output_mask[1]:
        image, filters = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(e, image, filters, weight, steps, pads, spread, groups)
    if output_mask[2]:
        of_bias = e.emit("sum", grad, axes=(0, *range(2, axes + 2)), keepdim=False)
    return of_x, of_weight, of_bias


def _uncovered(
    grad: Value, x: Value, weight: Value, steps: Sequence[int], pads: Sequence[int], spread: Sequence[int]
) -> tuple[int, ...]:
    """How far x reaches beyond the last window on each axis: what strides skipped."""
    extra: list[int] = []
    shapes = zip(grad.tensor.shape[2:], x.tensor.shape[2:], weight.tensor.shape[2:], steps, pads, spread, strict=True)
    for windows, extent, taps, step, pad, dilation in shapes:
        rest = extent - ((windows - 1) * step - 2 * pad + (taps - 1) * dilation + 1)
        if not isinstance(rest, int):
            raise UnsupportedOp(f"the gradient of a strided convolution over an axis of symbolic extent {extent}")
        extra.append(rest)
    return tuple(extra)


def _weight_gradient(
    e: TorchEmitter,
    image: Value,
    grad: Value,
    weight: Value,
    steps: Sequence[int],
    pads: Sequence[int],
    spread: Sequence[int],
    groups: int,
) -> Value:
    """Correlation of image and grad over space and batch, in place of channels; strides become dilations."""
    rank = weight.tensor.rank
    swapped = (1, 0, *range(2, rank))
    filters, width = grad.tensor.shape[1], weight.tensor.shape[1]
    if groups == 1:
        source = e.transpose(image, swapped)
    else:
        batch, channels, *space = image.tensor.shape
        grouped = e.reshape(image, (batch, groups, floordiv(channels, groups), *space))
        ordered = e.transpose(grouped, (2, 1, 0, *range(3, rank + 1)))
        source = e.reshape(ordered, (width, batch * groups, *space))
    kernel = e.transpose(grad, swapped)
    product = e.emit(
        "conv", source, kernel, None, stride=tuple(spread), padding=tuple(pads), dilation=tuple(steps), groups=groups
    )
    # Strides may leave a rim of the image unread, for which correlation gives surplus taps.
    stops = (width, filters, *weight.tensor.shape[2:])
    cut = e.emit("slice", product, starts=(0,) * rank, stops=stops, steps=None)
    return e.transpose(cut, swapped)
