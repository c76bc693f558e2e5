"""Batch norm with given statistics, and the parts it falls into when it is folded into the convolution before it.

    (conv(x, w) + start - mean) * scale + bias  =  conv(x, scale_filters(w, scale)) + shift
    batch_norm(x, ...)                          =  apply_batch_norm(x, scale, shift)

With the statistics of x itself (`moments`), which are worth their digits:

    batch_norm(x, ...)                          =  apply_batch_norm(x, scale, batch_norm_shift(rest, ...), mean)

An operator for each part keeps what is done to weights small: a model has as many batch norms as convolutions.
"""

from __future__ import annotations

from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dtypes import DType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.normalize import require_channel_parameters
from hidet.operators.rules import arithmetic_dtype, present, require_dtype, require_rank, same_extent, widen


def _batch_norm(
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    eps: float,
) -> Definition:
    require_dtype("batch_norm", x, "float")
    require_rank("batch_norm", x, at_least=2)
    for statistic in (mean, variance, *present(weight, bias)):
        require_dtype("batch_norm", statistic, "float")
    require_channel_parameters("batch_norm", x, mean, variance, weight, bias)
    wide = arithmetic_dtype(x.dtype)

    def value(*axes: Expr) -> Expr:
        def parameter(operand: Operand) -> Expr:
            return build.cast(operand[axes[1]], wide)

        scale = build.unary("rsqrt", parameter(variance) + eps)
        if weight is not None:
            scale = scale * parameter(weight)
        normal = (widen(x[axes]) - parameter(mean)) * scale
        return build.cast(normal if bias is None else normal + parameter(bias), x.dtype)

    stage = compute("batch_norm", x.shape, value)
    return Definition(present(x, mean, variance, weight, bias), (stage,), (stage.result,))


def _require_vectors(name: str, *operands: Operand) -> None:
    """One-dimensional tensors of one extent and of floating-point types."""
    for operand in operands:
        require_dtype(name, operand, "float")
        require_rank(name, operand, at_least=1, at_most=1)
        same_extent(operand.shape[0], operands[0].shape[0], f"operator {name}: {operand.name} and {operands[0].name}")


def _scale(variance: Operand, weight: Operand | None = None, *, eps: float) -> Definition:
    operands = present(variance, weight)
    _require_vectors("batch_norm_scale", *operands)
    wide = arithmetic_dtype(variance.dtype)

    def value(channel: Expr) -> Expr:
        return _scale_of(channel, variance, weight, eps, wide)

    return single(operands, compute("batch_norm_scale", variance.shape, value))


def _scale_of(channel: Expr, variance: Operand, weight: Operand | None, eps: float, wide: DType) -> Expr:
    """What a channel is multiplied by, in type `wide`."""
    # Not rsqrt, which GPUs approximate: an error to one side that all layers share adds up.
    inverse = 1.0 / build.unary("sqrt", build.cast(variance[channel], wide) + eps)
    return inverse if weight is None else inverse * build.cast(weight[channel], wide)


def _offset(
    mean: Operand, variance: Operand, weight: Operand | None = None, bias: Operand | None = None, *, eps: float
) -> Definition:
    operands = present(mean, variance, weight, bias)
    _require_vectors("batch_norm_offset", *operands)
    wide = arithmetic_dtype(variance.dtype)

    def value(channel: Expr) -> Expr:
        def parameter(operand: Operand) -> Expr:
            return build.cast(operand[channel], wide)

        moved = -parameter(mean) * _scale_of(channel, variance, weight, eps, wide)
        return moved if bias is None else moved + parameter(bias)

    return single(operands, compute("batch_norm_offset", mean.shape, value))


