"""Attention without matrix units: for f32 and f64, and for what tensor cores cannot take.

A block of 16 rows of threads computes some rows of one head with an online softmax. Of n threads of a row, 8 or 16 in
one warp, thread j of row i has every 16th row from i on, every nth key of a step from j on, and every nth group of
neighbouring columns of the result from group j on. Eight threads read less from shared memory for a product than
sixteen, which hold fewer sums each. Keys arrive there while values are summed, and values while keys are scored, so
that neither needs a second buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.exchange import barrier, thread_in_block
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.lower.copy import box_copy
from hidet.gpu.tile.lower.fragment import ALL_LANES, block_threads
from hidet.gpu.tile.lower.machine import BackgroundCopies
from hidet.gpu.tile.templates.attention import Band, Score, Visible
from hidet.gpu.tile.tensors import Computed, GTensor, STile
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.types import BufferType

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
    store(k, row, column, values), store_logsumexp(k, row, value): write neighbouring results, for rows inside.
    """

    first: Expr
    queries: GTensor | Computed
    keys: GTensor | Computed
    values: GTensor | Computed
    depth: int
    width: int
    store: Callable[[IRBuilder, Expr, Expr, Expr], None]
    store_logsumexp: Callable[[IRBuilder, Expr, Expr], None] | None


def simt_attention(
    k: IRBuilder,
    work: Rows,
    tiles: SimtTiles,
    scale: float,
    *,
    score: Score | None,
    visible: Visible | None,
    band: Band,
    copies: BackgroundCopies | None,
) -> None:
    """What a block does: softmax(scale * queries keys^T) values; rows without any key are zero.

    score, visible, band: as of `attention_kernel`. copies: that the device makes in the background; None where threads
    copy at once.
    """
    _Block(work, tiles, scale, score, visible, band, copies).emit(k)


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

    def read(self, k: IRBuilder, row: Expr, column: Expr, lanes: int) -> list[Expr]:
        """Neighbours in a row, read at once."""
        group = k.let(self.tile.name[-1], build.load(self.buffer, self.place(row, column), lanes=lanes))
        return [build.extract(group, n) for n in range(lanes)] if lanes > 1 else [group]


