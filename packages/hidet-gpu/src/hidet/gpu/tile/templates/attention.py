"""Scaled dot-product attention with an online softmax, so that scores are never stored.

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
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, RTile, STile
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.schedule.attention_problem import exponent_of_two

_HIDDEN = -math.inf
_PARTIAL_SUMS = 4
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
class Band:
    """Which keys rows see by their numbers: row r those from r + low to r + high, i64 values; None for no bound.

    may_be_empty: whether rows may see no key by that, and blocks begin behind the last row, where they have nothing to
    do. Else the first row sees the first key.
    """

    low: Expr | None = None
    high: Expr | None = None
    may_be_empty: bool = False

    def first_key(self, row: Expr) -> Expr:
        """The first key that a row sees, and those behind it."""
        return build.index(0) if self.low is None else build.maximum(row + self.low, 0)

    def end(self, length: Expr, next_row: Expr) -> Expr:
        """The first key of `length` behind those that the row before `next_row` sees; below `first_key` if it sees
        none."""
        return length if self.high is None else build.minimum(length, next_row + self.high)

    def seen(self, length: Expr, first: Expr, next_row: Expr, begin: Expr, rows: Expr) -> Expr:
        """The first key behind those that rows from `first` to `next_row` see, of `rows`; at least `begin`."""
        last = self.end(length, next_row)
        return build.select(first < rows, build.maximum(last, begin), begin) if self.may_be_empty else last


EVERY = Band()
"""Every row sees every key."""


def causal() -> Band:
    """A row sees keys up to its own number."""
    return Band(high=build.index(0))


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """The matrices of one head: queries [rows, depth], keys [length, depth], values [length, value_depth], result.

    depth, value_depth: extents of tiles, at least those of the matrices; what lies beyond is zero. rooms: columns that
    rows of depth and of value_depth elements have room for in shared memory; 0 for their own. logsumexp: a column of
    f32, log(sum(e ** score)) of each row, or None.
    """

    queries: GTensor | Gathered | Computed
    keys: GTensor | Computed
    values: GTensor | Computed
    result: GTensor
    depth: int
    value_depth: int
    logsumexp: GTensor | None = None
    rooms: tuple[int, int] = (0, 0)


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
    part: tuple[Expr, Expr] | None = None,
    band: Band = EVERY,
    is_skewed: bool = False,
) -> TileKernel:
    """result = softmax(scale * queries keys^T) values; rows without any key are zero.

    grid_vars: the block's indices, which the matrices' pointers may mention. block: which tile of rows is computed.
    index_values: what is computed once before: (variable, value). part: (first, number of) keys that are seen,
    counted by `score` and `visible` from the first one; None for all. score, visible: what becomes of a score, and
    which keys a row sees; None for nothing, and all. band: which keys a row sees by its number, and theirs.
    is_skewed: the values of a step are multiplied in the next one, beside the softmax of that (Shah et al.,
    "FlashAttention-3", 2024).
    """
    first, edge, seen = (build.size_var(which) for which in ("first_row", "edge", "seen"))
    first_key, length = part or (build.index(0), heads.keys.rows)
    begin = build.index(0) if band.low is None else build.size_var("begin")
    queries, keys, values = _shared_tiles(heads, tiles)
    scoring = _Scoring(scale, score, visible, band, first, length, tiles)
    softmax = _softmax(tiles, heads.value_depth, scoring.factor)

    steps = (seen - begin + (tiles.keys - 1)) // tiles.keys

    def loads(step: Expr) -> list[Load]:
        at = first_key + begin + step * tiles.keys
        # What lies behind the matrix is not read.
        of_values = build.select(step > 0, at - tiles.keys, heads.values.rows) if is_skewed else at
        return [load(keys, heads.keys, at, 0), load(values, heads.values, of_values, 0)]

    def scored(at: Expr, *rescaled: RTile) -> list[TileStmt]:
        return [
            fill(softmax.scores, 0),
            mma(softmax.scores, queries, keys, b_is_transposed=True),
            *scoring.apply_score(softmax.scores, at),
            *scoring.apply_bounds(softmax.scores, edge, at),
            *softmax.update_max(),
            *softmax.rescale(softmax.row_sum, *rescaled),
            *softmax.exponentiate(),
        ]

    weighted = mma(softmax.total, softmax.scores, values)

    def body(step: Expr) -> list[TileStmt]:
        at = begin + step * tiles.keys
        if not is_skewed:
            return [*scored(at, softmax.total), weighted]
        return [
            when(build.equal(step, 0), scored(at)),
            when(build.logical_and(step > 0, step < steps), [weighted, *scored(at), *softmax.rescale(softmax.total)]),
            when(build.equal(step, steps), [weighted]),
        ]

    return TileKernel(
        name,
        params,
        grid_vars,
        (tiles.warps, 1),
        (
            load(queries, heads.queries, first, 0),
            *softmax.start(),
            *([fill(softmax.scores, 0)] if is_skewed else []),
            ring(build.select(steps > 0, steps + 1, steps) if is_skewed else steps, tiles.stages, loads, body),
            *softmax.finish(heads, first),
        ),
        (
            *index_values,
            (first, block * tiles.rows),
            # Keys before those that some row sees, and up to which some row and every row sees all.
            *([(begin, band.first_key(first))] if isinstance(begin, Var) else []),
            (seen, band.seen(length, first, first + tiles.rows, begin, heads.queries.rows)),
            (edge, band.end(length, first + 1)),
        ),
    )


def _shared_tiles(heads: Heads, tiles: AttentionTiles) -> tuple[STile, STile, STile]:
    """Queries of a block, keys and values of a step."""
    return (
        STile("tile_q", heads.queries.dtype, tiles.rows, heads.depth, heads.rooms[0]),
        STile("tile_k", heads.keys.dtype, tiles.keys, heads.depth, heads.rooms[0]),
        STile("tile_v", heads.values.dtype, tiles.keys, heads.value_depth, heads.rooms[1]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Scoring:
    """How scores come from products of queries and keys. first: the block's first row; length: how many keys there are.

    In `scores`, keys count from `at`, the first one of a step.
    """

    scale: float
    score: Score | None
    visible: Visible | None
    band: Band
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

    def apply_score(self, scores: RTile, at: Expr) -> list[TileStmt]:
        """Turn products into scores, and hide those that a row does not see."""
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
        return exponent_of_two(changed)

    def apply_bounds(self, scores: RTile, edge: Expr, at: Expr) -> list[TileStmt]:
        """Hide keys that are not there, or that are outside of the band of a row, in tiles where some row has them.
        edge: keys that every row sees the last of."""
        limit = RTile("limit", dtypes.i32, self.tiles.rows, 1)
        behind = [
            map(limit, [], lambda row, column: self._limit(row, at)),
            map(
                scores,
                [scores, limit],
                lambda value, end, row, column: build.select(build.cast(column, dtypes.i32) < end, value, _HIDDEN),
            ),
        ]
        done: list[TileStmt] = [when(edge < at + self.tiles.keys, behind)]
        if self.band.low is None:
            return done
        start, first = RTile("start", dtypes.i32, self.tiles.rows, 1), self.first + self.band.low
        ahead = self._ahead(first - at)
        before = [
            map(start, [], lambda row, column: ahead + build.cast(row, dtypes.i32)),
            map(
                scores,
                [scores, start],
                lambda value, begin, row, column: build.select(build.cast(column, dtypes.i32) < begin, _HIDDEN, value),
            ),
        ]
        return [*done, when(at < first + (self.tiles.rows - 1), before)]

    def _limit(self, row: Expr, at: Expr) -> Expr:
        """How many keys of the tile a row sees, or none if that is below zero."""
        count = _bounded(self.length - at, 0, self.tiles.keys)
        if self.band.high is None:
            return count
        ahead = self._ahead(self.first + 1 + self.band.high - at)
        return build.minimum(count, ahead + build.cast(row, dtypes.i32))

    def _ahead(self, number: Expr) -> Expr:
        """A number of keys for the block's first row. Bounded by what matters, it fits into 32 bits."""
        return _bounded(number, -self.tiles.rows, self.tiles.keys)