def _shift(
    mean: Operand, scale: Operand, start: Operand | None = None, bias: Operand | None = None, *, dtype: DType
) -> Definition:
    operands = present(mean, scale, start, bias)
    _require_vectors("batch_norm_shift", *operands)
    wide = arithmetic_dtype(scale.dtype)

    def value(channel: Expr) -> Expr:
        def parameter(operand: Operand) -> Expr:
            return build.cast(operand[channel], wide)

        centred = -parameter(mean) if start is None else parameter(start) - parameter(mean)
        moved = centred * parameter(scale)
        return build.cast(moved if bias is None else moved + parameter(bias), dtype)

    return single(operands, compute("batch_norm_shift", mean.shape, value))


def _scale_filters(filters: Operand, scale: Operand) -> Definition:
    require_dtype("scale_filters", filters, "float")
    require_rank("scale_filters", filters, at_least=1)
    _require_vectors("scale_filters", scale)
    same_extent(scale.shape[0], filters.shape[0], "operator scale_filters: scale against the first axis of filters")
    wide = arithmetic_dtype(filters.dtype)

    def value(*axes: Expr) -> Expr:
        return build.cast(widen(filters[axes]) * build.cast(scale[axes[0]], wide), filters.dtype)

    return single((filters, scale), compute("scale_filters", filters.shape, value))


def _apply(x: Operand, scale: Operand, shift: Operand, mean: Operand | None = None) -> Definition:
    require_dtype("apply_batch_norm", x, "float")
    require_rank("apply_batch_norm", x, at_least=2)
    _require_vectors("apply_batch_norm", *present(scale, shift, mean))
    require_channel_parameters("apply_batch_norm", x, scale, shift, mean)
    wide = arithmetic_dtype(x.dtype)

    def value(*axes: Expr) -> Expr:
        def parameter(operand: Operand) -> Expr:
            return build.cast(operand[axes[1]], wide)

        centred = widen(x[axes]) if mean is None else widen(x[axes]) - parameter(mean)
        return build.cast(centred * parameter(scale) + parameter(shift), x.dtype)

    return single(present(x, scale, shift, mean), compute("apply_batch_norm", x.shape, value))


_EPS = Attribute("eps", 1e-5)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="batch_norm",
        inputs=("x", "mean", "variance", "weight?", "bias?"),
        attributes=(_EPS,),
        define=_batch_norm,
        layout="follows",
        doc="(x[n, c, ...] - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c], with given statistics: torch's "
        "batch_norm in inference. The result has the type of x; parameters may be of another floating-point type.",
    ),
    OperatorSpec(
        name="batch_norm_scale",
        inputs=("variance", "weight?"),
        attributes=(_EPS,),
        define=_scale,
        is_costly=True,
        doc="weight[c] / sqrt(variance[c] + eps): what a batch norm multiplies by, in the arithmetic type of variance.",
    ),
    OperatorSpec(
        name="batch_norm_offset",
        inputs=("mean", "variance", "weight?", "bias?"),
        attributes=(_EPS,),
        define=_offset,
        is_costly=True,
        doc="bias[c] - mean[c] * weight[c] / sqrt(variance[c] + eps): what a batch norm adds, from parameters alone.",
    ),
    OperatorSpec(
        name="batch_norm_shift",
        inputs=("mean", "scale", "start?", "bias?"),
        attributes=(Attribute("dtype", doc="type of the result"),),
        define=_shift,
        doc="(start[c] - mean[c]) * scale[c] + bias[c]: what is left to add after products with scaled filters.",
    ),
    OperatorSpec(
        name="scale_filters",
        inputs=("filters", "scale"),
        define=_scale_filters,
        doc="filters[o, ...] * scale[o], in the type of filters. Floating-point types.",
    ),
    OperatorSpec(
        name="apply_batch_norm",
        inputs=("x", "scale", "shift", "mean?"),
        define=_apply,
        layout="follows",
        doc="(x[n, c, ...] - mean[c]) * scale[c] + shift[c], in the type of x: a batch norm by vectors that are "
        "computed before. Without a mean, which shift contains then, large means cost digits.",
    ),
)
