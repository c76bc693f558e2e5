"""Convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.windows import Windows, halves, windows


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {("Conv", 1): conv, ("ConvTranspose", 1): _conv_transpose}


def conv(e: Emitter, x: Value, weight: Value, bias: Value | None = None, group: int = 1, **window: Any) -> Value:
    """Conv; `window` are the attributes of `conv_windows`."""
    found = conv_windows(e, x, weight, **window)
    return e.emit(
        "conv",
        x,
        weight,
        bias,
        stride=found.stride,
        padding=found.padding,
        dilation=found.dilation,
        groups=group,
    )


def conv_windows(
    e: Emitter,
    x: Value,
    weight: Value,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
) -> Windows:
    """Windows of a convolution with `weight[o, i, *kernel]`; `kernel_shape`, where given, says the same."""
    kernel = tuple(extent for extent in weight.tensor.shape[2:] if isinstance(extent, int))
    if len(kernel) != weight.tensor.rank - 2:
        raise UnsupportedOp(f"{e.operator} with a kernel of symbolic extents, {weight.type}")
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise ImportFailed(f"{e.operator}: kernel_shape is {list(kernel_shape)}, but the weight is {weight.type}")
    return windows(e, x, kernel, strides, dilations, pads, auto_pad)


def _conv_transpose(
    e: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    **window: Any,
) -> Value:
    """Where the output's shape is given, or its multiple of the input's (SAME_*), padding is what makes it so."""
    axes = x.tensor.rank - 2
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    found = conv_windows(e, x, weight, auto_pad="NOTSET" if same else auto_pad, **window)
    extra = list((0,) * axes if output_padding is None else output_padding)
    padding = list(found.padding)
    if same or output_shape is not None:
        rule = auto_pad if same else "SAME_LOWER"
        for axis, extent in enumerate(x.tensor.shape[2:]):
            if not isinstance(extent, int):
                raise UnsupportedOp(f"ConvTranspose to a given shape from an axis of symbolic extent {extent}")
            step, reach = found.stride[axis], (found.kernel[axis] - 1) * found.dilation[axis] + 1
            target = extent * step if output_shape is None else output_shape[-axes:][axis]
            total = step * (extent - 1) + extra[axis] + reach - target
            if total < 0:
                extra[axis] -= total
                total = 0
            padding[axis] = halves(e, total, rule)
    return e.emit(
        "conv_transpose",
        x,
        weight,
        bias,
        stride=found.stride,
        padding=tuple(padding),
        output_padding=tuple(extra),
        dilation=found.dilation,
        groups=group,
    )
