"""The steps of docs/tile-kernels.md for any element type and tiles: what tests run small and benchmarks run large."""

# Types of kernels are no types of Python.
# mypy: disable-error-code="valid-type, no-untyped-def, assignment, attr-defined"

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hidet import dims
from hidet.gpu.tile.language import (
    cdiv,
    fetch,
    fill,
    grid,
    load,
    map,
    mma,
    pipeline,
    reduce,
    register,
    shared,
    store,
)
from hidet.gpu.tile.script import TileScript, kernel
from hidet.lang import exp2, f32

m, n, k = (dims.symbol(name) for name in "mnk")
heads, rows, length = (dims.symbol(name) for name in ("heads", "rows", "length"))


@dataclass(frozen=True, slots=True)
class LadderTiles:
    """Rows, columns and depth of a block's tiles, stages of its pipeline, and warps along rows and columns."""

    m: int
    n: int
    k: int
    stages: int
    warps: tuple[int, int]


def naive_product(dtype: Any, tiles: LadderTiles, lowering: str | None = None) -> TileScript:
    """Step 1: a tile a block; loads are waited for where they stand."""
    BM, BN, BK = tiles.m, tiles.n, tiles.k

    @kernel(warps=tiles.warps, lowering=lowering)
    def product(a: dtype[m, k], b: dtype[k, n], c: dtype[m, n]):
        column, row = grid(cdiv(n, BN), cdiv(m, BM))
        total: f32[BM, BN] @ register = fill(0.0)
        for step in range(cdiv(k, BK)):
            tile_a: dtype[BM, BK] @ shared = load(a, row * BM, step * BK)
            tile_b: dtype[BK, BN] @ shared = load(b, step * BK, column * BN)
            total += mma(tile_a, tile_b)
        result: dtype[BM, BN] @ register = map(lambda x: x, total)
        store(c, result, row * BM, column * BN)

    return product


def pipelined_product(dtype: Any, tiles: LadderTiles, lowering: str | None = None) -> TileScript:
    """Step 2, and with warp groups and TMA step 4: loads run ahead of products."""
    BM, BN, BK, STAGES = tiles.m, tiles.n, tiles.k, tiles.stages

    @kernel(warps=tiles.warps, lowering=lowering)
    def product(a: dtype[m, k], b: dtype[k, n], c: dtype[m, n]):
        column, row = grid(cdiv(n, BN), cdiv(m, BM))
        total: f32[BM, BN] @ register = fill(0.0)
        for step in pipeline(cdiv(k, BK), stages=STAGES):
            tile_a: dtype[BM, BK] @ shared = load(a, row * BM, step * BK)
            tile_b: dtype[BK, BN] @ shared = load(b, step * BK, column * BN)
            total += mma(tile_a, tile_b)
        result: dtype[BM, BN] @ register = map(lambda x: x, total)
        store(c, result, row * BM, column * BN)

    return product


def product_with_epilogue(dtype: Any, tiles: LadderTiles, lowering: str | None = None) -> TileScript:
    """Step 3: a bias is added and what is negative becomes zero before the product is stored."""
    BM, BN, BK, STAGES = tiles.m, tiles.n, tiles.k, tiles.stages

    @kernel(warps=tiles.warps, lowering=lowering)
    def linear(a: dtype[m, k], b: dtype[k, n], bias: dtype[n], c: dtype[m, n]):
        column, row = grid(cdiv(n, BN), cdiv(m, BM))
        total: f32[BM, BN] @ register = fill(0.0)
        for step in pipeline(cdiv(k, BK), stages=STAGES):
            tile_a: dtype[BM, BK] @ shared = load(a, row * BM, step * BK)
            tile_b: dtype[BK, BN] @ shared = load(b, step * BK, column * BN)
            total += mma(tile_a, tile_b)
        added: dtype[1, BN] @ register = fetch(bias, 0, column * BN)
        result: dtype[BM, BN] @ register = map(lambda x, y: max(x + y, 0.0), total, added)
        store(c, result, row * BM, column * BN)

    return linear


def attention(
    dtype: Any, depth: int, tiles: LadderTiles, lowering: str | None = None, *, is_causal: bool = False
) -> TileScript:
    """Step 5: softmax(q keys^T / sqrt(depth)) values, of heads that lie one behind the other. tiles: m rows of queries
    and n keys at a time; k is not used. is_causal: row i sees the keys up to number i."""
    ROWS, KEYS, DEPTH, STAGES = tiles.m, tiles.n, depth, tiles.stages
    SCALE = math.log2(math.e) / math.sqrt(DEPTH)

    @kernel(warps=tiles.warps, lowering=lowering)
    def attend(
        q: dtype[heads, rows, DEPTH],
        keys: dtype[heads, length, DEPTH],
        values: dtype[heads, length, DEPTH],
        out: dtype[heads, rows, DEPTH],
    ):
        block, head = grid(cdiv(rows, ROWS), heads)
        first = block * ROWS
        seen = min(length, first + ROWS) if is_causal else length
        tile_q: dtype[ROWS, DEPTH] @ shared = load(q[head], first, 0)
        total: f32[ROWS, DEPTH] @ register = fill(0.0)
        row_sum: f32[ROWS, 1] @ register = fill(0.0)
        top: f32[ROWS, 1] @ register = fill(-1e30)
        for step in pipeline(cdiv(seen, KEYS), stages=STAGES):
            tile_k: dtype[KEYS, DEPTH] @ shared = load(keys[head], step * KEYS, 0)
            tile_v: dtype[KEYS, DEPTH] @ shared = load(values[head], step * KEYS, 0)
            scores: f32[ROWS, KEYS] @ register = fill(0.0)
            scores += mma(tile_q, tile_k.T)
            # Only the last tiles have keys that a row does not see.
            last = min(length, first + 1) if is_causal else length
            if last < (step + 1) * KEYS:
                scores = map(
                    lambda x, row, column: (
                        x if step * KEYS + column < (min(length, first + row + 1) if is_causal else length) else -1e30
                    ),
                    scores,
                )
            step_top = reduce("max", scores, axis=1)
            new_top = map(max, top, step_top)
            factor = map(lambda old, new: exp2((old - new) * SCALE), top, new_top)
            top = map(lambda x: x, new_top)
            scores = map(lambda x, y: exp2((x - y) * SCALE), scores, top)
            step_sum = reduce("add", scores, axis=1)
            row_sum = map(lambda x, f, more: x * f + more, row_sum, factor, step_sum)
            total = map(lambda x, f: x * f, total, factor)
            total += mma(scores, tile_v)
        result: dtype[ROWS, DEPTH] @ register = map(lambda x, whole: x / whole, total, row_sum)
        store(out[head], result, first, 0)

    return attend
