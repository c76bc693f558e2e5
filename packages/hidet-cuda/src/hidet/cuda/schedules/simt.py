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
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Stmt, Store
from hidet.ir.types import BufferType, VectorType
from hidet.tile.lower.gather import gathered_rows
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
    block_column, block_row = build.size_var("block_column"), build.size_var("block_row")
    block = build.size_var("block")
    thread, step = build.size_var("thread"), build.size_var("step")
    row, column = build.size_var("row"), build.size_var("column")
    first_row, first_column = block_row * tiles.m, block_column * tiles.n
    threads = 32 * tiles.warps[0] * tiles.warps[1]
    whole_a, whole_b = are_whole
    fill_a = _fill("a", a, tiles.m, thread, threads, first_row, k_is_fast=not a_is_transposed, is_whole=whole_a)
    fill_b = _fill("b", b, tiles.n, thread, threads, first_column, k_is_fast=b_is_transposed, is_whole=whole_b)
    totals = Var("totals", BufferType(accumulator, (build.index(_EACH), build.index(_EACH)), space="register"))
    depth = a.rows if a_is_transposed else a.columns
    first, count = steps or (build.index(0), (depth + (_DEEP - 1)) // _DEEP)

    def fetched(number: Expr) -> list[Stmt]:
        return [fill.fetch((first + number) * _DEEP) for fill in (fill_a, fill_b)]

    def put(number: Expr) -> list[Stmt]:
        return [fill.put(number % _SLOTS) for fill in (fill_a, fill_b)]

    sync = Evaluate(intrinsic_call("cuda.syncthreads"))
    has_next = step + 1 < count
    loop = [
        If(has_next, build.seq(fetched(step + 1))),
        _multiply(totals, (fill_a.tile, row, tiles.m), (fill_b.tile, column, tiles.n), step % _SLOTS),
        If(has_next, build.seq(put(step + 1))),
        sync,
    ]
    lane, warp = thread % 32, thread // 32
    body = [
        Declare(thread, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)),
        *decode_item((block_row, block_column), (build.index(0), (c.columns + (tiles.n - 1)) // tiles.n), block),
        Declare(row, (warp // tiles.warps[1] * _LANES[0] + lane // _LANES[1]) * _GROUP),
        Declare(column, (warp % tiles.warps[1] * _LANES[1] + lane % _LANES[1]) * _GROUP),
        *(Declare(var) for fill in (fill_a, fill_b) for var in (fill.tile, fill.held)),
        Declare(totals),
        _each(lambda i, j: Store(totals, (i, j), build.const(0, accumulator))),
        *fill_a.before,
        *fill_b.before,
        *fetched(build.index(0)),
        *put(build.index(0)),
        sync,
        For(step, build.index(0), count, build.seq(loop)),
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
    """How an operand's parts come to shared memory. `before`: what is computed once; `fetch` brings the part from a
    place along k into registers, zero outside of the matrix, `put` from there to a slot of `tile`."""

    tile: Var
    held: Var
    before: list[Stmt]
    fetch: Callable[[Expr], Stmt]
    put: Callable[[Expr], Stmt]


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
    """Neighbouring threads read neighbours, 16 bytes each where rows are whole parts of as many."""
    dtype = source.dtype
    width = _CHUNK_BYTES // dtype.nbytes if is_whole and isinstance(source, GTensor) else 1
    pitch = side + _CHUNK_BYTES // dtype.nbytes
    shape = tuple(map(build.index, (_SLOTS, _DEEP, pitch)))
    tile = Var(f"tile_{name}", BufferType(dtype, shape, space="shared"))
    turns = side * _DEEP // width // threads
    held = Var(f"next_{name}", BufferType(dtype, (build.index(turns), build.index(width)), space="register"))
    rows = gathered_rows(source, turns) if isinstance(source, Gathered) else None
    # k stays the same in all turns, because parts of a row divide the threads.
    per_row = (_DEEP if k_is_fast else side) // width

    def place(turn: Expr) -> tuple[Expr, Expr]:
        """Line and k of the first element that a thread has in a turn."""
        part = turn * threads + thread
        across, along = part // per_row, part % per_row * width
        return (across, along) if k_is_fast else (along, across)

    def fetch(at: Expr) -> Stmt:
        turn = build.size_var("turn")
        line, k = place(turn)
        own: list[Stmt] = []
        if rows is not None:
            own, of_column = rows.columns(at + thread % _DEEP)
            start, inside = rows.part(turn, of_column)
            value = build.load(start, 0)
        else:
            assert isinstance(source, GTensor)
            row, column = (first + line, at + k) if k_is_fast else (at + k, first + line)
            inside = build.logical_and(row < source.rows, column < source.columns)
            value = build.load(source.pointer, row * source.row_stride + column, lanes=width)
        taken = Var("taken", VectorType(dtype, width) if width > 1 else dtype)
        zero = build.broadcast(build.const(0, dtype), width)
        stores = [
            Store(held, (turn, build.index(n)), build.extract(taken, n) if width > 1 else taken) for n in range(width)
        ]
        body = build.seq([Declare(taken, zero), If(inside, Assign(taken, value)), *stores])
        return build.seq([*own, For(turn, build.index(0), build.index(turns), body, kind="unroll")])

    def put(slot: Expr) -> Stmt:
        turn = build.size_var("turn")
        line, k = place(turn)
        stores = []
        for n in range(width):
            at = (slot, k + n, line) if k_is_fast else (slot, k, line + n)
            stores.append(Store(tile, at, build.load(held, turn, n)))
        return For(turn, build.index(0), build.index(turns), build.seq(stores), kind="unroll")

    before = [] if rows is None else rows.declared(lambda turn: first + (turn * threads + thread) // _DEEP)
    return _Fill(tile, held, before, fetch, put)


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
