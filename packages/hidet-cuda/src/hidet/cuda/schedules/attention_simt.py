"""Attention without matrix units: for f32 and f64, and for what tensor cores cannot take.

A block of 16 rows of threads computes some rows of one head with a running softmax. Of n threads of a row, 8 or 16 in
one warp, thread j of row i has every 16th row from i on, every nth key of a step from j on, and every nth group of
neighbouring columns of the result from group j on. Eight threads read less from shared memory for a product than
sixteen, which hold fewer sums each. Keys arrive there while values are summed, and values while keys are scored, so
that neither needs a second buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Load, Var
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Stmt, Store
from hidet.ir.types import BufferType, with_lanes
from hidet.tile import statements as t
from hidet.tile.lower.copy import box_copy
from hidet.tile.lower.fragment import ALL_LANES, block_threads
from hidet.tile.templates.attention import Score, Visible
from hidet.tile.tensors import Computed, GTensor, STile

SIDE = 16
"""Rows of threads."""
_CHUNK_BYTES = 16
"""Of the widest access to shared memory."""


@dataclass(frozen=True, slots=True)
class SimtTiles:
    """How much a block computes: `rows` rows of the result, with `keys` keys a step, both multiples of 16.

    columns: threads of each of its 16 rows of threads.
    """

    rows: int
    keys: int
    columns: int = 16

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return SIDE * self.columns

    def padded(self, width: int) -> int:
        """Columns of the result that a block has, as many for each thread of a row."""
        return -(-width // self.columns) * self.columns

    def nbytes(self, depth: int, width: int, dtype: DType) -> int:
        """Bytes of shared memory where rows of keys and of values have these extents."""
        lines = ((self.rows, depth), (self.keys, depth), (self.keys, self.padded(width)), (self.rows, self.keys))
        return sum(count * _pitch(extent, dtype) for count, extent in lines) * dtype.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What a block computes: rows of a head from `first` on.

    queries, keys, values: matrices of the type of the sums. depth, width: extents of a row of keys and of values.
    store(row, column, values), store_logsumexp(row, value): what becomes of neighbouring results, for rows inside.
    """

    first: Expr
    queries: GTensor | Computed
    keys: GTensor | Computed
    values: GTensor | Computed
    depth: int
    width: int
    store: Callable[[Expr, Expr, Expr], Stmt]
    store_logsumexp: Callable[[Expr, Expr], Stmt] | None


def simt_attention(
    work: Rows, tiles: SimtTiles, scale: float, *, score: Score | None, visible: Visible | None, is_causal: bool
) -> list[Stmt]:
    """The statements of a block: softmax(scale * queries keys^T) values; rows without any key are zero."""
    return list(_Block(work, tiles, scale, score, visible, is_causal).stmts())


