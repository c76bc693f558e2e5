"""The product of two matrices without matrix units, for types that these do not compute exactly.

A thread computes 8 x 8 elements: what it reads from shared memory for each of them is half of what 4 x 4 would take,
which shared memory does not keep up with. They are two groups of 4 neighbouring rows and 4 neighbouring columns, half
a tile apart, so that both are read 16 bytes at once; a warp has 4 x 8 threads of the tile. Parts of 8 along k pass
through shared memory, where k is the slow axis: the next one is on its way from memory to registers while one is
multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.passes.block_launches import decode_item
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Stmt, Store
from hidet.ir.types import BufferType, VectorType
from hidet.tile.lower.gather import GatheredRows, gathered_rows
from hidet.tile.templates.matmul import MatmulTiles
from hidet.tile.tensors import Gathered, GTensor

_DEEP = 8
"""Elements of a part along k."""
_EACH, _GROUP = 8, 4
"""Rows, and columns, of a thread, and those of them that are neighbours."""
_LANES = (4, 8)
_REGISTERS = 1 << 16
"""Of a multiprocessor."""
_OF_THREAD = 128
_CHUNK_BYTES = 16
_SLOTS = 2


def simt_kernel(
    name: str,
    params: tuple[Var, ...],
    a: GTensor | Gathered,
    b: GTensor | Gathered,
    c: GTensor,
    tiles: MatmulTiles,
    *,
    a_is_transposed: bool,
    b_is_transposed: bool,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
    accumulator: DType,
    are_whole: tuple[bool, bool] = (False, False),
    batch: Var | None = None,
    steps: tuple[Expr, Expr] | None = None,
) -> Function:
    """c = epilogue(a b, row, column); operands and `steps` as in `hidet.tile.templates.matmul.matmul_kernel`.

    tiles: of a block, whose warps share them by 32 rows and 64 columns; 8 along k. are_whole: whether operands' rows
    are whole parts of 16 bytes, at multiples of as many. batch: a second index of blocks, which the matrices' pointers
    may mention. The grid has ceil(n / tiles.n) * ceil(m / tiles.m) blocks for each.
    """
    block_column, block_row, block, thread, row, column = (
        build.size_var(which) for which in ("block_column", "block_row", "block", "thread", "row", "column")
    )
    first_row, first_column = block_row * tiles.m, block_column * tiles.n
    threads = 32 * tiles.warps[0] * tiles.warps[1]
    whole_a, whole_b = are_whole
    fills = (
        _fill("a", a, tiles.m, thread, threads, first_row, k_is_fast=not a_is_transposed, is_whole=whole_a),
        _fill("b", b, tiles.n, thread, threads, first_column, k_is_fast=b_is_transposed, is_whole=whole_b),
    )
    totals = Var("totals", BufferType(accumulator, (build.index(_EACH), build.index(_EACH)), space="register"))
    depth = a.rows if a_is_transposed else a.columns
    lane, warp = thread % 32, thread // 32
    body = [
        Declare(thread, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)),
        *decode_item((block_row, block_column), (build.index(0), (c.columns + (tiles.n - 1)) // tiles.n), block),
        Declare(row, (warp // tiles.warps[1] * _LANES[0] + lane // _LANES[1]) * _GROUP),
        Declare(column, (warp % tiles.warps[1] * _LANES[1] + lane % _LANES[1]) * _GROUP),
        *(Declare(var) for fill in fills for var in (fill.tile, fill.held)),
        Declare(totals),
        _each(lambda i, j: Store(totals, (i, j), build.const(0, accumulator))),
        *_sum_parts(fills, totals, (row, column), steps or (build.index(0), (depth + (_DEEP - 1)) // _DEEP)),
        _each(
            lambda i, j: _finish(
                c,
                totals,
                (i, j),
                (first_row + row + _own(i, tiles.m), first_column + column + _own(j, tiles.n)),
                epilogue,
            )
        ),
    ]
    grid_vars = (block, *(() if batch is None else (batch,)))
    # Places of single elements and of matrices of a batch, and sums of f64, take more registers than are left where
    # many threads share them.
    is_lean = all(are_whole) and accumulator.nbytes == 4 and batch is None
    resident = (("min_blocks", _REGISTERS // _OF_THREAD // threads),) if is_lean else ()
    attributes = (("block", (threads, 1, 1)), *resident)
    return Function(name, params, build.seq(body), "kernel", grid_vars, None, attributes)


def _sum_parts(
    fills: tuple[_Fill, _Fill], totals: Var, place: tuple[Expr, Expr], steps: tuple[Expr, Expr]
) -> list[Stmt]:
    """Add the products of parts along k, of which the next one is on its way while one is multiplied. place: a thread's
    first row and column in the tile. steps: (first, number of) parts."""
    (first, count), step = steps, build.size_var("step")
    left, right = ((fill.tile, at, fill.side) for fill, at in zip(fills, place, strict=True))

    def fetched(number: Expr) -> list[Stmt]:
        return [fill.fetch((first + number) * _DEEP) for fill in fills]

    def put(number: Expr) -> list[Stmt]:
        return [fill.put(number % _SLOTS) for fill in fills]

    sync = Evaluate(intrinsic_call("cuda.syncthreads"))
    has_next = step + 1 < count
    loop = [
        If(has_next, build.seq(fetched(step + 1))),
        _multiply(totals, left, right, step % _SLOTS),
        If(has_next, build.seq(put(step + 1))),
        sync,
    ]
    before = [stmt for fill in fills for stmt in fill.before()]
    start = [*before, *fetched(build.index(0)), *put(build.index(0)), sync]
    return [*start, For(step, build.index(0), count, build.seq(loop))]


def _own(number: Expr, side: int) -> Expr:
    """Where one of a thread's rows or columns, of `side` in the tile, lies behind its first one."""
    return number // _GROUP * (side // 2) + number % _GROUP