class _Block:
    def __init__(
        self,
        work: Rows,
        tiles: SimtTiles,
        scale: float,
        score: Score | None,
        visible: Visible | None,
        band: Band,
        copies: BackgroundCopies | None,
    ) -> None:
        self.work = work
        self.tiles = tiles
        self.scale = scale
        self.score = score
        self.visible = visible
        self.band = band
        self.copies = copies
        self.dtype = dtype = work.queries.dtype
        self.chunk = _CHUNK_BYTES // dtype.nbytes
        self.row_count, self.key_count = tiles.rows // SIDE, tiles.keys // tiles.columns
        self.column_count = tiles.padded(work.width) // tiles.columns
        # The largest power of two that divides a thread's columns, up to a chunk.
        self.lanes = math.gcd(self.column_count, self.chunk)
        self.threads = block_threads((tiles.threads // WARP, 1))
        self.row, self.column = (build.size_var(name) for name in ("row", "column"))
        self.tile_q = _Tile("tile_q", dtype, tiles.rows, work.depth)
        self.tile_k = _Tile("tile_k", dtype, tiles.keys, work.depth)
        self.tile_v = _Tile("tile_v", dtype, tiles.keys, tiles.padded(work.width))
        self.tile_w = _Tile("tile_w", dtype, tiles.rows, tiles.keys)
        self.scores = self._register("scores", self.key_count)
        self.totals = self._register("totals", self.column_count)
        self.row_max = self._register("row_max", 1)
        self.row_sum = self._register("row_sum", 1)

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

    def emit(self, k: IRBuilder) -> None:
        work, keys = self.work, self.tiles.keys
        k.declare(self.threads.thread, thread_in_block())
        k.declare(self.row, self.threads.thread // self.tiles.columns)
        k.declare(self.column, self.threads.thread % self.tiles.columns)
        for tile in (self.tile_q, self.tile_k, self.tile_v, self.tile_w):
            k.declare(tile.buffer)
        for held in (self.scores, self.totals, self.row_max, self.row_sum):
            k.declare(held)
        self.fill(k, self.totals, self.column_count, 0)
        self.fill(k, self.row_max, 1, -math.inf)
        self.fill(k, self.row_sum, 1, 0)
        step, start = build.size_var("step"), build.index(0)
        begin = self.band.first_key(work.first)
        begin = begin if self.band.low is None else k.let("begin", begin)
        queries, first_keys, values = copies = [
            box_copy(t.load(tile.tile, source, row, 0), tile.buffer, self.threads, self.copies, step)
            for tile, source, row in (
                (self.tile_q, work.queries, work.first),
                (self.tile_k, work.keys, begin + step * keys),
                (self.tile_v, work.values, begin + step * keys),
            )
        ]
        for copy in copies:
            k.emit(*copy.before)
        k.emit(queries.start({}, start), first_keys.start({step: start}, start))
        after = work.first + self.tiles.rows
        seen = k.let("seen", self.band.seen(work.keys.rows, work.first, after, begin, work.queries.rows))
        with k.loop(step, (seen - begin + (keys - 1)) // keys):
            first_key = k.let("first_key", begin + step * keys)
            self.wait(k)
            k.emit(values.start({}, start))
            self.fill(k, self.scores, self.key_count, 0)
            self.score_keys(k)
            self.wait(k)
            with k.if_(first_key + keys < seen):
                k.emit(first_keys.start({step: step + 1}, start))
            for i in range(self.row_count):
                self.weigh(k, i, first_key)
            k.run(intrinsic_call("gpu.syncwarp", ALL_LANES))
            self.sum_values(k)
        self.wait(k)
        for i in range(self.row_count):
            self.finish(k, i)

    def fill(self, k: IRBuilder, held: Var, columns: int, value: float) -> None:
        for i in range(self.row_count):
            for j in range(columns):
                k.store(held, (i, j), self.number(value))

    def score_keys(self, k: IRBuilder) -> None:
        """Products of the block's queries with the keys of a step, a chunk of their rows a turn."""
        with k.for_range("turn", -(-self.work.depth // self.chunk)) as turn:
            at = turn * self.chunk
            right = [self.tile_k.read(k, self.key_of(j), at, self.chunk) for j in range(self.key_count)]
            for i in range(self.row_count):
                left = self.tile_q.read(k, self.row_of(i), at, self.chunk)
                for j, elements in enumerate(right):
                    for x, y in zip(left, elements, strict=True):
                        self.add(k, self.scores, i, j, x * y)

    def sum_values(self, k: IRBuilder) -> None:
        """Add the values of a step by their weights, a chunk of which is read a turn."""
        firsts = [self.column_of(group) for group in range(self.column_count // self.lanes)]
        with k.for_range("turn", self.tiles.keys // self.chunk) as turn:
            at = turn * self.chunk
            right = [
                [value for first in firsts for value in self.tile_v.read(k, at + n, first, self.lanes)]
                for n in range(self.chunk)
            ]
            for i in range(self.row_count):
                left = self.tile_w.read(k, self.row_of(i), at, self.chunk)
                for x, values in zip(left, right, strict=True):
                    for j, y in enumerate(values):
                        self.add(k, self.totals, i, j, x * y)

    def add(self, k: IRBuilder, held: Var, i: int, j: int, value: Expr) -> None:
        k.store(held, (i, j), build.load(held, i, j) + value)

    def weigh(self, k: IRBuilder, i: int, first_key: Expr) -> None:
        """Row i: scores become weights, which other threads read; what was summed before is scaled."""
        row = self.work.first + self.row_of(i)
        limit = self.key_in_step(k, "limit", self.band.end(self.work.keys.rows, row + 1), first_key)
        low = self.band.low
        start = None if low is None else self.key_in_step(k, "start", row + low, first_key)
        new_max = k.let("new_max", build.load(self.row_max, i, 0))
        for j in range(self.key_count):
            value = build.load(self.scores, i, j) * self.scale
            value = value if self.score is None else self.score(value, row, first_key, self.key_of(j))
            key = build.cast(self.key_of(j), dtypes.i32)
            is_seen = key < limit if start is None else build.logical_and(key < limit, start <= key)
            if self.visible is not None:
                is_seen = build.logical_and(is_seen, self.visible(row, first_key, self.key_of(j)))
            k.store(self.scores, (i, j), build.select(is_seen, value, self.number(-math.inf)))
            k.assign(new_max, build.maximum(new_max, build.load(self.scores, i, j)))
        self.reduce(k, "max", new_max)
        # A row that has seen no key: its weights are then 0, not NaN.
        finite_max = k.let("finite_max", build.select(build.equal(new_max, -math.inf), self.number(0), new_max))
        correction = k.let("correction", build.unary("exp", build.load(self.row_max, i, 0) - finite_max))
        k.store(self.row_max, (i, 0), new_max)
        total = k.let("total", build.load(self.row_sum, i, 0) * correction)
        for j in range(self.key_count):
            weight = k.let("weight", build.unary("exp", build.load(self.scores, i, j) - finite_max))
            k.assign(total, total + weight)
            k.store(self.tile_w.buffer, self.tile_w.place(self.row_of(i), self.key_of(j)), weight)
        k.store(self.row_sum, (i, 0), total)
        for j in range(self.column_count):
            k.store(self.totals, (i, j), build.load(self.totals, i, j) * correction)

    def key_in_step(self, k: IRBuilder, name: str, key: Expr, first_key: Expr) -> Var:
        """The number of a key in a step. Bounded by what matters, it fits into 32 bits."""
        bounded = build.maximum(build.minimum(key - first_key, self.tiles.keys), 0)
        return k.let(name, build.cast(bounded, dtypes.i32))

    def finish(self, k: IRBuilder, i: int) -> None:
        """Row i: its sum over the threads, and its results."""
        total = k.let("sum", build.load(self.row_sum, i, 0))
        self.reduce(k, "add", total)
        inverse = k.let("inverse", self.number(1) / total)
        for j in range(self.column_count):
            value = build.load(self.totals, i, j) * inverse
            k.store(self.totals, (i, j), build.select(build.equal(total, 0.0), self.number(0), value))
        row = k.let("own_row", self.work.first + self.row_of(i))
        with k.if_(row < self.work.queries.rows):
            for group in range(self.column_count // self.lanes):
                values = build.load(self.totals, i, group * self.lanes, lanes=self.lanes)
                self.work.store(k, row, self.column_of(group), values)
            if self.work.store_logsumexp is not None:
                with k.if_(build.equal(self.column, 0)):
                    logarithm = build.load(self.row_max, i, 0) + build.unary("log", total)
                    self.work.store_logsumexp(k, row, logarithm)

    def reduce(self, k: IRBuilder, op: str, value: Var) -> None:
        """Reduce a variable over the threads of a row."""
        distance = self.tiles.columns // 2
        while distance:
            other = intrinsic_call("gpu.shuffle_xor", ALL_LANES, value, distance, WARP)
            k.assign(value, build.binary(op, value, other))
            distance //= 2

    def wait(self, k: IRBuilder) -> None:
        """Until all copies have arrived, and all threads have read what was there before the next ones."""
        if self.copies is not None:
            k.emit(self.copies.wait_all())
        k.emit(barrier())