def _pitch(extent: int, dtype: DType) -> int:
    """Elements of a row in shared memory: an odd number of chunks, so that rows begin in different banks."""
    return (-(-extent * dtype.nbytes // _CHUNK_BYTES) | 1) * _CHUNK_BYTES // dtype.nbytes


class _Tile:
    """Rows in shared memory that are read by chunks."""

    def __init__(self, name: str, dtype: DType, rows: int, extent: int) -> None:
        self.tile = STile(name, dtype, rows, _pitch(extent, dtype))
        self.buffer = Var(name, BufferType(dtype, (build.index(rows * self.tile.columns),), space="shared"))

    def place(self, row: Expr, column: Expr) -> Expr:
        return row * self.tile.columns + column

    def read(self, row: Expr, column: Expr, lanes: int) -> tuple[Stmt, list[Expr]]:
        """The declaration of neighbours in a row, and the elements."""
        group = Var(self.tile.name[-1], with_lanes(self.tile.dtype, lanes))
        declared = Declare(group, build.load(self.buffer, self.place(row, column), lanes=lanes))
        return declared, [build.extract(group, n) for n in range(lanes)] if lanes > 1 else [group]


class _Block:
    def __init__(
        self,
        work: Rows,
        tiles: SimtTiles,
        scale: float,
        score: Score | None,
        visible: Visible | None,
        is_causal: bool,
    ) -> None:
        self.work = work
        self.tiles = tiles
        self.scale = scale
        self.score = score
        self.visible = visible
        self.is_causal = is_causal
        self.dtype = dtype = work.queries.dtype
        self.chunk = _CHUNK_BYTES // dtype.nbytes
        self.row_count, self.key_count = tiles.rows // SIDE, tiles.keys // tiles.columns
        self.column_count = tiles.padded(work.width) // tiles.columns
        # The largest power of two that divides a thread's columns, up to a chunk.
        self.lanes = math.gcd(self.column_count, self.chunk)
        self.threads = block_threads((tiles.threads // 32, 1))
        self.row, self.column = (build.size_var(name) for name in ("row", "column"))
        self.tile_q = _Tile("tile_q", dtype, tiles.rows, work.depth)
        self.tile_k = _Tile("tile_k", dtype, tiles.keys, work.depth)
        self.tile_v = _Tile("tile_v", dtype, tiles.keys, tiles.padded(work.width))
        self.tile_w = _Tile("tile_w", dtype, tiles.rows, tiles.keys)
        self.scores = self._register("scores", self.key_count)
        self.totals = self._register("totals", self.column_count)
        self.most = self._register("most", 1)
        self.weight = self._register("weight", 1)

    def _register(self, name: str, columns: int) -> Var:
        shape = (build.index(self.row_count), build.index(columns))
        return Var(name, BufferType(self.dtype, shape, space="register"))

    def row_of(self, i: int) -> Expr:
        """The i-th row of a thread, in its block."""
        return self.row + i * SIDE

    def key_of(self, j: int) -> Expr:
        """The j-th key of a thread, in its step."""
        return self.column + j * self.tiles.columns

    def column_of(self, j: int) -> Expr:
        """The first column of the j-th group of a thread."""
        return self.column * self.lanes + j * self.tiles.columns * self.lanes

    def number(self, value: float) -> Expr:
        return build.const(value, self.dtype)

    def stmts(self) -> Iterator[Stmt]:
        work, keys = self.work, self.tiles.keys
        yield Declare(self.threads.thread, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64))
        yield Declare(self.row, self.threads.thread // self.tiles.columns)
        yield Declare(self.column, self.threads.thread % self.tiles.columns)
        for tile in (self.tile_q, self.tile_k, self.tile_v, self.tile_w):
            yield Declare(tile.buffer)
        for held in (self.scores, self.totals, self.most, self.weight):
            yield Declare(held)
        yield from self.fill(self.totals, self.column_count, 0)
        yield from self.fill(self.most, 1, -math.inf)
        yield from self.fill(self.weight, 1, 0)
        step, first_key, seen = (build.size_var(name) for name in ("step", "first_key", "seen"))
        copies = [
            box_copy(t.load(tile.tile, source, row, 0), tile.buffer, self.threads, step)
            for tile, source, row in (
                (self.tile_q, work.queries, work.first),
                (self.tile_k, work.keys, step * keys),
                (self.tile_v, work.values, step * keys),
            )
        ]
        queries, first_keys, values = copies
        for copy in copies:
            yield from copy.before
        yield queries.start({}, build.index(0))
        yield first_keys.start({step: build.index(0)}, build.index(0))
        last = build.minimum(work.keys.rows, work.first + self.tiles.rows) if self.is_causal else work.keys.rows
        yield Declare(seen, last)
        later = first_keys.start({step: step + 1}, build.index(0))
        body = [
            Declare(first_key, step * keys),
            *_arrived(),
            values.start({}, build.index(0)),
            *self.fill(self.scores, self.key_count, 0),
            self.score_keys(),
            *_arrived(),
            If(first_key + keys < seen, later),
            *[stmt for i in range(self.row_count) for stmt in self.weigh(i, first_key)],
            Evaluate(intrinsic_call("cuda.syncwarp", ALL_LANES)),
            self.sum_values(),
        ]
        yield For(step, build.index(0), (seen + (keys - 1)) // keys, build.seq(body))
        yield from _arrived()
        for i in range(self.row_count):
            yield from self.finish(i)

    def fill(self, held: Var, columns: int, value: float) -> Iterator[Stmt]:
        for i in range(self.row_count):
            for j in range(columns):
                yield self.set(held, i, j, self.number(value))

    def set(self, held: Var, i: int, j: int, value: Expr) -> Stmt:
        return Store(held, (build.index(i), build.index(j)), value)

    def score_keys(self) -> Stmt:
        """Products of the block's queries with the keys of a step, a chunk of their rows a turn."""
        turn = build.size_var("turn")
        at = turn * self.chunk
        body: list[Stmt] = []
        right: list[list[Expr]] = []
        for j in range(self.key_count):
            declared, elements = self.tile_k.read(self.key_of(j), at, self.chunk)
            body.append(declared)
            right.append(elements)
        for i in range(self.row_count):
            declared, left = self.tile_q.read(self.row_of(i), at, self.chunk)
            body.append(declared)
            for j, elements in enumerate(right):
                body += [self.add(self.scores, i, j, x * y) for x, y in zip(left, elements, strict=True)]
        return For(turn, build.index(0), build.index(-(-self.work.depth // self.chunk)), build.seq(body))

    def sum_values(self) -> Stmt:
        """Add the values of a step by their weights, a chunk of which is read a turn."""
        turn = build.size_var("turn")
        at = turn * self.chunk
        body: list[Stmt] = []
        right: list[list[Expr]] = []
        for n in range(self.chunk):
            right.append([])
            for group in range(self.column_count // self.lanes):
                declared, elements = self.tile_v.read(at + n, self.column_of(group), self.lanes)
                body.append(declared)
                right[n] += elements
        for i in range(self.row_count):
            declared, left = self.tile_w.read(self.row_of(i), at, self.chunk)
            body.append(declared)
            for x, values in zip(left, right, strict=True):
                body += [self.add(self.totals, i, j, x * y) for j, y in enumerate(values)]
        return For(turn, build.index(0), build.index(self.tiles.keys // self.chunk), build.seq(body))

    def add(self, held: Var, i: int, j: int, value: Expr) -> Stmt:
        return self.set(held, i, j, build.load(held, i, j) + value)

    def weigh(self, i: int, first_key: Expr) -> Iterator[Stmt]:
        """Row i: scores become weights, which other threads read; what was summed before is scaled."""
        row = self.work.first + self.row_of(i)
        largest, shift, less, total = (Var(name, self.dtype) for name in ("largest", "shift", "less", "total"))
        limit = Var("limit", dtypes.i32)
        end = self.work.keys.rows
        if self.is_causal:
            end = build.minimum(end, row + 1)
        # Bounded by what matters, the number of keys that the row sees fits into 32 bits.
        bounded = build.maximum(build.minimum(end - first_key, self.tiles.keys), 0)
        yield Declare(limit, build.cast(bounded, dtypes.i32))
        yield Declare(largest, build.load(self.most, i, 0))
        for j in range(self.key_count):
            value = build.load(self.scores, i, j) * self.scale
            value = value if self.score is None else self.score(value, row, first_key, self.key_of(j))
            is_seen = build.cast(self.key_of(j), dtypes.i32) < limit
            if self.visible is not None:
                is_seen = build.logical_and(is_seen, self.visible(row, first_key, self.key_of(j)))
            yield self.set(self.scores, i, j, build.select(is_seen, value, self.number(-math.inf)))
            yield Assign(largest, build.maximum(largest, build.load(self.scores, i, j)))
        yield from self.folded("max", largest)
        # A row that has seen no key: its weights are then 0, not NaN.
        yield Declare(shift, build.select(build.equal(largest, -math.inf), self.number(0), largest))
        yield Declare(less, build.unary("exp", build.load(self.most, i, 0) - shift))
        yield self.set(self.most, i, 0, largest)
        yield Declare(total, build.load(self.weight, i, 0) * less)
        for j in range(self.key_count):
            weight = Var("weight", self.dtype)
            yield Declare(weight, build.unary("exp", build.load(self.scores, i, j) - shift))
            yield Assign(total, total + weight)
            yield Store(self.tile_w.buffer, (self.tile_w.place(self.row_of(i), self.key_of(j)),), weight)
        yield self.set(self.weight, i, 0, total)
        for j in range(self.column_count):
            yield self.set(self.totals, i, j, build.load(self.totals, i, j) * less)

    def finish(self, i: int) -> Iterator[Stmt]:
        """Row i: its sum over the threads, and its results."""
        row, total, inverse = Var("own_row", dtypes.i64), Var("sum", self.dtype), Var("inverse", self.dtype)
        yield Declare(total, build.load(self.weight, i, 0))
        yield from self.folded("add", total)
        yield Declare(inverse, self.number(1) / total)
        for j in range(self.column_count):
            value = build.load(self.totals, i, j) * inverse
            yield self.set(self.totals, i, j, build.select(build.equal(total, 0.0), self.number(0), value))
        stores: list[Stmt] = []
        for group in range(self.column_count // self.lanes):
            place = (build.index(i), build.index(group * self.lanes))
            values = Load(self.totals, place, with_lanes(self.dtype, self.lanes))
            stores.append(self.work.store(row, self.column_of(group), values))
        if self.work.store_logsumexp is not None:
            logarithm = build.load(self.most, i, 0) + build.unary("log", total)
            stores.append(If(build.equal(self.column, 0), self.work.store_logsumexp(row, logarithm)))
        yield Declare(row, self.work.first + self.row_of(i))
        yield If(row < self.work.queries.rows, build.seq(stores))

    def folded(self, op: str, value: Var) -> Iterator[Stmt]:
        """Fold a variable over the threads of a row."""
        distance = self.tiles.columns // 2
        while distance:
            other = intrinsic_call("cuda.shuffle_xor", ALL_LANES, value, distance, 32)
            yield Assign(value, build.binary(op, value, other))
            distance //= 2


def _arrived() -> tuple[Stmt, Stmt]:
    """All copies have arrived, and all threads have read what was there before the next ones."""
    return Evaluate(intrinsic_call("cuda.copy_async_wait_all")), Evaluate(intrinsic_call("cuda.syncthreads"))
