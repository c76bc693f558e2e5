"""Scaled dot-product attention with a running softmax, so that scores are never stored.

A block computes some rows of the result. It keeps its queries in shared memory, while keys and values come through a
ring; scores, weights and the result stay in registers (Dao et al., "FlashAttention", 2022; Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018). Weights are powers of two, whose factor is folded into the one
multiplication that takes the largest score away; only tiles at the edge of what rows see are compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.tile.kernel import TileKernel
from hidet.tile.statements import Load, TileStmt, fill, load, map, mma, reduce, ring, store, when, when_any
from hidet.tile.tensors import Computed, GTensor, RTile, STile

_HIDDEN = -math.inf
_PARTS = 4
"""Partial sums of a row, one for each thread that holds some of its scores."""

_SHORT = 64
"""Elements of a row of the result that are scaled in less time than it takes to find out that they need not be."""

Score = Callable[[Expr, Expr, Expr, Expr], Expr]
"""(scaled score, row, first key of a tile, number of the key in it) -> score, in f32. Both may lie outside."""

Visible = Callable[[Expr, Expr, Expr], Expr]
"""(row, first key of a tile, number of the key in it) -> whether the row sees the key. Both may lie outside."""


@dataclass(frozen=True, slots=True)
class AttentionTiles:
    """How much a block computes: `rows` of the result, with `keys` keys a step, `stages` of them in shared memory, by
    `warps` warps that share the rows."""

    rows: int = 64
    keys: int = 64
    stages: int = 2
    warps: int = 4


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """The matrices of one head: queries [rows, depth], keys [length, depth], values [length, value_depth], result.

    depth, value_depth: extents of tiles, at least those of the matrices; what lies beyond is zero. logsumexp: a column
    of f32, log(sum(e ** score)) of each row, or None.
    """

    queries: GTensor | Computed
    keys: GTensor | Computed
    values: GTensor | Computed
    result: GTensor
    depth: int
    value_depth: int
    logsumexp: GTensor | None = None


def attention_kernel(
    name: str,
    params: tuple[Var, ...],
    heads: Heads,
    scale: float,
    tiles: AttentionTiles,
    *,
    grid_vars: tuple[Var, ...],
    block: Expr,
    index_values: Sequence[tuple[Var, Expr]] = (),
    score: Score | None = None,
    visible: Visible | None = None,
    is_causal: bool = False,
) -> TileKernel:
    """result = softmax(scale * queries keys^T) values; rows without any key are zero.

    grid_vars: the block's indices, which the matrices' pointers may mention. block: which tile of rows is computed.
    index_values: what is computed once before: (variable, value). score, visible: what becomes of a score, and
    which keys a row sees; None for nothing, and all. is_causal: a row sees keys up to its own number.
    """
    first, edge, seen = (build.size_var(which) for which in ("first_row", "edge", "seen"))
    queries, keys, values = (
        STile(which, source.dtype, rows, depth)
        for which, source, rows, depth in (
            ("tile_q", heads.queries, tiles.rows, heads.depth),
            ("tile_k", heads.keys, tiles.keys, heads.depth),
            ("tile_v", heads.values, tiles.keys, heads.value_depth),
        )
    )
    f32 = dtypes.f32
    scores, total = RTile("scores", f32, tiles.rows, tiles.keys), RTile("total", f32, tiles.rows, heads.value_depth)
    weight, more = (RTile(which, f32, tiles.rows, _PARTS) for which in ("weight", "more"))
    most, largest, shift, less, whole, inverse = (
        RTile(which, f32, tiles.rows, 1) for which in ("most", "largest", "shift", "less", "whole", "inverse")
    )
    limit = RTile("limit", dtypes.i32, tiles.rows, 1)
    result = RTile("result", heads.result.dtype, tiles.rows, heads.value_depth)
    # If nothing is added, scores stay products and the scale goes into the exponent; not if it makes the least one the
    # largest.
    is_raw = score is None and scale > 0
    factor = scale * math.log2(math.e) if is_raw else 1.0

    def loads(step: Expr) -> list[Load]:
        return [load(keys, heads.keys, step * tiles.keys, 0), load(values, heads.values, step * tiles.keys, 0)]

    def scored(product: Expr, row: Expr, at: Expr, column: Expr) -> Expr:
        """The score as an exponent of two."""
        scaled = product * scale
        return (scaled if score is None else score(scaled, row, at, column)) * math.log2(math.e)

    scaled_down = [
        map(total, [total, less], lambda sum_, factor, row, column: sum_ * factor),
        map(weight, [weight, less], lambda sum_, factor, row, column: sum_ * factor),
    ]
    rescaled: list[TileStmt] = [*scaled_down]
    if heads.value_depth > _SHORT:
        rescaled = [when_any(less, lambda factor: build.binary("ne", factor, 1.0), scaled_down)]

    def hide(step: Expr) -> list[TileStmt]:
        """Hide keys of a tile that are not there, or that a row does not see."""
        at = step * tiles.keys

        def visible(row: Expr, column: Expr) -> Expr:
            """How many keys of the tile a row sees. Bounded by what matters, the numbers fit into 32 bits."""
            count = _bounded(heads.keys.rows - at, 0, tiles.keys)
            if not is_causal:
                return count
            ahead = _bounded(first + 1 - at, -tiles.rows, tiles.keys)
            return build.minimum(count, ahead + build.cast(row, dtypes.i32))

        return [
            map(limit, [], visible),
            map(
                scores,
                [scores, limit],
                lambda value, end, row, column: build.select(build.cast(column, dtypes.i32) < end, value, _HIDDEN),
            ),
        ]

    def body(step: Expr) -> list[TileStmt]:
        at = step * tiles.keys
        known = [] if is_raw else [map(scores, [scores], lambda s, row, column: scored(s, first + row, at, column))]
        if visible is not None:
            seen_by = visible

            def kept(value: Expr, row: Expr, column: Expr) -> Expr:
                return build.select(seen_by(first + row, at, column), value, _HIDDEN)

            known.append(map(scores, [scores], kept))
        return [
            fill(scores, 0),
            mma(scores, queries, keys, b_is_transposed=True),
            *known,
            when(edge < at + tiles.keys, hide(step)),
            reduce(largest, scores, 1, "max"),
            map(largest, [most, largest], lambda old, new, row, column: build.maximum(old, new)),
            map(shift, [largest], lambda top, row, column: _shift(top, factor)),
            # What was summed before a larger score came counts for less.
            map(less, [most, shift], lambda old, new, row, column: _exp2(old * factor - new)),
            map(most, [largest], lambda top, row, column: top),
            *rescaled,
            map(scores, [scores, shift], lambda value, top, row, column: _exp2(value * factor - top)),
            reduce(more, scores, 1, "add"),
            map(weight, [weight, more], lambda sum_, new, row, column: sum_ + new),
            mma(total, scores, values),
        ]

    def normalised(sum_: Expr, norm: Expr, factor: Expr, row: Expr, column: Expr) -> Expr:
        """The result of a row; 0 where it has seen no key."""
        value = build.select(build.equal(norm, 0.0), build.const(0, f32), sum_ * factor)
        return build.cast(value, heads.result.dtype)

    length = heads.keys.rows
    last = build.minimum(length, first + tiles.rows) if is_causal else length
    logsumexp: list[TileStmt] = []
    if heads.logsumexp is not None:
        logsumexp = [
            map(largest, [shift, whole], lambda top, sum_, row, column: _logarithm(top, sum_)),
            store(heads.logsumexp, largest, first, 0),
        ]
    return TileKernel(
        name,
        params,
        grid_vars,
        (tiles.warps, 1),
        (
            load(queries, heads.queries, first, 0),
            fill(total, 0),
            fill(weight, 0),
            fill(most, _HIDDEN),
            fill(shift, 0),
            ring((seen + (tiles.keys - 1)) // tiles.keys, tiles.stages, loads, body),
            reduce(whole, weight, 1, "add"),
            map(inverse, [whole], lambda sum_, row, column: build.const(1, f32) / sum_),
            map(result, [total, whole, inverse], normalised),
            store(heads.result, result, first, 0),
            *logsumexp,
        ),
        (
            *index_values,
            (first, block * tiles.rows),
            # Keys that some row sees, and those that every row sees.
            (seen, last),
            (edge, build.minimum(length, first + 1) if is_causal else length),
        ),
    )


def _bounded(value: Expr, least: int, most: int) -> Expr:
    return build.cast(build.maximum(build.minimum(value, most), least), dtypes.i32)


def _exp2(value: Expr) -> Expr:
    return intrinsic_call("cuda.exp2_approx", value)


def _shift(top: Expr, factor: float) -> Expr:
    """The exponent of the largest score; 0 for a row that has seen no key: its weights are then 0, not NaN."""
    return build.select(build.equal(top, _HIDDEN), build.const(0, dtypes.f32), top * factor)


def _logarithm(shift: Expr, weight: Expr) -> Expr:
    """log(sum(e ** score)) of a row."""
    return (shift + build.unary("log2", weight)) * math.log(2)
