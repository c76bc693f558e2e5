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
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.statements import Load, TileStmt, fill, load, map, mma, reduce, ring, store, when, when_any
from hidet.gpu.tile.tensors import Computed, GTensor, RTile, STile
from hidet.ir import build
from hidet.ir.expr import Expr, Var

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
    length = heads.keys.rows
    last = build.minimum(length, first + tiles.rows) if is_causal else length
    queries, keys, values = _shared_tiles(heads, tiles)
    scoring = _Scoring(scale, score, visible, is_causal, first, length, tiles)
    softmax = _softmax(tiles, heads.value_depth, scoring.factor)

    def loads(step: Expr) -> list[Load]:
        return [load(keys, heads.keys, step * tiles.keys, 0), load(values, heads.values, step * tiles.keys, 0)]

    def body(step: Expr) -> list[TileStmt]:
        at = step * tiles.keys
        return [
            fill(softmax.scores, 0),
            mma(softmax.scores, queries, keys, b_is_transposed=True),
            *scoring.changed(softmax.scores, at),
            when(edge < at + tiles.keys, scoring.bounded(softmax.scores, at)),
            *softmax.shifted(),
            *softmax.rescaled(),
            *softmax.weighed(),
            mma(softmax.total, softmax.scores, values),
        ]

    return TileKernel(
        name,
        params,
        grid_vars,
        (tiles.warps, 1),
        (
            load(queries, heads.queries, first, 0),
            *softmax.started(),
            ring((seen + (tiles.keys - 1)) // tiles.keys, tiles.stages, loads, body),
            *softmax.finished(heads, first),
        ),
        (
            *index_values,
            (first, block * tiles.rows),
            # Keys that some row sees, and those that every row sees.
            (seen, last),
            (edge, build.minimum(length, first + 1) if is_causal else length),
        ),
    )


def _shared_tiles(heads: Heads, tiles: AttentionTiles) -> tuple[STile, STile, STile]:
    """Queries of a block, keys and values of a step."""
    return (
        STile("tile_q", heads.queries.dtype, tiles.rows, heads.depth),
        STile("tile_k", heads.keys.dtype, tiles.keys, heads.depth),
        STile("tile_v", heads.values.dtype, tiles.keys, heads.value_depth),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Scoring:
    """How scores come from products of queries and keys. first: the block's first row; length: how many keys there are.

    In `scores`, keys count from `at`, the first one of a step.
    """

    scale: float
    score: Score | None
    visible: Visible | None
    is_causal: bool
    first: Expr
    length: Expr
    tiles: AttentionTiles

    @property
    def is_raw(self) -> bool:
        """Whether scores stay products and the scale goes into the exponent: if nothing is added, unless the scale
        makes the least one the largest."""
        return self.score is None and self.scale > 0

    @property
    def factor(self) -> float:
        """Scores times this are exponents of two."""
        return self.scale * math.log2(math.e) if self.is_raw else 1.0

    def changed(self, scores: RTile, at: Expr) -> list[TileStmt]:
        """Products become scores, of which those that a row does not see are hidden."""
        visible, done = self.visible, list[TileStmt]()
        if not self.is_raw:
            done.append(map(scores, [scores], lambda product, row, column: self._scored(product, row, at, column)))
        if visible is not None:

            def kept(value: Expr, row: Expr, column: Expr) -> Expr:
                return build.select(visible(self.first + row, at, column), value, _HIDDEN)

            done.append(map(scores, [scores], kept))
        return done

    def _scored(self, product: Expr, row: Expr, at: Expr, column: Expr) -> Expr:
        """The score as an exponent of two."""
        scaled = product * self.scale
        changed = scaled if self.score is None else self.score(scaled, self.first + row, at, column)
        return changed * math.log2(math.e)

    def bounded(self, scores: RTile, at: Expr) -> list[TileStmt]:
        """Hide keys that are not there, or that come after a row if it sees none of these."""
        limit = RTile("limit", dtypes.i32, self.tiles.rows, 1)
        return [
            map(limit, [], lambda row, column: self._limit(row, at)),
            map(
                scores,
                [scores, limit],
                lambda value, end, row, column: build.select(build.cast(column, dtypes.i32) < end, value, _HIDDEN),
            ),
        ]

    def _limit(self, row: Expr, at: Expr) -> Expr:
        """How many keys of the tile a row sees. Bounded by what matters, the numbers fit into 32 bits."""
        rows, keys = self.tiles.rows, self.tiles.keys
        count = _bounded(self.length - at, 0, keys)
        if not self.is_causal:
            return count
        ahead = _bounded(self.first + 1 - at, -rows, keys)
        return build.minimum(count, ahead + build.cast(row, dtypes.i32))


@dataclass(frozen=True, slots=True, eq=False)
class _Softmax:
    """The running softmax of a block's rows, in registers.

    scores: those of a step, then its weights. total, weight: sums of weighted values and of weights, the latter in
    parts; more: those of a step. most: the largest score so far, largest: that with a step's, shift: its exponent of
    two. less: what sums count for since. factor: scores times it are exponents of two.
    """

    factor: float
    scores: RTile
    total: RTile
    weight: RTile
    more: RTile
    most: RTile
    largest: RTile
    shift: RTile
    less: RTile

    def started(self) -> list[TileStmt]:
        """No key is seen."""
        return [fill(self.total, 0), fill(self.weight, 0), fill(self.most, _HIDDEN), fill(self.shift, 0)]

    def shifted(self) -> list[TileStmt]:
        """The largest score with those of a step."""
        factor = self.factor
        return [
            reduce(self.largest, self.scores, 1, "max"),
            map(self.largest, [self.most, self.largest], lambda old, new, row, column: build.maximum(old, new)),
            map(self.shift, [self.largest], lambda top, row, column: _shift(top, factor)),
            map(self.less, [self.most, self.shift], lambda old, new, row, column: _exp2(old * factor - new)),
            map(self.most, [self.largest], lambda top, row, column: top),
        ]

    def rescaled(self) -> list[TileStmt]:
        """What was summed before a larger score came counts for less."""
        scaled = [
            map(sums, [sums, self.less], lambda sum_, factor, row, column: sum_ * factor)
            for sums in (self.total, self.weight)
        ]
        if self.total.columns <= _SHORT:
            return [*scaled]
        return [when_any(self.less, lambda factor: build.binary("ne", factor, 1.0), scaled)]

    def weighed(self) -> list[TileStmt]:
        """Scores of a step become weights, and are summed."""
        scores, factor = self.scores, self.factor
        return [
            map(scores, [scores, self.shift], lambda value, top, row, column: _exp2(value * factor - top)),
            reduce(self.more, scores, 1, "add"),
            map(self.weight, [self.weight, self.more], lambda sum_, new, row, column: sum_ + new),
        ]

    def finished(self, heads: Heads, first: Expr) -> list[TileStmt]:
        """Results are stored, and logarithms of sums where they are asked for."""
        rows, dtype = self.total.rows, heads.result.dtype
        whole, inverse = RTile("whole", dtypes.f32, rows, 1), RTile("inverse", dtypes.f32, rows, 1)
        result = RTile("result", dtype, rows, heads.value_depth)

        def normalised(sum_: Expr, norm: Expr, factor: Expr, row: Expr, column: Expr) -> Expr:
            """The result of a row; 0 where it has seen no key."""
            value = build.select(build.equal(norm, 0.0), build.const(0, dtypes.f32), sum_ * factor)
            return build.cast(value, dtype)

        done: list[TileStmt] = [
            reduce(whole, self.weight, 1, "add"),
            map(inverse, [whole], lambda sum_, row, column: build.const(1, dtypes.f32) / sum_),
            map(result, [self.total, whole, inverse], normalised),
            store(heads.result, result, first, 0),
        ]
        if heads.logsumexp is not None:
            logarithms = map(self.largest, [self.shift, whole], lambda top, sum_, row, column: _logarithm(top, sum_))
            done += [logarithms, store(heads.logsumexp, self.largest, first, 0)]
        return done


def _softmax(tiles: AttentionTiles, value_depth: int, factor: float) -> _Softmax:
    """The tiles of f32 for the rows of a block."""

    def tile(name: str, columns: int) -> RTile:
        return RTile(name, dtypes.f32, tiles.rows, columns)

    sums = (tile("scores", tiles.keys), tile("total", value_depth), tile("weight", _PARTS), tile("more", _PARTS))
    return _Softmax(factor, *sums, *(tile(name, 1) for name in ("most", "largest", "shift", "less")))


def _bounded(value: Expr, least: int, most: int) -> Expr:
    return build.cast(build.maximum(build.minimum(value, most), least), dtypes.i32)


def _exp2(value: Expr) -> Expr:
    return intrinsic_call("gpu.exp2_approx", value)


def _shift(top: Expr, factor: float) -> Expr:
    """The exponent of the largest score; 0 for a row that has seen no key: its weights are then 0, not NaN."""
    return build.select(build.equal(top, _HIDDEN), build.const(0, dtypes.f32), top * factor)


def _logarithm(shift: Expr, weight: Expr) -> Expr:
    """log(sum(e ** score)) of a row."""
    return (shift + build.unary("log2", weight)) * math.log(2)
