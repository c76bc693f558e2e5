"""Attention without matrix units: for f32 and f64, and for what tensor cores cannot take.

A block of 16 x 16 threads computes some rows of one head with a running softmax. Thread (i, j) has the i-th of sixteen
parts of the rows, and the j-th of the keys of a step, or of the result's columns: groups of neighbours that are read
from shared memory at once, every sixteenth group. The sixteen threads of a row are neighbours in a warp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Stmt, Store
from hidet.ir.types import BufferType, with_lanes
from hidet.tile.templates.attention import Score, Visible

THREADS = 256
_SIDE = 16
_KEYS = 64
_STEP = 16
_ACCESS = 16
"""Bytes of the widest access to shared memory."""

Element = Callable[[Expr, Expr], Expr]
"""(row, column) -> an element of a matrix, in the type of the sums; asked for places inside alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What a block computes: `height` rows, a multiple of 16, of the `rows` of a head, from `first` on; `length` keys.

    queries, keys, values: elements. store(row, column, value), store_logsumexp(row, value): what becomes of results,
    for rows inside. depth, width: extents of a row of keys and of values.
    """

    height: int
    first: Expr
    rows: Expr
    length: Expr
    queries: Element
    keys: Element
    values: Element
    store: Callable[[Expr, Expr, Expr], Stmt]
    store_logsumexp: Callable[[Expr, Expr], Stmt] | None
    depth: int
    width: int


def simt_attention(
    work: Rows, scale: float, dtype: DType, *, score: Score | None, visible: Visible | None, is_causal: bool
) -> list[Stmt]:
    """The statements of a block: softmax(scale * queries keys^T) values in `dtype`; rows without any key are zero."""
    return list(_Block(work, scale, dtype, score, visible, is_causal).stmts())


def _place(part: Expr, number: int, lanes: int) -> Expr:
    """Where element `number` of part `part` of sixteen lies: groups of `lanes` neighbours, every sixteenth one."""
    return part * lanes + (number // lanes * _SIDE * lanes + number % lanes)


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The `count` elements of a row of a shared tile that a thread has, which is number `part` of sixteen."""

    tile: Var
    part: Expr
    count: int
    lanes: int

    def read(self, row: Expr) -> tuple[list[Stmt], list[Expr]]:
        """Loads of the elements of a row, and the elements."""
        stmts: list[Stmt] = []
        elements: list[Expr] = []
        for first in range(0, self.count, self.lanes):
            group = Var(self.tile.name[-1], with_lanes(self.tile.dtype, self.lanes))
            value = build.load(self.tile, row, _place(self.part, first, self.lanes), lanes=self.lanes)
            stmts.append(Declare(group, value))
            elements += [build.extract(group, n) for n in range(self.lanes)] if self.lanes > 1 else [group]
        return stmts, elements


