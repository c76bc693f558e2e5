"""Scaled dot-product attention with a running softmax, so that scores are never stored.

A block computes some rows of the result. It keeps its queries in shared memory, while keys and values come through a
ring; scores, weights and the result stay in registers (Dao et al., "FlashAttention", 2022; Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.tile.kernel import TileKernel
from hidet.tile.statements import Load, TileStmt, fill, load, map, mma, reduce, ring, store
from hidet.tile.tensors import GTensor, RTile, STile

_HIDDEN = -math.inf


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

    depth, value_depth: extents of tiles, at least those of the matrices; what lies beyond is zero.
    """

    queries: GTensor
    keys: GTensor
    values: GTensor
    result: GTensor
    depth: int
    value_depth: int


def attention_kernel(
    name: str,
    params: tuple[Var, ...],
    heads: Heads,
    scale: Expr | float,
    tiles: AttentionTiles,
    *,
    grid_vars: tuple[Var, ...] = (),
    score: Callable[[Expr, Expr, Expr], Expr] | None = None,
    is_causal: bool = False,
) -> TileKernel:
    """result = softmax(score(scale * queries keys^T)) values; rows without any key are zero.

    grid_vars: further block indices, which the matrices' pointers may mention; the first one counts tiles of rows.
    score(value, row, key) adds a mask or hides a key by -inf, in f32; it is asked for places inside the matrices alone.
    is_causal: a row sees keys up to its own number.
    """
    block = build.size_var("block_row")
    first = build.size_var("first_row")
    queries, keys, values = (
        STile(which, heads.queries.dtype, rows, depth)
        for which, rows, depth in (
            ("tile_q", tiles.rows, heads.depth),
            ("tile_k", tiles.keys, heads.depth),
            ("tile_v", tiles.keys, heads.value_depth),
        )
    )
    f32 = dtypes.f32
    scores, total = RTile("scores", f32, tiles.rows, tiles.keys), RTile("total", f32, tiles.rows, heads.value_depth)
    most, weight, before, now = (RTile(which, f32, tiles.rows, 1) for which in ("most", "weight", "before", "now"))
    result = RTile("result", heads.result.dtype, tiles.rows, heads.value_depth)

    def loads(step: Expr) -> list[Load]:
        return [load(keys, heads.keys, step * tiles.keys, 0), load(values, heads.values, step * tiles.keys, 0)]

    def scored(step: Expr) -> Callable[[Expr, Expr, Expr], Expr]:
        """The score of a place in the tile, as an exponent of two; -inf for keys that are not seen."""

        def value(product: Expr, row: Expr, column: Expr) -> Expr:
            row, key = first + row, step * tiles.keys + column
            seen = build.logical_and(key < heads.keys.rows, row < heads.queries.rows)
            if is_causal:
                seen = build.logical_and(seen, key <= row)
            scaled = product * scale
            wanted = scaled if score is None else score(scaled, row, key)
            return build.select(seen, wanted * math.log2(math.e), _HIDDEN)

        return value

    def body(step: Expr) -> list[TileStmt]:
        return [
            fill(scores, 0),
            mma(scores, queries, keys, b_is_transposed=True),
            map(scores, [scores], scored(step)),
            reduce(now, scores, 1, "max"),
            map(before, [most], lambda old, row, column: old),
            map(most, [most, now], lambda old, new, row, column: build.maximum(old, new)),
            map(scores, [scores, most], lambda value, top, row, column: _exp2(value - _shift(top))),
            reduce(now, scores, 1, "add"),
            # What was summed before a larger score came counts for less.
            map(before, [before, most], lambda old, new, row, column: _rescale(old, new)),
            map(weight, [weight, before, now], lambda sum_, factor, more, row, column: sum_ * factor + more),
            map(total, [total, before], lambda sum_, factor, row, column: sum_ * factor),
            mma(total, scores, values),
        ]

    steps = (heads.keys.rows + (tiles.keys - 1)) // tiles.keys
    if is_causal:
        steps = build.minimum(steps, (first + (tiles.rows + tiles.keys - 1)) // tiles.keys)
    return TileKernel(
        name,
        params,
        (block, *grid_vars),
        (tiles.warps, 1),
        (
            load(queries, heads.queries, first, 0),
            fill(total, 0),
            fill(weight, 0),
            fill(most, _HIDDEN),
            ring(steps, tiles.stages, loads, body),
            map(
                result,
                [total, weight],
                lambda sum_, norm, row, column: build.cast(_normalised(sum_, norm), heads.result.dtype),
            ),
            store(heads.result, result, first, 0),
        ),
        ((first, block * tiles.rows),),
    )


def _normalised(total: Expr, weight: Expr) -> Expr:
    """The result of a row; 0 where it has seen no key."""
    return build.select(build.equal(weight, 0.0), build.const(0, dtypes.f32), total / weight)


def _exp2(value: Expr) -> Expr:
    return build.unary("exp2", value)


def _shift(top: Expr) -> Expr:
    """The largest score of a row, 0 for a row that has seen no key: its weights are then 0, not NaN."""
    return build.select(build.equal(top, _HIDDEN), build.const(0, dtypes.f32), top)


def _rescale(old: Expr, new: Expr) -> Expr:
    """2 ** (old - new); 0 where nothing had been seen."""
    return build.select(build.equal(old, _HIDDEN), build.const(0, dtypes.f32), _exp2(old - new))
