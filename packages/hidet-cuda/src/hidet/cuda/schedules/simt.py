"""The product of two matrices without matrix units, for types that these do not compute exactly.

A block of 16 x 16 threads computes 64 x 64 elements, each thread those of 4 neighbouring rows, which it reads at once,
and 4 columns that lie 16 apart, so that neighbours write next to each other. Parts of 16 along k pass through shared
memory, k being the slow axis there.
"""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.cuda.passes.block_launches import decode_item
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.stmt import Declare, Evaluate, For, If, Stmt, Store
from hidet.ir.types import BufferType, VectorType
from hidet.tile.lower.gather import gathered_rows
from hidet.tile.tensors import Gathered, GTensor

TILE = 64
THREADS = 256
_SIDE = 16
STEP = 16
_EACH = TILE // _SIDE
# 16 bytes more a row, so that columns of a tile lie in different banks when it is filled.
_CHUNK_BYTES = 16


def simt_kernel(
    name: str,
    params: tuple[Var, ...],
    a: GTensor | Gathered,
    b: GTensor | Gathered,
    c: GTensor,
    *,
    a_is_transposed: bool,
    b_is_transposed: bool,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
    accumulator: DType,
    batch: Var | None = None,
    steps: tuple[Expr, Expr] | None = None,
) -> Function:
    """c = epilogue(a b, row, column); operands and `steps`, of 16, as in `hidet.tile.templates.matmul.matmul_kernel`.

    batch: a second index of blocks, which the matrices' pointers may mention. The grid has ceil(n / 64) * ceil(m / 64)
    blocks of 256 threads for each.
    """
    block_column, block_row = build.size_var("block_column"), build.size_var("block_row")
    block = build.size_var("block")
    thread, step = build.size_var("thread"), build.size_var("step")
    tile_a, tile_b = (_shared(name, source.dtype) for name, source in (("tile_a", a), ("tile_b", b)))
    totals = Var("totals", BufferType(accumulator, (build.index(_EACH), build.index(_EACH)), space="register"))
    depth = a.rows if a_is_transposed else a.columns
    first, count = steps or (build.index(0), (depth + (STEP - 1)) // STEP)
    first_row, first_column = block_row * TILE, block_column * TILE
    column, row = thread % _SIDE, thread // _SIDE
    at = (first + step) * STEP
    before_a, fill_a = _fill(tile_a, a, thread, first_row, at, k_is_fast=not a_is_transposed)
    before_b, fill_b = _fill(tile_b, b, thread, first_column, at, k_is_fast=b_is_transposed)
    sync = Evaluate(intrinsic_call("cuda.syncthreads"))
    loop = For(
        step,
        build.index(0),
        count,
        build.seq([fill_a, fill_b, sync, _multiply(totals, tile_a, tile_b, row, column), sync]),
    )
    body = [
        Declare(thread, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)),
        *decode_item((block_row, block_column), (build.index(0), (c.columns + (TILE - 1)) // TILE), block),
        Declare(tile_a),
        Declare(tile_b),
        Declare(totals),
        _each(lambda i, j: Store(totals, (i, j), build.const(0, accumulator))),
        *before_a,
        *before_b,
        loop,
        _each(lambda i, j: _finish(c, totals, i, j, first_row + row * _EACH, first_column + column, epilogue)),
    ]
    grid_vars = (block, *(() if batch is None else (batch,)))
    return Function(name, params, build.seq(body), kind="kernel", grid_vars=grid_vars)


def _shared(name: str, dtype: DType) -> Var:
    pitch = TILE + _CHUNK_BYTES // dtype.nbytes
    return Var(name, BufferType(dtype, (build.index(STEP), build.index(pitch)), space="shared"))


def _each(make: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """make(i, j) for the elements of a thread."""
    i, j = build.size_var("i"), build.size_var("j")
    zero, count = build.index(0), build.index(_EACH)
    return For(i, zero, count, For(j, zero, count, make(i, j), kind="unroll"), kind="unroll")


def _fill(
    tile: Var, source: GTensor | Gathered, thread: Var, first: Expr, at: Expr, *, k_is_fast: bool
) -> tuple[list[Stmt], Stmt]:
    """What is computed once, and what fills a part of a matrix, zero outside of it; neighbouring threads read
    neighbours."""
    turn, part = build.size_var("turn"), build.size_var("part")
    turns = TILE * STEP // THREADS
    if k_is_fast:
        line, k = part // STEP, part % STEP
        row, column = first + line, at + k
    else:
        line, k = part % TILE, part // TILE
        row, column = at + k, first + line
    before: list[Stmt] = []
    own: list[Stmt] = []
    if isinstance(source, Gathered):
        rows = gathered_rows(source, turns)
        before = rows.declared(lambda number: first + (number * THREADS + thread) // STEP)
        # k stays the same in all turns, because a step divides the threads.
        own, of_column = rows.columns(at + thread % STEP)
        place, inside = rows.part(turn, of_column)
        value = build.load(place, 0)
    else:
        inside = build.logical_and(row < source.rows, column < source.columns)
        value = source.element(row, column)
    store = Store(tile, (k, line), build.select(inside, value, build.const(0, source.dtype)))
    body = build.seq([Declare(part, turn * THREADS + thread), store])
    return before, build.seq([*own, For(turn, build.index(0), build.index(turns), body, kind="unroll")])


def _multiply(totals: Var, tile_a: Var, tile_b: Var, row: Expr, column: Expr) -> Stmt:
    """The products of one part: each value is read from shared memory once a thread."""
    k, width = build.size_var("k"), _CHUNK_BYTES // tile_a.dtype.nbytes
    left: list[Expr] = []
    right = [Var(f"right{n}", totals.dtype) for n in range(_EACH)]
    read: list[Stmt] = []
    for n in range(0, _EACH, width):
        chunk = Var(f"left{n}", VectorType(tile_a.dtype, width))
        read.append(Declare(chunk, build.load(tile_a, k, row * _EACH + n, lanes=width)))
        left += [build.cast(build.extract(chunk, lane), totals.dtype) for lane in range(width)]
    for n in range(_EACH):
        read.append(Declare(right[n], build.cast(build.load(tile_b, k, column + n * _SIDE), totals.dtype)))
    for i in range(_EACH):
        for j in range(_EACH):
            read.append(Store(totals, (build.index(i), build.index(j)), build.load(totals, i, j) + left[i] * right[j]))
    return For(k, build.index(0), build.index(STEP), build.seq(read), kind="unroll")


def _finish(
    c: GTensor,
    totals: Var,
    i: Expr,
    j: Expr,
    row: Expr,
    column: Expr,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
) -> Stmt:
    own_row, own_column = row + i, column + j * _SIDE
    value = Var("value", totals.dtype)
    place = own_row * c.row_stride + own_column
    store = [
        Declare(value, build.load(totals, i, j)),
        Store(c.pointer, (place,), epilogue(value, own_row, own_column)),
    ]
    return If(build.logical_and(own_row < c.rows, own_column < c.columns), build.seq(store))