class _Block:
    def __init__(
        self, work: Rows, scale: float, dtype: DType, score: Score | None, visible: Visible | None, is_causal: bool
    ) -> None:
        self.work = work
        self.scale = scale
        self.dtype = dtype
        self.score = score
        self.visible = visible
        self.is_causal = is_causal
        self.each = work.height // _SIDE
        self.row_lanes, self.key_lanes = (self._lanes(count) for count in (self.each, _KEYS // _SIDE))
        self.column_lanes = self._lanes(-(-work.width // _SIDE))
        self.key_each = _KEYS // _SIDE
        self.column_each = -(-work.width // (_SIDE * self.column_lanes)) * self.column_lanes
        # A group of neighbours more a row, so that columns of a tile lie in different banks when it is filled.
        widest = _ACCESS // dtype.nbytes
        self.thread, self.row, self.column = (build.size_var(name) for name in ("thread", "row", "column"))
        self.tile_q = self._shared("tile_q", _STEP, work.height + widest)
        self.tile_k = self._shared("tile_k", _STEP, _KEYS + widest)
        self.tile_v = self._shared("tile_v", _STEP, self.column_each * _SIDE)
        self.tile_w = self._shared("tile_w", _KEYS, work.height + widest)
        self.scores = self._register("scores", self.each, self.key_each)
        self.totals = self._register("totals", self.each, self.column_each)
        self.most = self._register("most", self.each, 1)
        self.weight = self._register("weight", self.each, 1)

    def _lanes(self, count: int) -> int:
        """How many neighbours are read at once where a thread has `count` elements."""
        return min(_ACCESS // self.dtype.nbytes, 1 << (count - 1).bit_length())

    def row_of(self, i: int) -> Expr:
        """The i-th row of a thread, in its block."""
        return _place(self.row, i, self.row_lanes)

    def key_of(self, j: int) -> Expr:
        """The j-th key of a thread, in its step."""
        return _place(self.column, j, self.key_lanes)

    def column_of(self, j: int) -> Expr:
        """The j-th column of a thread."""
        return _place(self.column, j, self.column_lanes)

    def _shared(self, name: str, rows: int, pitch: int) -> Var:
        return Var(name, BufferType(self.dtype, (build.index(rows), build.index(pitch)), space="shared"))

    def _register(self, name: str, rows: int, columns: int) -> Var:
        return Var(name, BufferType(self.dtype, (build.index(rows), build.index(columns)), space="register"))

    def number(self, value: float) -> Expr:
        return build.const(value, self.dtype)

    def stmts(self) -> Iterator[Stmt]:
        yield Declare(self.thread, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64))
        yield Declare(self.row, self.thread // _SIDE)
        yield Declare(self.column, self.thread % _SIDE)
        for tile in (self.tile_q, self.tile_k, self.tile_v, self.tile_w):
            yield Declare(tile)
        for held in (self.scores, self.totals, self.most, self.weight):
            yield Declare(held)
        yield from self.fill(self.totals, self.column_each, 0)
        yield from self.fill(self.most, 1, -math.inf)
        yield from self.fill(self.weight, 1, 0)
        seen = self.work.length
        if self.is_causal:
            seen = build.minimum(seen, self.work.first + self.work.height)
        step = build.size_var("step")
        first_key = build.size_var("first_key")
        body = build.seq(
            [
                Declare(first_key, step * _KEYS),
                *self.fill(self.scores, self.key_each, 0),
                self.score_keys(first_key),
                *[stmt for i in range(self.each) for stmt in self.weigh(i, first_key)],
                self.sum_values(first_key),
            ]
        )
        yield For(step, build.index(0), (seen + (_KEYS - 1)) // _KEYS, body)
        for i in range(self.each):
            yield from self.finish(i)

    def fill(self, held: Var, columns: int, value: float) -> Iterator[Stmt]:
        for i in range(self.each):
            for j in range(columns):
                yield self.set(held, i, j, self.number(value))

    def set(self, held: Var, i: int, j: int, value: Expr) -> Stmt:
        return Store(held, (build.index(i), build.index(j)), value)

    def score_keys(self, first_key: Expr) -> Stmt:
        """Products of the block's queries with the keys of a step."""
        work = self.work
        at = build.size_var("at")
        start = at * _STEP
        depth = build.index(work.depth)
        fill_q = self.load(self.tile_q, work.height, work.first, work.rows, start, depth, work.queries)
        fill_k = self.load(self.tile_k, _KEYS, first_key, work.length, start, depth, work.keys)
        left = _Groups(self.tile_q, self.row, self.each, self.row_lanes)
        right = _Groups(self.tile_k, self.column, self.key_each, self.key_lanes)
        product = self.multiply(self.scores, left, right, build.index(0))
        body = build.seq([fill_q, fill_k, _meet(), product, _meet()])
        return For(at, build.index(0), build.index(-(-work.depth // _STEP)), body)

    def load(self, tile: Var, lines: int, first: Expr, end: Expr, start: Expr, depth: Expr, read: Element) -> Stmt:
        """tile[k][line] = element (first + line, start + k), zero outside; neighbouring threads read neighbours."""
        turn, part = build.size_var("turn"), build.size_var("part")
        line, k = part // _STEP, part % _STEP
        inside = build.logical_and(first + line < end, start + k < depth)
        value = build.select(inside, read(first + line, start + k), self.number(0))
        body = build.seq([Declare(part, turn * THREADS + self.thread), Store(tile, (k, line), value)])
        return For(turn, build.index(0), build.index(lines * _STEP // THREADS), body, kind="unroll")

    def multiply(self, held: Var, left: _Groups, right: _Groups, first: Expr) -> Stmt:
        """held[i][j] += left[k][i] right[k][j], summed over a step; the left tile is read from row `first` on."""
        k = build.size_var("k")
        loads_a, a = left.read(first + k)
        loads_b, b = right.read(k)
        body = [*loads_a, *loads_b]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                body.append(self.set(held, i, j, build.load(held, i, j) + x * y))
        return For(k, build.index(0), build.index(_STEP), build.seq(body), kind="unroll")

    def weigh(self, i: int, first_key: Expr) -> Iterator[Stmt]:
        """Row i: scores become weights, which other threads read; what was summed before is scaled."""
        row = self.work.first + self.row_of(i)
        largest, shift, less, total = (Var(name, self.dtype) for name in ("largest", "shift", "less", "total"))
        yield Declare(largest, build.load(self.most, i, 0))
        for j in range(self.key_each):
            key = first_key + self.key_of(j)
            value = build.load(self.scores, i, j) * self.scale
            value = value if self.score is None else self.score(value, row, first_key, self.key_of(j))
            is_seen = key < self.work.length
            if self.is_causal:
                is_seen = build.logical_and(is_seen, key <= row)
            if self.visible is not None:
                is_seen = build.logical_and(is_seen, self.visible(row, first_key, self.key_of(j)))
            yield self.set(self.scores, i, j, build.select(is_seen, value, self.number(-math.inf)))
            yield Assign(largest, build.maximum(largest, build.load(self.scores, i, j)))
        yield from _folded("max", largest)
        # A row that has seen no key: its weights are then 0, not NaN.
        yield Declare(shift, build.select(build.equal(largest, -math.inf), self.number(0), largest))
        yield Declare(less, build.unary("exp", build.load(self.most, i, 0) - shift))
        yield self.set(self.most, i, 0, largest)
        yield Declare(total, build.load(self.weight, i, 0) * less)
        for j in range(self.key_each):
            weight = Var("weight", self.dtype)
            yield Declare(weight, build.unary("exp", build.load(self.scores, i, j) - shift))
            yield Assign(total, total + weight)
            yield Store(self.tile_w, (self.key_of(j), self.row_of(i)), weight)
        yield self.set(self.weight, i, 0, total)
        for j in range(self.column_each):
            yield self.set(self.totals, i, j, build.load(self.totals, i, j) * less)

    def sum_values(self, first_key: Expr) -> Stmt:
        """Add the values of a step by their weights."""
        at = build.size_var("at")
        start = at * _STEP
        pitch = self.column_each * _SIDE
        turn, part, line, column = (build.size_var(name) for name in ("turn", "part", "line", "value_column"))
        key = first_key + start + line
        inside = build.logical_and(key < self.work.length, column < self.work.width)
        value = build.select(inside, self.work.values(key, column), self.number(0))
        load = build.seq(
            [
                Declare(part, turn * THREADS + self.thread),
                Declare(line, part // pitch),
                Declare(column, part % pitch),
                Store(self.tile_v, (line, column), value),
            ]
        )
        fill = For(turn, build.index(0), build.index(pitch * _STEP // THREADS), load, kind="unroll")
        left = _Groups(self.tile_w, self.row, self.each, self.row_lanes)
        right = _Groups(self.tile_v, self.column, self.column_each, self.column_lanes)
        product = self.multiply(self.totals, left, right, start)
        return For(at, build.index(0), build.index(_KEYS // _STEP), build.seq([fill, _meet(), product, _meet()]))

    def finish(self, i: int) -> Iterator[Stmt]:
        """Row i: its sum over the threads, and its results."""
        row = Var("own_row", dtypes.i64)
        total = Var("sum", self.dtype)
        yield Declare(total, build.load(self.weight, i, 0))
        yield from _folded("add", total)
        stores: list[Stmt] = []
        for j in range(self.column_each):
            column = self.column_of(j)
            value = build.select(build.equal(total, 0.0), self.number(0), build.load(self.totals, i, j) / total)
            stores.append(If(column < self.work.width, self.work.store(row, column, value)))
        if self.work.store_logsumexp is not None:
            logarithm = build.load(self.most, i, 0) + build.unary("log", total)
            stores.append(If(build.equal(self.column, 0), self.work.store_logsumexp(row, logarithm)))
        yield Declare(row, self.work.first + self.row_of(i))
        yield If(row < self.work.rows, build.seq(stores))


def _folded(op: str, value: Var) -> Iterator[Stmt]:
    """Fold a variable over the sixteen threads of a row."""
    for distance in (8, 4, 2, 1):
        other = intrinsic_call("cuda.shuffle_xor", 0xFFFFFFFF, value, distance, 32)
        yield Assign(value, build.binary(op, value, other))


def _meet() -> Stmt:
    return Evaluate(intrinsic_call("cuda.syncthreads"))