def _each(make: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """make(i, j) for the elements of a thread."""
    i, j = build.size_var("i"), build.size_var("j")
    zero, extent = build.index(0), build.index(_EACH)
    return For(i, zero, extent, For(j, zero, extent, make(i, j), kind="unroll"), kind="unroll")


@dataclass(frozen=True, slots=True, eq=False)
class _Fill:
    """How an operand's parts come to shared memory: neighbouring threads read neighbours, `width` elements each, in
    some turns.

    tile: the parts there, [slot, k, line]. held: what a thread has of the next one, [turn, element]. first: the
    operand's first line in the block. rows: where the lines of a gathered operand lie, else None.
    """

    source: GTensor | Gathered
    tile: Var
    held: Var
    side: int
    width: int
    turns: int
    thread: Var
    threads: int
    first: Expr
    k_is_fast: bool
    rows: GatheredRows | None

    def before(self) -> list[Stmt]:
        """What is computed once."""
        if self.rows is None:
            return []
        return self.rows.declared(lambda turn: self.first + (turn * self.threads + self.thread) // _DEEP)

    def fetch(self, at: Expr) -> Stmt:
        """Bring the part from a place along k into registers, zero outside of the matrix."""
        turn, dtype, width = build.size_var("turn"), self.source.dtype, self.width
        own, inside, value = self._read(turn, at)
        taken = Var("taken", VectorType(dtype, width) if width > 1 else dtype)
        zero = build.broadcast(build.const(0, dtype), width)
        stores = [
            Store(self.held, (turn, build.index(n)), build.extract(taken, n) if width > 1 else taken)
            for n in range(width)
        ]
        return build.seq(
            [*own, self._in_turns(turn, [Declare(taken, zero), If(inside, Assign(taken, value)), *stores])]
        )

    def put(self, slot: Expr) -> Stmt:
        """Write what was fetched to a slot of the tile."""
        turn = build.size_var("turn")
        line, k = self._place(turn)
        places = [(slot, k + n, line) if self.k_is_fast else (slot, k, line + n) for n in range(self.width)]
        return self._in_turns(
            turn, [Store(self.tile, place, build.load(self.held, turn, n)) for n, place in enumerate(places)]
        )

    def _in_turns(self, turn: Var, body: list[Stmt]) -> Stmt:
        return For(turn, build.index(0), build.index(self.turns), build.seq(body), kind="unroll")

    def _place(self, turn: Expr) -> tuple[Expr, Expr]:
        """Line and k of the first element that a thread has in a turn."""
        # k stays the same in all turns, because parts of a row divide the threads.
        per_row = (_DEEP if self.k_is_fast else self.side) // self.width
        part = turn * self.threads + self.thread
        across, along = part // per_row, part % per_row * self.width
        return (across, along) if self.k_is_fast else (along, across)

    def _read(self, turn: Expr, at: Expr) -> tuple[list[Stmt], Expr, Expr]:
        """What comes before all turns; whether a turn's elements are inside of the matrix, and these."""
        if self.rows is not None:
            own, of_column = self.rows.columns(at + self.thread % _DEEP)
            start, inside = self.rows.part(turn, of_column)
            return own, inside, build.load(start, 0)
        source = self.source
        assert isinstance(source, GTensor)
        line, k = self._place(turn)
        row, column = (self.first + line, at + k) if self.k_is_fast else (at + k, self.first + line)
        inside = build.logical_and(row < source.rows, column < source.columns)
        return [], inside, build.load(source.pointer, row * source.row_stride + column, lanes=self.width)


def _fill(
    name: str,
    source: GTensor | Gathered,
    side: int,
    thread: Var,
    threads: int,
    first: Expr,
    *,
    k_is_fast: bool,
    is_whole: bool,
) -> _Fill:
    """16 bytes a thread and turn where rows are whole parts of as many, else an element."""
    dtype = source.dtype
    width = _CHUNK_BYTES // dtype.nbytes if is_whole and isinstance(source, GTensor) else 1
    pitch = side + _CHUNK_BYTES // dtype.nbytes
    shape = tuple(map(build.index, (_SLOTS, _DEEP, pitch)))
    tile = Var(f"tile_{name}", BufferType(dtype, shape, space="shared"))
    turns = side * _DEEP // width // threads
    held = Var(f"next_{name}", BufferType(dtype, (build.index(turns), build.index(width)), space="register"))
    rows = gathered_rows(source, turns) if isinstance(source, Gathered) else None
    return _Fill(source, tile, held, side, width, turns, thread, threads, first, k_is_fast, rows)


def _multiply(totals: Var, left: tuple[Var, Expr, int], right: tuple[Var, Expr, int], slot: Expr) -> Stmt:
    """The products of one part: each value is read from shared memory once a thread."""
    k = build.size_var("k")
    read: list[Stmt] = []

    def values(name: str, tile: Var, first: Expr, side: int) -> list[Expr]:
        width, found = _CHUNK_BYTES // tile.dtype.nbytes, list[Expr]()
        for n in range(0, _EACH, width):
            chunk = Var(f"{name}{n}", VectorType(tile.dtype, width))
            place = first + (n // _GROUP * (side // 2) + n % _GROUP)
            read.append(Declare(chunk, build.load(tile, slot, k, place, lanes=width)))
            found += [build.cast(build.extract(chunk, lane), totals.dtype) for lane in range(width)]
        return found

    lefts, rights = values("left", *left), values("right", *right)
    products = [
        Store(totals, (build.index(i), build.index(j)), build.load(totals, i, j) + lefts[i] * rights[j])
        for i in range(_EACH)
        for j in range(_EACH)
    ]
    return For(k, build.index(0), build.index(_DEEP), build.seq([*read, *products]), kind="unroll")


def _finish(
    c: GTensor,
    totals: Var,
    own: tuple[Expr, Expr],
    at: tuple[Expr, Expr],
    epilogue: Callable[[Expr, Expr, Expr], Expr],
) -> Stmt:
    """Store the element `own` of a thread, which stands `at` a row and column."""
    value, (row, column) = Var("value", totals.dtype), at
    place = row * c.row_stride + column
    store = [
        Declare(value, build.load(totals, *own)),
        Store(c.pointer, (place,), epilogue(value, row, column)),
    ]
    return If(build.logical_and(row < c.rows, column < c.columns), build.seq(store))
