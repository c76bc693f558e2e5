"""Convolutions over one, two or three spatial axes, and their transposes.

Images are [n, c, *space], as in torch and ONNX; which memory layout they get is decided later, by strides. Products are
accumulated in f32 for f16 and bf16 and rounded once, after the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hidet import dims
from hidet.compute.definition import SUM, Definition, Operand, compute, reduce, single
from hidet.dims import Dim
from hidet.errors import ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Value
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.precision import FP32_PRECISION, require_precision
from hidet.operators.rules import (
    present,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    shape_text,
    widen,
)
from hidet.operators.transposed_conv import Window, as_convolution
from hidet.operators.windows import (
    DILATION,
    PADDING,
    STRIDE,
    Numbers,
    Padding,
    Windows,
    per_axis,
    side_pairs,
    windows_of,
)


def _checked(name: str, x: Operand, weight: Operand, bias: Operand | None) -> int:
    """The number of spatial axes."""
    require_rank(name, x, at_least=3)
    require_rank(name, weight, at_least=x.rank, at_most=x.rank)
    for operand in present(x, weight, bias):
        require_dtype(name, operand, "number")
    require_same_dtype(name, present(x, weight, bias))
    return x.rank - 2


def _require_bias(name: str, bias: Operand | None, channels: Dim) -> None:
    if bias is not None:
        require_rank(name, bias, at_least=1, at_most=1)
        same_extent(bias.shape[0], channels, f"operator {name}: bias against output channels")


def _require_divisible(name: str, what: str, channels: Dim, groups: int) -> None:
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise ShapeError(f"operator {name}: {channels} {what} do not divide into {groups} groups")


def _conv(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    fp32_precision: str,
) -> Definition:
    require_precision("conv", fp32_precision)
    _checked("conv", x, weight, bias)
    channels = x.shape[1]
    filters, group_width, *kernel = weight.shape
    windows = windows_of("conv", x.shape, kernel, stride, padding, dilation)
    _require_divisible("conv", "input channels", channels, groups)
    _require_divisible("conv", "filters", filters, groups)
    same_extent(
        group_width * groups, channels, f"operator conv: weight {shape_text(weight.shape)} against channels of x"
    )
    _require_bias("conv", bias, filters)
    windows.require_fit("conv")
    group_filters = build.index(filters // groups)
    in_group = None if groups == 1 else lambda o, c: (o // group_filters) * build.index(group_width) + c
    return _sums_of_windows("conv", x, weight, bias, windows, channel_of=in_group)


def _conv_padded_channels(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
) -> Definition:
    name = "conv_padded_channels"
    _checked(name, x, weight, bias)
    channels = x.shape[1]
    filters, width, *kernel = weight.shape
    if dims.prove_le(channels, width) is False:
        raise ShapeError(f"operator {name}: x has {channels} channels, more than weight {shape_text(weight.shape)}")
    windows = windows_of(name, x.shape, kernel, stride, padding, dilation)
    _require_bias(name, bias, filters)
    windows.require_fit(name)
    return _sums_of_windows(name, x, weight, bias, windows, stored=channels)


def _sums_of_windows(
    name: str,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    windows: Windows,
    *,
    channel_of: Callable[[Expr, Expr], Expr] | None = None,
    stored: Dim | None = None,
) -> Definition:
    """What filters give for windows of x. channel_of: the channel that a filter multiplies by one of its own; None for
    the same. stored: channels of x, behind which there are zeros; None where filters have no more."""
    filters, width, *kernel = weight.shape

    def value(n: Expr, o: Expr, *out: Expr) -> Expr:
        def product(c: Expr, *taps: Expr) -> Expr:
            places = windows.places(out, taps)
            is_there = windows.legal(places)
            if stored is not None:
                is_there = build.logical_and(is_there, c < build.index(stored))
            pixel = x[(n, c if channel_of is None else channel_of(o, c), *places)]
            padded = build.select(is_there, pixel, build.const(0, x.dtype))
            return widen(padded) * widen(weight[(o, c, *taps)])

        total: Expr = reduce(SUM, (width, *kernel), product)
        return build.cast(total if bias is None else total + widen(bias[o]), x.dtype)

    return single(present(x, weight, bias), compute(name, (x.shape[0], filters, *windows.counts), value))


def _decompose_padded_channels(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    x, weight, *bias = inputs
    assert x is not None and weight is not None
    more = weight.tensor.shape[1] - x.tensor.shape[1]
    pads = [(0, more if axis == 1 else 0) for axis in range(x.tensor.rank)]
    padded = builder.emit("pad", x, pads=pads, mode="constant", value=0)
    return (builder.emit("conv", padded, weight, *bias, **attrs),)


def _conv_transpose(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    stride: Numbers,
    padding: Padding,
    output_padding: Numbers,
    dilation: Numbers,
    groups: int,
) -> Definition:
    name = "conv_transpose"
    rank = _checked(name, x, weight, bias)
    batch, channels, *space = x.shape
    rows, group_filters, *kernel = weight.shape
    _require_divisible(name, "input channels", channels, groups)
    same_extent(rows, channels, f"operator {name}: rows of weight against channels of x")
    filters = group_filters * groups
    _require_bias(name, bias, filters)
    # As windows over what comes out.
    extra = per_axis(name, "output_padding", output_padding, rank, 0)
    windows = windows_of(name, (0,) * rank, kernel, stride, padding, dilation)
    axes = zip(space, windows.strides, windows.reaches, windows.pads, extra, strict=True)
    result = [(n - 1) * step + reach - before - after + more for n, step, reach, (before, after), more in axes]
    windows = replace(windows, space=tuple(result), counts=tuple(space))
    group_width = channels // groups
    filters_of_group = build.index(group_filters)

    def value(n: Expr, o: Expr, *out: Expr) -> Expr:
        def product(c: Expr, *taps: Expr) -> Expr:
            places, legal = windows.above(out, taps)
            channel = c if groups == 1 else (o // filters_of_group) * build.index(group_width) + c
            column = o if groups == 1 else o % filters_of_group
            padded = build.select(legal, x[(n, channel, *places)], build.const(0, x.dtype))
            return widen(padded) * widen(weight[(channel, column, *taps)])

        total: Expr = reduce(SUM, (group_width, *kernel), product)
        return build.cast(total if bias is None else total + widen(bias[o]), x.dtype)

    return single(present(x, weight, bias), compute(name, (batch, filters, *result), value))


def decompose_conv_transpose(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """`OperatorSpec.decompose` of conv_transpose."""
    x, weight, bias = (*inputs, None)[:3]
    assert x is not None and weight is not None
    name, rank = "conv_transpose", x.tensor.rank - 2
    window = Window(
        steps=per_axis(name, "stride", attrs["stride"], rank, 1),
        spreads=per_axis(name, "dilation", attrs["dilation"], rank, 1),
        pads=side_pairs(name, attrs["padding"], rank),
        extras=per_axis(name, "output_padding", attrs["output_padding"], rank, 0),
        groups=attrs["groups"],
    )
    return [as_convolution(builder, x, weight, bias, window)]


_GROUPS = Attribute("groups", 1)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="conv",
        inputs=("x", "weight", "bias?"),
        attributes=(STRIDE, PADDING, DILATION, _GROUPS, FP32_PRECISION),
        kind="anchor",
        define=_conv,
        family="convolution",
        layout="channels-last",
        doc="Cross-correlation of x[n, c, *space] with weight[o, c / groups, *kernel] + bias[o] -> [n, o, *result] "
        "with result = (space + before + after - dilation * (kernel - 1) - 1) // stride + 1; torch conv1d to conv3d. "
        "One type.",
    ),
    OperatorSpec(
        name="conv_padded_channels",
        inputs=("x", "weight", "bias?"),
        attributes=(STRIDE, PADDING, DILATION),
        kind="anchor",
        define=_conv_padded_channels,
        decompose=_decompose_padded_channels,
        family="convolution",
        doc="conv of x with channels of zeros behind its own, as many as weight[o, c, *kernel] has more. One group.",
    ),
    OperatorSpec(
        name="conv_transpose",
        inputs=("x", "weight", "bias?"),
        attributes=(STRIDE, PADDING, Attribute("output_padding", 0), DILATION, _GROUPS),
        kind="anchor",
        define=_conv_transpose,
        decompose=decompose_conv_transpose,
        family="convolution",
        layout="channels-last",
        doc="The transpose of conv: x[n, c, *space], weight[c, o / groups, *kernel], bias[o] -> [n, o, *result] with "
        "result = (space - 1) * stride - before - after + dilation * (kernel - 1) + 1 + output_padding; "
        "torch conv_transpose1d to conv_transpose3d. One type.",
    ),
)
