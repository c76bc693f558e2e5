"""Operators of the CPU target: matrix products and convolutions that read weights packed for SIMD, and the packing.

A packed weight holds the values of `lanes` neighbouring output channels next to each other, one vector a step of the
sum, padded with zeros. How many vectors a kernel takes at once is not fixed by the format.

    pack_matrix    w[n, k]            -> [n / lanes, k, lanes]
    pack_filters   w[o, c, *kernel]   -> [group, o / group / lanes, *kernel, c, lanes]
    pack_depthwise w[c, 1, *kernel]   -> [*kernel, c]

The packed operators mean what their core counterparts mean; the graph pass `cpu-pack-weights` puts them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet.compute.definition import Compute, Definition, Operand, compute, single
from hidet.dims import Dim, ceildiv
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Access, Expr
from hidet.ir.visit import replace_accesses
from hidet.operators.conv import SPECS as CONVOLUTIONS
from hidet.operators.matmul import SPECS as PRODUCTS
from hidet.operators.rules import present, widen


def _pack_matrix(weight: Operand, *, lanes: int, transposed: bool) -> Definition:
    rows, steps = reversed(weight.shape) if transposed else weight.shape

    def value(panel: Expr, step: Expr, lane: Expr) -> Expr:
        row = panel * lanes + lane
        element = widen(weight[(step, row) if transposed else (row, step)])
        return build.select(row < build.index(rows), element, build.const(0, element.dtype))

    return single((weight,), compute("pack_matrix", (ceildiv(rows, lanes), steps, lanes), value))


def _pack_filters(weight: Operand, *, lanes: int, groups: int, transposed: bool) -> Definition:
    outer, inner, *kernel = weight.shape
    if transposed:
        channels, filters = _share(outer, groups), inner
    else:
        channels, filters = inner, _share(outer, groups)

    def value(group: Expr, panel: Expr, *rest: Expr) -> Expr:
        *taps, channel, lane = rest
        one = panel * lanes + lane
        place = (
            (group * build.index(channels) + channel, one)
            if transposed
            else (group * build.index(filters) + one, channel)
        )
        element = widen(weight[(*place, *taps)])
        return build.select(one < build.index(filters), element, build.const(0, element.dtype))

    shape = (groups, ceildiv(filters, lanes), *kernel, channels, lanes)
    return single((weight,), compute("pack_filters", shape, value))


def _pack_depthwise(weight: Operand) -> Definition:
    channels, _, *kernel = weight.shape
    return single(
        (weight,),
        compute("pack_depthwise", (*kernel, channels), lambda *axes: widen(weight[(axes[-1], 0, *axes[:-1])])),
    )


def _share(extent: Dim, groups: int) -> Dim:
    return extent if groups == 1 else extent // groups


Unpacked = Callable[[Access], Expr]


def _on_packed(
    operator: str,
    x: Operand,
    weight: Operand,
    packed: Operand,
    bias: Operand | None,
    attrs: Mapping[str, Any],
    unpacked: Unpacked,
) -> Definition:
    """The definition of `operator(x, weight, bias)` with reads of `weight` replaced by reads of `packed`."""
    spec = _OPERATORS[operator]
    assert spec.define is not None
    stage = spec.define(x, weight, bias, **spec.attrs(attrs)).stages[0]
    assert isinstance(stage, Compute)
    value = replace_accesses(stage.value, lambda a: unpacked(a) if a.operand is weight else None)
    return single(present(x, packed, bias), Compute(stage.result, stage.axes, value))


def _linear_packed(x: Operand, packed: Operand, bias: Operand | None = None, *, columns: Dim) -> Definition:
    _, steps, lanes = packed.shape
    weight = Operand("weight", x.dtype, (columns, steps))

    def unpacked(access: Access) -> Expr:
        column, step = access.indices
        return packed[(column // build.index(lanes), step, column % build.index(lanes))]

    return _on_packed("linear", x, weight, packed, bias, {}, unpacked)


def _conv_packed(x: Operand, packed: Operand, bias: Operand | None = None, *, filters: int, **attrs: Any) -> Definition:
    groups, _, *kernel, channels, lanes = packed.shape
    group_filters = filters // int(groups)  # type: ignore[arg-type]  # the number of groups is an attribute of pack_filters
    weight = Operand("weight", x.dtype, (filters, channels, *kernel))

    def unpacked(access: Access) -> Expr:
        one, channel, *taps = access.indices
        group, within = one // build.index(group_filters), one % build.index(group_filters)
        return packed[(group, within // build.index(lanes), *taps, channel, within % build.index(lanes))]

    return _on_packed("conv", x, weight, packed, bias, {**attrs, "groups": groups}, unpacked)


def _conv_transpose_packed(
    x: Operand, packed: Operand, bias: Operand | None = None, *, filters: int, **attrs: Any
) -> Definition:
    groups, _, *kernel, channels, lanes = packed.shape
    weight = Operand("weight", x.dtype, (channels * groups, filters // int(groups), *kernel))  # type: ignore[arg-type]  # see above

    def unpacked(access: Access) -> Expr:
        channel, one, *taps = access.indices
        group, within = channel // build.index(channels), channel % build.index(channels)
        return packed[(group, one // build.index(lanes), *taps, within, one % build.index(lanes))]

    return _on_packed("conv_transpose", x, weight, packed, bias, {**attrs, "groups": groups}, unpacked)


def _depthwise_packed(x: Operand, packed: Operand, bias: Operand | None = None, **attrs: Any) -> Definition:
    *kernel, channels = packed.shape
    weight = Operand("weight", x.dtype, (channels, 1, *kernel))

    def unpacked(access: Access) -> Expr:
        channel, _, *taps = access.indices
        return packed[(*taps, channel)]

    return _on_packed("conv", x, weight, packed, bias, {**attrs, "groups": channels}, unpacked)


_OPERATORS = {spec.name: spec for spec in (*PRODUCTS, *CONVOLUTIONS)}
_WINDOW = (Attribute("stride", 1), Attribute("padding", 0), Attribute("dilation", 1))
_FILTERS = Attribute("filters", doc="output channels; the packed weight may hold more, which are zero")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="cpu.pack_matrix",
        inputs=("weight",),
        attributes=(Attribute("lanes"), Attribute("transposed", False)),
        define=_pack_matrix,
        doc="weight[n, k] (or [k, n] when transposed) -> [ceil(n / lanes), k, lanes]; f16 and bf16 become f32.",
    ),
    OperatorSpec(
        name="cpu.pack_filters",
        inputs=("weight",),
        attributes=(Attribute("lanes"), Attribute("groups", 1), Attribute("transposed", False)),
        define=_pack_filters,
        doc="weight[o, c, *kernel] of conv (or [c, o, *kernel] of conv_transpose when transposed) -> "
        "[groups, ceil(o / groups / lanes), *kernel, c, lanes] with o and c of one group; f16 and bf16 become f32.",
    ),
    OperatorSpec(
        name="cpu.pack_depthwise",
        inputs=("weight",),
        define=_pack_depthwise,
        doc="weight[c, 1, *kernel] -> [*kernel, c]; f16 and bf16 become f32.",
    ),
    OperatorSpec(
        name="cpu.linear_packed",
        inputs=("x", "packed", "bias?"),
        attributes=(Attribute("columns", doc="output channels n"),),
        kind="anchor",
        define=_linear_packed,
        family="matmul",
        doc="linear(x, weight, bias) with the result of pack_matrix(weight) in place of weight.",
    ),
    OperatorSpec(
        name="cpu.conv_packed",
        inputs=("x", "packed", "bias?"),
        attributes=(_FILTERS, *_WINDOW),
        kind="anchor",
        define=_conv_packed,
        family="convolution",
        layout="channels-last",
        doc="conv(x, weight, bias) with the result of pack_filters(weight) in place of weight.",
    ),
    OperatorSpec(
        name="cpu.conv_transpose_packed",
        inputs=("x", "packed", "bias?"),
        attributes=(_FILTERS, *_WINDOW, Attribute("output_padding", 0)),
        kind="anchor",
        define=_conv_transpose_packed,
        family="convolution",
        layout="channels-last",
        doc="conv_transpose(x, weight, bias) with the result of pack_filters(weight, transposed) in place of weight.",
    ),
    OperatorSpec(
        name="cpu.depthwise_packed",
        inputs=("x", "packed", "bias?"),
        attributes=_WINDOW,
        kind="anchor",
        define=_depthwise_packed,
        family="convolution",
        layout="channels-last",
        doc="conv(x, weight, bias, groups=c) with one filter a channel and pack_depthwise(weight) in place of weight.",
    ),
)
