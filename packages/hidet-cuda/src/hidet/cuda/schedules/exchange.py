"""Folding what several threads have: in a warp by shuffles, in a block through shared memory; always in one order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hidet import dtypes
from hidet.compute.definition import Combiner
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Stmt, Store
from hidet.ir.types import BufferType
from hidet.schedule.lowering import folded

WARP = 32


def fold_lanes(combiner: Combiner, accumulators: Sequence[Var], lanes: int) -> Iterator[Stmt]:
    """Fold over neighbouring `lanes` threads of a warp, a power of two; all of them have the result."""
    distance = lanes // 2
    while distance:
        others = [Var(f"other{n}", var.dtype) for n, var in enumerate(accumulators)]
        for other, var in zip(others, accumulators, strict=True):
            yield Declare(other, moved("xor", var, distance))
        yield from folded(combiner, accumulators, others)
        distance //= 2


def fold_warps(combiner: Combiner, accumulators: Sequence[Var], warps: int, thread: Expr) -> Iterator[Stmt]:
    """Fold over the warps of a block, whose lanes agree already; all threads have the result.

    thread: its number in the block. Memory is written once, so that a kernel may do this for one item alone.
    """
    if warps == 1:
        return
    tiles = [shared(f"parts{n}", var.dtype, warps) for n, var in enumerate(accumulators)]
    for tile in tiles:
        yield Declare(tile)
    stores = [Store(tile, (thread // WARP,), var) for tile, var in zip(tiles, accumulators, strict=True)]
    yield If(build.equal(thread % WARP, 0), build.seq(stores))
    yield barrier()
    for tile, var in zip(tiles, accumulators, strict=True):
        yield Assign(var, build.load(tile, 0))
    for warp in range(1, warps):
        yield from folded(combiner, accumulators, [build.load(tile, warp) for tile in tiles])


def sum_before(value: Expr, totals: Var, threads: int, thread: Expr) -> tuple[list[Stmt], Var]:
    """What the threads of a block before this one have together, an i32 each; all of them take part.

    thread: its number in the block. totals: shared memory of one i32 for each warp, which nobody reads any more.
    """
    lane, warp, other = build.cast(thread % WARP, dtypes.i32), build.size_var("warp"), build.size_var("other")
    total, before = Var("total", dtypes.i32), Var("before", dtypes.i32)
    stmts: list[Stmt] = [Declare(warp, thread // WARP), Declare(total, value)]
    for distance in (1, 2, 4, 8, 16):
        below = Var("below", dtypes.i32)
        stmts.append(Declare(below, moved("up", total, distance)))
        stmts.append(If(lane >= distance, Assign(total, total + below)))
    earlier = If(other < warp, Assign(before, before + build.load(totals, other)))
    stmts += [
        If(build.equal(lane, WARP - 1), Store(totals, (warp,), total)),
        barrier(),
        Declare(before, total - value),
        For(other, build.index(0), build.index(threads // WARP), earlier, kind="unroll"),
    ]
    return stmts, before


def shared(name: str, dtype: DType, count: int) -> Var:
    """An array of a block."""
    return Var(name, BufferType(dtype, (build.index(count),), space="shared"))


def thread_in_block() -> Expr:
    """This thread's number in its block."""
    return build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)


def block_number() -> Expr:
    """This block's number in the grid."""
    return build.cast(intrinsic_call("cuda.block_idx.x"), dtypes.i64)


def barrier() -> Stmt:
    """All threads of a block wait for each other."""
    return Evaluate(intrinsic_call("cuda.syncthreads"))


def warp_barrier() -> Stmt:
    """All threads of a warp wait for each other."""
    return Evaluate(intrinsic_call("cuda.syncwarp", 0xFFFFFFFF))


def moved(how: str, value: Expr, lane: int) -> Expr:
    """The value of another lane of the warp: "xor" of the number that differs by `lane`, "up" of the one so far below,
    its own where there is none, "" of that number."""
    name = f"cuda.shuffle_{how}" if how else "cuda.shuffle"
    given = intrinsic_call(name, 0xFFFFFFFF, build.cast(value, _carrier(value.dtype)), lane, WARP)
    return build.cast(given, value.dtype)


def _carrier(dtype: DType) -> DType:
    """The type in which a value is exchanged: words, for integers below them and bools."""
    return dtypes.i32 if dtype.bits < 32 and not dtype.is_float else dtype
