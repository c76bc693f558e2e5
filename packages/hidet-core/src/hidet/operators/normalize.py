"""Softmax and normalisations: statistics of rows, then an element-wise stage.

Every definition is two or three stages; all but the last are row reductions. Statistics and arithmetic are in f32 for
f16 and bf16. Deviations are taken from the mean in a second pass, and corrected by what the mean lacks, which keeps
their digits when the mean is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hidet.compute.definition import MAX, SUM, Compute, Definition, Operand, compute, reduce
from hidet.dims import Dim, product
from hidet.errors import ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    arithmetic_dtype,
    normalize_axis,
    present,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    shape_text,
    widen,
    without_offset,
)


def _exp(x: Expr) -> Expr:
    return build.unary("exp", x)


def _softmax(name: str, final: Callable[[Expr, Expr], Expr], x: Operand, *, axis: int) -> Definition:
    """`final(x - max, sum of exponentials)`, both in the arithmetic type."""
    require_dtype(name, x, "float")
    cut = normalize_axis(name, axis, x.rank)
    extents = x.shape[cut : cut + 1]
    outer = (*x.shape[:cut], *x.shape[cut + 1 :])

    def element(axes: Sequence[Expr], row: Sequence[Expr]) -> Expr:
        return widen(x[(*axes[:cut], *row, *axes[cut:])])

    top = compute("max", outer, lambda *axes: reduce(MAX, extents, lambda *r: element(axes, r)))

    def shifted(axes: Sequence[Expr], row: Sequence[Expr]) -> Expr:
        return element(axes, row) - top.result[tuple(axes)]

    total = compute("sum", outer, lambda *axes: reduce(SUM, extents, lambda *r: _exp(shifted(axes, r))))

    def value(*axes: Expr) -> Expr:
        rest = (*axes[:cut], *axes[cut + 1 :])
        return build.cast(final(shifted(rest, axes[cut : cut + 1]), total.result[rest]), x.dtype)

    stage = compute(name, x.shape, value)
    return Definition((x,), (top, total, stage), (stage.result,))


def _deviation(
    outer: Sequence[Dim], extents: Sequence[Dim], element: Callable[[Sequence[Expr], Sequence[Expr]], Expr], eps: float
) -> tuple[Compute, Compute, Compute]:
    """Stages for the mean, for how far it is off, and for 1 / sqrt(variance + eps), of
    `element(outer axes, inner axes)` over the inner axes.

    A mean that is large beside the deviation is rounded by a noticeable part of the deviation. What it lacks is the
    average distance from it, whose square is too much in the average of squared distances.
    """
    count = build.index(product(extents))
    mean = compute("mean", outer, lambda *axes: _average(extents, lambda r: element(axes, r), count))

    def distance(axes: Sequence[Expr], r: Sequence[Expr]) -> Expr:
        return element(axes, r) - mean.result[tuple(axes)]

    rest = compute("rest", outer, lambda *axes: _average(extents, lambda r: distance(axes, r), count))

    def variance(axes: Sequence[Expr]) -> Expr:
        def squared(r: Sequence[Expr]) -> Expr:
            return distance(axes, r) * distance(axes, r)

        off = rest.result[tuple(axes)]
        return without_offset(_average(extents, squared, count), off * off)

    scale = compute("inverse_deviation", outer, lambda *axes: build.unary("rsqrt", variance(axes) + eps))
    return mean, rest, scale


def _average(extents: Sequence[Dim], element: Callable[[Sequence[Expr]], Expr], count: Expr) -> Expr:
    total = reduce(SUM, extents, lambda *r: element(r))
    return total / build.cast(count, total.dtype)


def _affine(value: Expr, weight: Operand | None, bias: Operand | None, indices: tuple[Expr, ...]) -> Expr:
    if weight is not None:
        value = value * widen(weight[indices])
    return value if bias is None else value + widen(bias[indices])


def _inner_shape(name: str, x: Operand, rank: int, *parameters: Operand | None) -> tuple[Dim, ...]:
    """The last `rank` extents of x, which is also the shape of each parameter."""
    if not 1 <= rank <= x.rank:
        raise ShapeError(f"operator {name} normalises the last {rank} axes of x, which has shape {shape_text(x.shape)}")
    inner = x.shape[x.rank - rank :]
    for parameter in present(*parameters):
        require_rank(name, parameter, at_least=rank, at_most=rank)
        for have, want in zip(parameter.shape, inner, strict=True):
            same_extent(have, want, f"operator {name}: {parameter.name} against the last axes of x")
    return inner


def _layer_norm(
    name: str,
    with_statistics: bool,
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    rank: int,
    eps: float,
) -> Definition:
    operands = present(x, weight, bias)
    require_dtype(name, x, "float")
    dtype = require_same_dtype(name, operands)
    inner = _inner_shape(name, x, rank, weight, bias)
    split = x.rank - rank
    mean, rest, scale = _deviation(x.shape[:split], inner, lambda axes, r: widen(x[(*axes, *r)]), eps)

    def value(*axes: Expr) -> Expr:
        outer = axes[:split]
        unit = scale.result[outer]
        normal = (widen(x[axes]) - mean.result[outer]) * unit - rest.result[outer] * unit
        return build.cast(_affine(normal, weight, bias, axes[split:]), dtype)

    stage = compute(name, x.shape, value)
    statistics = (mean.result, scale.result) if with_statistics else ()
    return Definition(operands, (mean, rest, scale, stage), (stage.result, *statistics))


def _rms_norm(x: Operand, weight: Operand | None = None, *, rank: int, eps: float | None) -> Definition:
    operands = present(x, weight)
    require_dtype("rms_norm", x, "float")
    dtype = require_same_dtype("rms_norm", operands)
    inner = _inner_shape("rms_norm", x, rank, weight)
    split = x.rank - rank
    count = build.index(product(inner))
    small = arithmetic_dtype(dtype).epsilon if eps is None else eps

    def scale(*axes: Expr) -> Expr:
        def squared(r: Sequence[Expr]) -> Expr:
            element = widen(x[(*axes, *r)])
            return element * element

        return build.unary("rsqrt", _average(inner, squared, count) + small)

    scale_stage = compute("inverse_rms", x.shape[:split], scale)

    def value(*axes: Expr) -> Expr:
        normal = widen(x[axes]) * scale_stage.result[axes[:split]]
        return build.cast(_affine(normal, weight, None, axes[split:]), dtype)

    stage = compute("rms_norm", x.shape, value)
    return Definition(operands, (scale_stage, stage), (stage.result,))


def require_channel_parameters(name: str, x: Operand, *parameters: Operand | None) -> None:
    """Each parameter that is present has one value a channel of x[n, c, ...]."""
    for parameter in present(*parameters):
        require_rank(name, parameter, at_least=1, at_most=1)
        same_extent(parameter.shape[0], x.shape[1], f"operator {name}: {parameter.name} against the channels of x")


def _group_norm(
    name: str,
    with_statistics: bool,
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    groups: int | None = None,
    eps: float,
) -> Definition:
    operands = present(x, weight, bias)
    require_dtype(name, x, "float")
    require_rank(name, x, at_least=2)
    dtype = require_same_dtype(name, operands)
    require_channel_parameters(name, x, weight, bias)
    batch, channels, *space = x.shape
    count = channels if groups is None else groups
    if groups is not None and isinstance(channels, int) and channels % groups:
        raise ShapeError(f"operator {name}: {channels} channels do not divide into {groups} groups")
    size = 1 if groups is None else channels // groups
    width = build.index(size)

    def element(axes: Sequence[Expr], r: Sequence[Expr]) -> Expr:
        return widen(x[(axes[0], axes[1] * width + r[0], *r[1:])])

    mean, rest, scale = _deviation((batch, count), (size, *space), element, eps)

    def value(*axes: Expr) -> Expr:
        outer = (axes[0], axes[1] // width)
        unit = scale.result[outer]
        normal = (widen(x[axes]) - mean.result[outer]) * unit - rest.result[outer] * unit
        return build.cast(_affine(normal, weight, bias, (axes[1],)), dtype)

    stage = compute(name, x.shape, value)
    statistics = (mean.result, scale.result) if with_statistics else ()
    return Definition(operands, (mean, rest, scale, stage), (stage.result, *statistics))


def _l2_normalize(x: Operand, *, axis: int, eps: float) -> Definition:
    require_dtype("l2_normalize", x, "float")
    cut = normalize_axis("l2_normalize", axis, x.rank)
    extents = x.shape[cut : cut + 1]
    outer = (*x.shape[:cut], *x.shape[cut + 1 :])

    def length(*axes: Expr) -> Expr:
        def squared(*r: Expr) -> Expr:
            element = widen(x[(*axes[:cut], *r, *axes[cut:])])
            return element * element

        return build.maximum(build.unary("sqrt", reduce(SUM, extents, squared)), eps)

    norm = compute("norm", outer, length)

    def value(*axes: Expr) -> Expr:
        return build.cast(widen(x[axes]) / norm.result[(*axes[:cut], *axes[cut + 1 :])], x.dtype)

    stage = compute("l2_normalize", x.shape, value)
    return Definition((x,), (norm, stage), (stage.result,))


_EPS = Attribute("eps", 1e-5)
_RANK = Attribute("rank", 1, "how many last axes are normalised together")
_AFFINE = ("x", "weight?", "bias?")
_LAYER_NORM = (
    "(x - mean) / sqrt(variance + eps) * weight + bias over the last `rank` axes, whose shape weight and bias have; "
    "as torch.nn.functional.layer_norm. One floating-point type."
)
_GROUP_NORM = (
    "x[n, c, ...] normalised over each of `groups` groups of channels and all space, then * weight[c] + bias[c]; "
    "as torch.nn.functional.group_norm. One floating-point type."
)
_STATISTICS = (
    " Further results in the arithmetic type: the mean and 1 / sqrt(variance + eps), without the reduced axes."
)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="softmax",
        inputs=("x",),
        attributes=(Attribute("axis", -1),),
        kind="anchor",
        define=partial(_softmax, "softmax", lambda shifted, total: _exp(shifted) / total),
        family="softmax",
        doc="e ** x / sum(e ** x) along an axis, as torch.softmax; a row of -inf gives NaN. Floating-point types.",
    ),
    OperatorSpec(
        name="log_softmax",
        inputs=("x",),
        attributes=(Attribute("axis", -1),),
        kind="anchor",
        define=partial(_softmax, "log_softmax", lambda shifted, total: shifted - build.unary("log", total)),
        family="softmax",
        doc="log(softmax(x)) without underflow, as torch.log_softmax. Floating-point types.",
    ),
    OperatorSpec(
        name="layer_norm",
        inputs=_AFFINE,
        attributes=(_RANK, _EPS),
        kind="anchor",
        define=partial(_layer_norm, "layer_norm", False),
        family="normalization",
        doc=_LAYER_NORM,
    ),
    OperatorSpec(
        name="layer_norm_with_statistics",
        inputs=_AFFINE,
        attributes=(_RANK, _EPS),
        kind="anchor",
        define=partial(_layer_norm, "layer_norm_with_statistics", True),
        family="normalization",
        doc=_LAYER_NORM + _STATISTICS,
    ),
    OperatorSpec(
        name="rms_norm",
        inputs=("x", "weight?"),
        attributes=(_RANK, Attribute("eps", None, "None is the epsilon of the arithmetic type")),
        kind="anchor",
        define=_rms_norm,
        family="normalization",
        doc="x / sqrt(mean(x * x) + eps) * weight over the last `rank` axes; torch.nn.functional.rms_norm; one type.",
    ),
    OperatorSpec(
        name="group_norm",
        inputs=_AFFINE,
        attributes=(Attribute("groups"), _EPS),
        kind="anchor",
        define=partial(_group_norm, "group_norm", False),
        family="group-normalization",
        layout="follows",
        doc=_GROUP_NORM,
    ),
    OperatorSpec(
        name="group_norm_with_statistics",
        inputs=_AFFINE,
        attributes=(Attribute("groups"), _EPS),
        kind="anchor",
        define=partial(_group_norm, "group_norm_with_statistics", True),
        family="group-normalization",
        doc=_GROUP_NORM + _STATISTICS,
    ),
    OperatorSpec(
        name="instance_norm",
        inputs=_AFFINE,
        attributes=(_EPS,),
        kind="anchor",
        define=partial(_group_norm, "instance_norm", False),
        family="group-normalization",
        layout="follows",
        doc="x[n, c, ...] normalised over space for each n and c, then * weight[c] + bias[c]; "
        "as torch.nn.functional.instance_norm without running statistics. One floating-point type.",
    ),
    OperatorSpec(
        name="l2_normalize",
        inputs=("x",),
        attributes=(Attribute("axis", 1), Attribute("eps", 1e-12)),
        kind="anchor",
        define=_l2_normalize,
        family="normalization",
        doc="x / max(sqrt(sum(x * x)), eps) along an axis, as torch.nn.functional.normalize. Floating-point types.",
    ),
)