@dataclass(frozen=True, slots=True, eq=False)
class _Softmax:
    """The online softmax of a block's rows, in registers.

    scores: those of a step, then its weights. total: sum of weighted values. row_sum: sum of weights, in
    `_PARTIAL_SUMS` columns; step_sum: that of a step. row_max: the largest score so far; new_max: that with a step's;
    scaled_max: new_max times factor, 0 where a row has seen no key. correction: exp2(old max - new max), both scaled,
    which rescales total and row_sum. factor: scores times it are exponents of two.
    """

    factor: float
    scores: RTile
    total: RTile
    row_sum: RTile
    step_sum: RTile
    row_max: RTile
    new_max: RTile
    scaled_max: RTile
    correction: RTile

    def start(self) -> list[TileStmt]:
        """Statements before the first step: no key is seen."""
        return [fill(self.total, 0), fill(self.row_sum, 0), fill(self.row_max, _HIDDEN), fill(self.scaled_max, 0)]

    def update_max(self) -> list[TileStmt]:
        """Take in the largest scores of a step."""
        factor = self.factor
        return [
            reduce(self.new_max, self.scores, 1, "max"),
            map(self.new_max, [self.row_max, self.new_max], lambda old, new, row, column: build.maximum(old, new)),
            map(self.scaled_max, [self.new_max], lambda top, row, column: _scaled_max(top, factor)),
            map(
                self.correction,
                [self.row_max, self.scaled_max],
                lambda old, new, row, column: _exp2(old * factor - new),
            ),
            map(self.row_max, [self.new_max], lambda top, row, column: top),
        ]

    def rescale(self, *tiles: RTile) -> list[TileStmt]:
        """Make sums of earlier steps relative to the new maximum."""
        scaled = [map(sums, [sums, self.correction], lambda sum_, factor, row, column: sum_ * factor) for sums in tiles]
        if max(sums.columns for sums in tiles) <= _SHORT:
            return [*scaled]
        return [when_any(self.correction, lambda factor: build.binary("ne", factor, 1.0), scaled)]

    def exponentiate(self) -> list[TileStmt]:
        """Turn the scores of a step into weights, and add them up."""
        scores, factor = self.scores, self.factor
        return [
            map(scores, [scores, self.scaled_max], lambda value, top, row, column: _exp2(value * factor - top)),
            reduce(self.step_sum, scores, 1, "add"),
            map(self.row_sum, [self.row_sum, self.step_sum], lambda sum_, new, row, column: sum_ + new),
        ]

    def finish(self, heads: Heads, first: Expr) -> list[TileStmt]:
        """Store results, and logarithms of sums where they are asked for."""
        rows, dtype = self.total.rows, heads.result.dtype
        whole, inverse = RTile("whole", dtypes.f32, rows, 1), RTile("inverse", dtypes.f32, rows, 1)
        result = RTile("result", dtype, rows, heads.value_depth)

        def normalised(sum_: Expr, norm: Expr, factor: Expr, row: Expr, column: Expr) -> Expr:
            """The result of a row; 0 where it has seen no key."""
            value = build.select(build.equal(norm, 0.0), build.const(0, dtypes.f32), sum_ * factor)
            return build.cast(value, dtype)

        done: list[TileStmt] = [
            reduce(whole, self.row_sum, 1, "add"),
            map(inverse, [whole], lambda sum_, row, column: build.const(1, dtypes.f32) / sum_),
            map(result, [self.total, whole, inverse], normalised),
            store(heads.result, result, first, 0),
        ]
        if heads.logsumexp is not None:
            logarithms = map(
                self.new_max, [self.scaled_max, whole], lambda top, sum_, row, column: _logarithm(top, sum_)
            )
            done += [logarithms, store(heads.logsumexp, self.new_max, first, 0)]
        return done


