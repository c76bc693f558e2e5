"""Scaled dot-product attention in four stages: scores, row maximum, sum of exponentials, weighted sum.

Vaswani et al., "Attention Is All You Need", 2017; masks, grouped queries and rows without any key as in
torch.nn.functional.scaled_dot_product_attention. Everything between the loads and the last rounding is in f32 for f16
and bf16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hidet.compute.definition import MAX, SUM, Compute, Definition, Operand, compute, number, reduce
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    arithmetic_dtype,
    broadcast_shapes,
    present,
    read_broadcast,
    require_broadcasts_to,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
)


def attention_scale(scale: float | None, width: Dim, dtype: DType) -> Expr:
    """The factor on the scores: `scale`, or 1 / sqrt(width) for None."""
    if scale is not None:
        return number(scale, dtype)
    if isinstance(width, int):
        return number(1 / math.sqrt(max(width, 1)), dtype)
    return build.unary("rsqrt", build.cast(build.index(width), dtype))


def heads_per_group(queries: Dim, keys: Dim, name: str = "attention") -> Dim:
    """How many query heads read one key head under grouped queries. ShapeError when they do not divide."""
    if isinstance(queries, int) and isinstance(keys, int) and (keys == 0 or queries % keys):
        raise ShapeError(f"operator {name}: {queries} query heads do not divide among {keys} key heads")
    return queries // keys


@dataclass(frozen=True, slots=True)
class _Extents:
    """batch: axes of the queries before their rows. group: how many query heads, along its last axis, read one key
    head; None where each has its own. wide: the type of arithmetic."""

    batch: tuple[Dim, ...]
    rows: Dim
    length: Dim
    width: Dim
    group: Dim | None
    wide: DType

    def read(self, operand: Operand, outer: Sequence[Expr], inner: tuple[Expr, Expr]) -> Expr:
        """An element of the queries, or of what broadcasts as they do."""
        return build.cast(read_broadcast(operand, (*outer, *inner), (*self.batch, *operand.shape[-2:])), self.wide)

    def read_shared(self, operand: Operand, outer: Sequence[Expr], inner: tuple[Expr, Expr]) -> Expr:
        """An element of the keys or values that the queries at `outer` read."""
        if self.group is None:
            return self.read(operand, outer, inner)
        *front, head = outer
        places = (*front, head // build.index(self.group), *inner)
        return build.cast(read_broadcast(operand, places, (*self.batch[:-1], *operand.shape[-3:])), self.wide)


def _extents(name: str, q: Operand, k: Operand, v: Operand, enable_gqa: bool) -> _Extents:
    """The extents of inputs that fit each other. ShapeError or DTypeError for others."""
    for operand in (q, k, v):
        require_rank(name, operand, at_least=3 if enable_gqa else 2)
        require_dtype(name, operand, "float")
    wide = arithmetic_dtype(require_same_dtype(name, (q, k, v)))
    width = same_extent(q.shape[-1], k.shape[-1], f"operator {name}: last axis of q against k")
    length = same_extent(k.shape[-2], v.shape[-2], f"operator {name}: keys against values")
    heads = 3 if enable_gqa else 2
    batch = broadcast_shapes(name, [operand.shape[:-heads] for operand in (q, k, v)])
    if not enable_gqa:
        return _Extents(batch, q.shape[-2], length, width, None, wide)
    group = heads_per_group(q.shape[-3], k.shape[-3])
    same_extent(k.shape[-3], v.shape[-3], f"operator {name}: key heads against value heads")
    return _Extents((*batch, q.shape[-3]), q.shape[-2], length, width, group, wide)


def _attention(
    name: str,
    with_logsumexp: bool,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    *,
    scale: float | None,
    is_causal: bool,
    enable_gqa: bool,
    dtype: DType | None = None,
) -> Definition:
    extents = _extents(name, q, k, v, enable_gqa)
    batch, rows, length, wide = extents.batch, extents.rows, extents.length, extents.wide
    if dtype not in (None, q.dtype, wide):
        raise DTypeError(f"operator {name}: results of {dtype} for queries of {q.dtype}, expected {q.dtype} or {wide}")
    if mask is not None:
        _check_mask(name, mask, (*batch, rows, length))
    scores = _scores(extents, q, k, mask, attention_scale(scale, extents.width, wide), is_causal)
    rows_of_heads = Rows(
        scores, lambda row: length, lambda row, j, e: extents.read_shared(v, row[:-1], (j, e)), lambda place: place
    )
    stages, outputs = weighted_values(
        name, rows_of_heads, (*batch, rows, v.shape[-1]), dtype or q.dtype, with_logsumexp=with_logsumexp
    )
    return Definition(present(q, k, v, mask), stages, outputs)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of scores, and the values that they weigh.

    scores: the stage [row axes, key]. length: how many keys a row has, by its axes. value: the element at (row axes,
    key, column) in the type of arithmetic. row_of: axes of the row that makes the result at all its axes but the last.
    """

    scores: Compute
    length: Callable[[Sequence[Expr]], Dim | Expr]
    value: Callable[[Sequence[Expr], Expr, Expr], Expr]
    row_of: Callable[[Sequence[Expr]], Sequence[Expr]]


