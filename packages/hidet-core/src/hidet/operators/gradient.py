"""Gradients that no composition of other operators gives well: of pooling, interpolation and attention.

`grad` is the gradient of the operator's result; what comes out is that of its input. What else training needs is a
composition of ordinary operators, made by the frontend. Sums of f16 and bf16 are formed in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.compute.definition import (
    SUM,
    Compute,
    Definition,
    Operand,
    Scatter,
    compute,
    fresh_axes,
    reduce,
    single,
)
from hidet.dims import Dim, product
from hidet.dtypes import DType
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType, ValueType
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.adaptive_pool import shares_of
from hidet.operators.attention import heads_per_group
from hidet.operators.interpolate import RESAMPLING, Tap, resampling_taps
from hidet.operators.pool import CEIL_MODE, KERNEL, POOL_STRIDE, averaged_count, pool_windows
from hidet.operators.reshape import reshape_indices
from hidet.operators.rules import arithmetic_dtype, require_dtype, require_rank, same_extent, widen
from hidet.operators.windows import PADDING, Numbers, Padding

if TYPE_CHECKING:
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Value


def _require_shape(name: str, grad: Operand, shape: Sequence[Dim]) -> None:
    require_rank(name, grad, at_least=len(shape), at_most=len(shape))
    for have, want in zip(grad.shape, shape, strict=True):
        same_extent(have, want, f"operator {name}: the gradient against the operator's result")


Place = Callable[[Sequence[Expr]], Sequence[Expr]]


def _summed(
    name: str,
    inputs: Sequence[Operand],
    shape: Sequence[Dim],
    extents: Sequence[Dim],
    place: Place,
    update: Callable[[Sequence[Expr]], Expr],
    condition: Callable[[Sequence[Expr]], Expr] | None = None,
) -> Definition:
    """Zeros of `shape` with `update` added at `place`, for every index below `extents` where `condition` is true."""
    dtype: DType = inputs[0].dtype
    wide = arithmetic_dtype(dtype)
    zeros = compute("zeros", shape, lambda *axes: build.const(0, wide))
    base_axes, axes = fresh_axes(len(shape), "b"), fresh_axes(len(extents))
    total = Scatter(
        Operand(name if wide == dtype else "total", wide, tuple(shape)),
        zeros.result[base_axes],
        base_axes,
        axes,
        tuple(extents),
        tuple(place(axes)),
        build.cast(update(axes), wide),
        SUM,
        None if condition is None else condition(axes),
    )
    if wide == dtype:
        return Definition(tuple(inputs), (zeros, total), (total.result,))
    rounded: Compute = compute(name, shape, lambda *axes: build.cast(total.result[axes], dtype))
    return Definition(tuple(inputs), (zeros, total, rounded), (rounded.result,))


def _max_pool(grad: Operand, indices: Operand, *, shape: Sequence[Dim], rank: int) -> Definition:
    name = "max_pool_gradient"
    require_dtype(name, grad, "float")
    require_dtype(name, indices, "int")
    _require_shape(name, indices, grad.shape)
    split = len(shape) - rank
    space = tuple(shape[split:])

    def place(axes: Sequence[Expr]) -> Sequence[Expr]:
        position = build.cast(indices[tuple(axes)], build.INDEX)
        return (*axes[:split], *reshape_indices(space, (product(space),), (position,)))

    return _summed(name, (grad, indices), shape, grad.shape, place, lambda axes: grad[tuple(axes)])


def _avg_pool(
    grad: Operand,
    *,
    shape: Sequence[Dim],
    kernel: Sequence[int],
    stride: Numbers | None,
    padding: Padding,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Definition:
    """Each input position collects its share from the windows over it."""
    name = "avg_pool_gradient"
    require_dtype(name, grad, "float")
    windows = pool_windows(name, Operand("x", grad.dtype, tuple(shape)), kernel, stride, padding, 1, ceil_mode)
    _require_shape(name, grad, windows.shape)
    split = len(windows.lead)

    def value(*axes: Expr) -> Expr:
        lead, places = axes[:split], axes[split:]

        def share(*taps: Expr) -> Expr:
            out, legal = windows.above(places, taps)
            flow = widen(grad[(*lead, *out)])
            count = averaged_count(windows, out, count_include_pad, divisor_override, flow.dtype)
            return build.select(legal, flow / count, build.const(0, flow.dtype))

        return build.cast(reduce(SUM, windows.kernel, share), grad.dtype)

    return single((grad,), compute(name, shape, value))


def _adaptive_avg_pool(grad: Operand, *, shape: Sequence[Dim], rank: int) -> Definition:
    name = "adaptive_avg_pool_gradient"
    require_dtype(name, grad, "float")
    shares = shares_of(name, Operand("x", grad.dtype, tuple(shape)), grad.shape[grad.rank - rank :])
    _require_shape(name, grad, shares.shape)
    split = len(shares.lead)

    def place(axes: Sequence[Expr]) -> Sequence[Expr]:
        ranges = shares.ranges(axes[split : split + rank])
        taps = axes[split + rank :]
        return (*axes[:split], *[first + tap for (first, _), tap in zip(ranges, taps, strict=True)])

    def update(axes: Sequence[Expr]) -> Expr:
        count: Expr = build.index(1)
        for _, number in shares.ranges(axes[split : split + rank]):
            count = count * number
        flow = widen(grad[tuple(axes[: split + rank])])
        return flow / build.cast(count, flow.dtype)

    def is_legal(axes: Sequence[Expr]) -> Expr:
        return shares.legal(shares.ranges(axes[split : split + rank]), axes[split + rank :])

    return _summed(name, (grad,), shape, (*shares.shape, *shares.taps), place, update, is_legal)


def _interpolate(
    grad: Operand,
    *,
    shape: Sequence[Dim],
    mode: str,
    align_corners: bool,
    scales: Sequence[float | None] | None,
) -> Definition:
    name = "interpolate_gradient"
    require_dtype(name, grad, "float")
    x = Operand("x", grad.dtype, tuple(shape))
    taps = resampling_taps(name, x, grad.shape[2:], mode, align_corners, scales)
    _require_shape(name, grad, (*shape[:2], *grad.shape[2:]))
    rank = grad.rank
    counts = [len(axis) for axis in taps(fresh_axes(rank - 2))]

    def chosen(axes: Sequence[Expr], part: int) -> list[Expr]:
        """The place (part 0) or the weight (part 1) of the tap that the last axes number."""
        return [_pick(axis, tap, part) for axis, tap in zip(taps(axes[2:rank]), axes[rank:], strict=True)]

    def update(axes: Sequence[Expr]) -> Expr:
        flow = widen(grad[tuple(axes[:rank])])
        for weight in chosen(axes, 1):
            flow = flow * build.cast(weight, flow.dtype)
        return flow

    extents = (*grad.shape, *counts)
    return _summed(name, (grad,), shape, extents, lambda axes: (*axes[:2], *chosen(axes, 0)), update)


def _pick(taps: Sequence[Tap], number: Expr, part: int) -> Expr:
    result = taps[-1][part]
    for position in reversed(range(len(taps) - 1)):
        result = build.select(build.equal(number, position), taps[position][part], result)
    return result


def _infer_attention(types: Sequence[TensorType], attrs: Attrs) -> Sequence[ValueType]:
    return tuple(type_.with_strides(None) for type_ in types[1:4])


def _decompose_attention(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """Dao et al., "FlashAttention", 2022, appendix B.2: weights again from the scores and their logsumexp; in f32."""
    grad, q, k, v, out, logsumexp, mask = (*inputs, None)[:7]
    assert grad and q and k and v and out and logsumexp
    dtype, wide = q.tensor.dtype, arithmetic_dtype(q.tensor.dtype)
    emit = builder.emit

    def widened(value: Value) -> Value:
        return value if value.tensor.dtype == wide else emit("cast", value, dtype=wide)

    group: Dim = heads_per_group(q.tensor.shape[-3], k.tensor.shape[-3]) if attrs["enable_gqa"] else 1
    flow, queries, result = widened(grad), widened(q), widened(out)
    keys, values = widened(k), widened(v)
    if group != 1:
        keys, values = (emit("repeat_interleave", t, repeats=group, axis=-3) for t in (keys, values))
    width = q.tensor.shape[-1]
    scale = attrs["scale"]
    if scale is None and isinstance(width, int):
        scale = 1 / math.sqrt(width)
    factor = emit("full", shape=(), value=width if scale is None else scale, dtype=wide, device=q.tensor.device)
    if scale is None:
        factor = emit("rsqrt", factor)
    scores = emit("mul", emit("matmul", queries, keys, trans_b=True), factor)
    hidden = emit("full", shape=(), value=-math.inf, dtype=wide, device=q.tensor.device)
    if mask is not None:
        is_bool = mask.tensor.dtype.is_bool
        scores = emit("where", mask, scores, hidden) if is_bool else emit("add", scores, widened(mask))
    if attrs["is_causal"]:
        rows, columns = scores.tensor.shape[-2:]
        legal = emit("tri", rows=rows, columns=columns, dtype=dtypes.boolean, device=q.tensor.device)
        scores = emit("where", legal, scores, hidden)
    norm = emit("unsqueeze", widened(logsumexp), axes=(-1,))
    # A row that reads nothing has logsumexp -inf and weights 0, not exp(-inf + inf).
    zero = emit("full", shape=(), value=0.0, dtype=wide, device=q.tensor.device)
    weights = emit("where", emit("isneginf", norm), zero, emit("exp", emit("sub", scores, norm)))
    row_flow = emit("sum", emit("mul", flow, result), axes=(-1,), keepdim=True)
    of_weights = emit("sub", emit("matmul", flow, values, trans_b=True), row_flow)
    of_scores = emit("mul", emit("mul", weights, of_weights), factor)
    gradients = (
        emit("matmul", of_scores, keys),
        emit("matmul", of_scores, queries, trans_a=True),
        emit("matmul", weights, flow, trans_a=True),
    )
    summed = []
    for gradient, source in zip(gradients, (q, k, v), strict=True):
        shape = source.tensor.shape
        if group != 1 and source is not q:
            split = emit("reshape", gradient, shape=(*shape[:-2], group, *shape[-2:]))
            gradient = emit("sum", split, axes=(-3,))
        summed.append(gradient if wide == dtype else emit("cast", gradient, dtype=dtype))
    return summed


_SHAPE = Attribute("shape", doc="shape of the operator's input")
_RANK = Attribute("rank", doc="number of spatial axes")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="max_pool_gradient",
        inputs=("grad", "indices"),
        attributes=(_SHAPE, _RANK),
        define=_max_pool,
        doc="Gradient of max_pool_with_indices, from its second result; torch max_pool2d_with_indices_backward. "
        "Floating-point types; indices of any integer type.",
    ),
    OperatorSpec(
        name="avg_pool_gradient",
        inputs=("grad",),
        attributes=(
            _SHAPE,
            KERNEL,
            POOL_STRIDE,
            PADDING,
            CEIL_MODE,
            Attribute("count_include_pad", True),
            Attribute("divisor_override", None),
        ),
        define=_avg_pool,
        doc="Gradient of avg_pool with the same attributes; torch avg_pool2d_backward. Floating-point types.",
    ),
    OperatorSpec(
        name="adaptive_avg_pool_gradient",
        inputs=("grad",),
        attributes=(_SHAPE, _RANK),
        define=_adaptive_avg_pool,
        doc="Gradient of adaptive_avg_pool; torch _adaptive_avg_pool2d_backward. Floating-point types.",
    ),
    OperatorSpec(
        name="interpolate_gradient",
        inputs=("grad",),
        attributes=(_SHAPE, *RESAMPLING),
        define=_interpolate,
        doc="Gradient of interpolate with the same attributes; torch upsample_bilinear2d_backward and its kin. "
        "Floating-point types.",
    ),
    OperatorSpec(
        name="attention_gradient",
        inputs=("grad", "q", "k", "v", "out", "logsumexp", "mask?"),
        attributes=(Attribute("scale", None), Attribute("is_causal", False), Attribute("enable_gqa", False)),
        infer=_infer_attention,
        decompose=_decompose_attention,
        doc="Gradients of q, k and v from the inputs, attributes and both results of attention_with_logsumexp; leading "
        "axes of q, k and v are equal but for grouped heads. torch scaled_dot_product_attention backward. One "
        "floating-point type; logsumexp in the arithmetic type.",
    ),
)
