"""Convolutions over one, two or three spatial axes, and their transposes.

Images are [n, c, *space], as in torch and ONNX; which memory layout they get is decided later, by strides. Products are
accumulated in f32 for f16 and bf16 and rounded once, after the bias.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute.definition import SUM, Definition, Operand, compute, reduce, single
from hidet.dims import Dim, floordiv, prove_le
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

Pairs = tuple[tuple[int, int], ...]


def per_axis(name: str, what: str, value: int | Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    """An attribute with one number an axis; one number alone counts for all. ShapeError otherwise."""
    numbers = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(numbers) == 1:
        numbers = numbers * axes
    if len(numbers) != axes or any(number < least for number in numbers):
        raise ShapeError(f"operator {name}: {what} is {value}: expected {axes} numbers of at least {least}")
    return numbers


def side_pairs(name: str, value: int | Sequence[int] | Sequence[Sequence[int]], axes: int) -> Pairs:
    """Padding as a pair (before, after) for each axis; a single number stands for both sides."""
    entries: Sequence[int | Sequence[int]] = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(entries) == 1:
        entries = tuple(entries) * axes
    pairs = tuple((entry, entry) if isinstance(entry, int) else (entry[0], entry[-1]) for entry in entries)
    if len(pairs) != axes or any(isinstance(e, Sequence) and len(e) != 2 for e in entries):
        raise ShapeError(f"operator {name}: padding is {value}: expected {axes} pairs (before, after)")
    return pairs


def window_reach(kernel: Dim, dilation: int) -> Dim:
    """Input positions that a window of `kernel` taps spans."""
    return (kernel - 1) * dilation + 1


def inside(
    positions: Sequence[Expr], extents: Sequence[Dim], may_be_low: Sequence[bool], may_be_high: Sequence[bool]
) -> Expr:
    """Whether every position lies on its axis; only sides that can be missed are tested."""
    checks: list[Expr] = []
    for position, extent, low, high in zip(positions, extents, may_be_low, may_be_high, strict=True):
        if low:
            checks.append(position >= 0)
        if high:
            checks.append(position < build.index(extent))
    return build.logical_and(*checks)


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
    stride: int | Sequence[int],
    padding: int | Sequence[int] | Sequence[Sequence[int]],
    dilation: int | Sequence[int],
    groups: int,
    fp32_precision: str,
) -> Definition:
    require_precision("conv", fp32_precision)
    rank = _checked("conv", x, weight, bias)
    strides, dilations = per_axis("conv", "stride", stride, rank, 1), per_axis("conv", "dilation", dilation, rank, 1)
    pads = side_pairs("conv", padding, rank)
    batch, channels, *space = x.shape
    filters, group_width, *kernel = weight.shape
    _require_divisible("conv", "input channels", channels, groups)
    _require_divisible("conv", "filters", filters, groups)
    same_extent(
        group_width * groups, channels, f"operator conv: weight {shape_text(weight.shape)} against channels of x"
    )
    _require_bias("conv", bias, filters)
    result = []
    for extent, taps, step, spread, (before, after) in zip(space, kernel, strides, dilations, pads, strict=True):
        room = extent + before + after - window_reach(taps, spread)
        if prove_le(room, -1):
            raise ShapeError(f"operator conv: {taps} taps do not fit the axis of extent {extent} of x with its padding")
        result.append(floordiv(room, step) + 1)
    group_filters = build.index(filters // groups)

    def value(n: Expr, o: Expr, *out: Expr) -> Expr:
        def product(c: Expr, *taps: Expr) -> Expr:
            places = [
                i * step + k * spread - before
                for i, k, step, spread, (before, _) in zip(out, taps, strides, dilations, pads, strict=True)
            ]
            channel = c if groups == 1 else (o // group_filters) * build.index(group_width) + c
            pixel = x[(n, channel, *places)]
            legal = inside(places, space, [low > 0 for low, _ in pads], [high > 0 for _, high in pads])
            padded = build.select(legal, pixel, build.const(0, x.dtype))
            return widen(padded) * widen(weight[(o, c, *taps)])

        total: Expr = reduce(SUM, (group_width, *kernel), product)
        return build.cast(total if bias is None else total + widen(bias[o]), x.dtype)

    return single(present(x, weight, bias), compute("conv", (batch, filters, *result), value))


def _conv_transpose(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | Sequence[Sequence[int]],
    output_padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
) -> Definition:
    name = "conv_transpose"
    rank = _checked(name, x, weight, bias)
    strides, dilations = per_axis(name, "stride", stride, rank, 1), per_axis(name, "dilation", dilation, rank, 1)
    extra = per_axis(name, "output_padding", output_padding, rank, 0)
    pads = side_pairs(name, padding, rank)
    batch, channels, *space = x.shape
    rows, group_filters, *kernel = weight.shape
    _require_divisible(name, "input channels", channels, groups)
    same_extent(rows, channels, f"operator {name}: rows of weight against channels of x")
    filters = group_filters * groups
    _require_bias(name, bias, filters)
    result = [
        (extent - 1) * step + window_reach(taps, spread) - before - after + more
        for extent, taps, step, spread, (before, after), more in zip(
            space, kernel, strides, dilations, pads, extra, strict=True
        )
    ]
    group_width = channels // groups
    filters_of_group = build.index(group_filters)

    def value(n: Expr, o: Expr, *out: Expr) -> Expr:
        def product(c: Expr, *taps: Expr) -> Expr:
            reached = [
                i + before - k * spread for i, k, spread, (before, _) in zip(out, taps, dilations, pads, strict=True)
            ]
            places = [place // step for place, step in zip(reached, strides, strict=True)]
            on_grid = [build.equal(place % step, 0) for place, step in zip(reached, strides, strict=True) if step > 1]
            legal = build.logical_and(inside(places, space, [True] * rank, [True] * rank), *on_grid)
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


_STRIDE = Attribute("stride", 1, "one an axis, or one for all")
_PADDING = Attribute("padding", 0, "a pair (before, after) an axis, or one number an axis, or one for all")
_DILATION = Attribute("dilation", 1, "one an axis, or one for all")
_GROUPS = Attribute("groups", 1)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="conv",
        inputs=("x", "weight", "bias?"),
        attributes=(_STRIDE, _PADDING, _DILATION, _GROUPS, FP32_PRECISION),
        kind="anchor",
        define=_conv,
        family="convolution",
        layout="channels-last",
        doc="Cross-correlation of x[n, c, *space] with weight[o, c / groups, *kernel] + bias[o] -> [n, o, *result] "
        "with result = (space + before + after - dilation * (kernel - 1) - 1) // stride + 1; torch conv1d to conv3d. "
        "One type.",
    ),
    OperatorSpec(
        name="conv_transpose",
        inputs=("x", "weight", "bias?"),
        attributes=(_STRIDE, _PADDING, Attribute("output_padding", 0), _DILATION, _GROUPS),
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