def _softmax(tiles: AttentionTiles, value_depth: int, factor: float) -> _Softmax:
    """The tiles of f32 for the rows of a block."""

    def tile(name: str, columns: int) -> RTile:
        return RTile(name, dtypes.f32, tiles.rows, columns)

    sums = (
        tile("scores", tiles.keys),
        tile("total", value_depth),
        tile("row_sum", _PARTIAL_SUMS),
        tile("step_sum", _PARTIAL_SUMS),
    )
    return _Softmax(factor, *sums, *(tile(name, 1) for name in ("row_max", "new_max", "scaled_max", "correction")))


def _bounded(value: Expr, least: int, most: int) -> Expr:
    return build.cast(build.maximum(build.minimum(value, most), least), dtypes.i32)


def _exp2(value: Expr) -> Expr:
    return intrinsic_call("gpu.exp2_approx", value)


def _scaled_max(top: Expr, factor: float) -> Expr:
    """The exponent of the largest score; 0 for a row that has seen no key: its weights are then 0, not NaN."""
    return build.select(build.equal(top, _HIDDEN), build.const(0, dtypes.f32), top * factor)


def _logarithm(scaled_max: Expr, row_sum: Expr) -> Expr:
    """log(sum(e ** score)) of a row."""
    return (scaled_max + build.unary("log2", row_sum)) * math.log(2)