def weighted_values(
    name: str, rows: Rows, shape: Sequence[Dim], dtype: DType, *, with_logsumexp: bool
) -> tuple[tuple[Compute, ...], tuple[Operand, ...]]:
    """The stages from scores to softmax(scores) @ values, of `shape` and `dtype`, and which of them are results: that,
    and log(sum(e ** score)) of each row where it is asked for. A row without keys gives 0, and -inf."""
    scores, wide = rows.scores, rows.scores.result.dtype
    extents = scores.result.shape[:-1]
    top = compute("max", extents, lambda *row: reduce(MAX, (rows.length(row),), lambda j: scores.result[(*row, j)]))

    def weight(row: Sequence[Expr], j: Expr) -> Expr:
        # A row without keys has maximum -inf; shifting it by 0 makes all its weights 0 instead of NaN.
        peak = top.result[tuple(row)]
        shift = build.select(build.equal(peak, -math.inf), build.const(0, wide), peak)
        return build.unary("exp", scores.result[(*row, j)] - shift)

    total = compute("sum", extents, lambda *row: reduce(SUM, (rows.length(row),), lambda j: weight(row, j)))

    def value(*axes: Expr) -> Expr:
        row, e = rows.row_of(axes[:-1]), axes[-1]
        weighted = reduce(SUM, (rows.length(row),), lambda j: weight(row, j) * rows.value(row, j, e))
        norm = total.result[tuple(row)]
        return build.cast(build.select(build.equal(norm, 0), build.const(0, wide), weighted / norm), dtype)

    stage = compute(name, shape, value)
    if not with_logsumexp:
        return (scores, top, total, stage), (stage.result,)
    logsumexp = compute("logsumexp", extents, lambda *row: top.result[row] + build.unary("log", total.result[row]))
    return (scores, top, total, stage, logsumexp), (stage.result, logsumexp.result)


def _scores(extents: _Extents, q: Operand, k: Operand, mask: Operand | None, factor: Expr, is_causal: bool) -> Compute:
    """Products of rows and keys times `factor`, with the mask; -inf where a row does not read a key."""
    wide, shape = extents.wide, (*extents.batch, extents.rows, extents.length)

    def product(outer: Sequence[Expr], i: Expr, j: Expr) -> Expr:
        return reduce(
            SUM, (extents.width,), lambda d: extents.read(q, outer, (i, d)) * extents.read_shared(k, outer, (j, d))
        )

    def score(*axes: Expr) -> Expr:
        *outer, i, j = axes
        total = product(outer, i, j) * factor
        if mask is not None:
            entry, hidden = read_broadcast(mask, axes, shape), build.const(-math.inf, wide)
            total = build.select(entry, total, hidden) if mask.dtype.is_bool else total + build.cast(entry, wide)
        return build.select(i >= j, total, build.const(-math.inf, wide)) if is_causal else total

    return compute("scores", shape, score)


def _check_mask(name: str, mask: Operand, scores: Sequence[Dim]) -> None:
    if not (mask.dtype.is_bool or mask.dtype.is_float):
        raise UnsupportedOp(f"operator {name} takes a mask of bool (true: read) or floats to add, got {mask.dtype}")
    require_broadcasts_to(name, mask, scores)


_INPUTS = ("q", "k", "v", "mask?")
_ATTRIBUTES = (
    Attribute("scale", None, "factor on q @ k.T; None is 1 / sqrt(d)"),
    Attribute("is_causal", False, "row i reads keys 0 to i only"),
    Attribute("enable_gqa", False, "axis -3 holds heads; each key head serves several query heads"),
)
_DOC = (
    "softmax(scale * q[..., s, d] @ k[..., t, d].T + mask) @ v[..., t, e] -> [..., s, e]; leading axes broadcast. mask "
    "broadcasts to [..., s, t]: bool (true: read) or floats that are added. A row that may read nothing gives 0. "
    "torch scaled_dot_product_attention. One floating-point type."
)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="attention",
        inputs=_INPUTS,
        attributes=_ATTRIBUTES,
        kind="anchor",
        define=partial(_attention, "attention", False),
        family="attention",
        layout="bshd",
        doc=_DOC,
    ),
    OperatorSpec(
        name="attention_with_logsumexp",
        inputs=_INPUTS,
        attributes=(
            *_ATTRIBUTES,
            Attribute("dtype", None, "type of the first result: that of q, which is None, or the arithmetic type"),
        ),
        kind="anchor",
        define=partial(_attention, "attention_with_logsumexp", True),
        family="attention",
        layout="bshd",
        doc=_DOC + " Second result: log(sum(e ** scores)) of each row [..., s], in the arithmetic type.",
    ),
)
