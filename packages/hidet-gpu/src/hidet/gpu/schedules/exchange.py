"""Reducing what several threads have: in a warp by shuffles, in a block through shared memory; always in one order."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.compute.definition import Combiner
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Evaluate, Stmt
from hidet.ir.types import BufferType
from hidet.schedule.lowering import accumulate
from hidet.target import GpuTarget

_FEW_WARPS = 16
"""Warps up to which every thread adds up what they have."""
WARP = 32
"""Lanes of the warps that kernels which exchange values between lanes are written for."""


def has_warps(target: GpuTarget) -> bool:
    """Whether a target's warps are those of these kernels; rules leave tasks of other targets alone."""
    return target.warp_size == WARP


def reduce_lanes(k: IRBuilder, combiner: Combiner, accumulators: Sequence[Var], lanes: int) -> None:
    """Reduce over neighbouring `lanes` threads of a warp, a power of two; all of them have the result."""
    distance = lanes // 2
    while distance:
        others = k.let_each("other", [moved("xor", var, distance) for var in accumulators])
        k.emit(*accumulate(combiner, accumulators, others))
        distance //= 2


def reduce_warps(k: IRBuilder, combiner: Combiner, accumulators: Sequence[Var], warps: int, thread: Expr) -> None:
    """Reduce over the warps of a block, whose lanes agree already; all threads have the result.

    warps: a power of two, up to 32. thread: its number in the block. Memory is written once, so that a kernel may do
    this for one item alone.
    """
    if warps == 1:
        return
    tiles = [k.array(f"parts{n}", var.dtype, warps, space="shared") for n, var in enumerate(accumulators)]
    with k.if_(build.equal(thread % WARP, 0)):
        k.store_each(tiles, thread // WARP, accumulators)
    k.emit(barrier())
    if warps > _FEW_WARPS:
        # A lane a warp: adding up one after the other takes more instructions than exchanges do.
        k.assign_each(accumulators, [build.load(tile, thread % warps) for tile in tiles])
        reduce_lanes(k, combiner, accumulators, warps)
        return
    k.assign_each(accumulators, [build.load(tile, 0) for tile in tiles])
    for warp in range(1, warps):
        k.emit(*accumulate(combiner, accumulators, [build.load(tile, warp) for tile in tiles]))


def sum_before(k: IRBuilder, value: Expr, totals: Var, threads: int, thread: Expr) -> Var:
    """What the threads of a block before this one have together, an i32 each; all of them take part.

    thread: its number in the block. totals: shared memory of one i32 for each warp, which nobody reads any more.
    """
    lane = build.cast(thread % WARP, dtypes.i32)
    warp, total = k.let("warp", thread // WARP), k.let("total", value)
    for distance in (1, 2, 4, 8, 16):
        below = k.let("below", moved("up", total, distance))
        with k.if_(lane >= distance):
            k.assign(total, total + below)
    with k.if_(build.equal(lane, WARP - 1)):
        k.store(totals, warp, total)
    k.emit(barrier())
    before = k.let("before", total - value)
    with k.for_range("other", threads // WARP, kind="unroll") as other, k.if_(other < warp):
        k.assign(before, before + build.load(totals, other))
    return before


def shared(name: str, dtype: DType, count: int) -> Var:
    """An array of a block."""
    return Var(name, BufferType(dtype, (build.index(count),), space="shared"))


def thread_in_block() -> Expr:
    """This thread's number in its block."""
    return build.cast(intrinsic_call("gpu.thread_idx.x"), dtypes.i64)


def block_number() -> Expr:
    """This block's number in the grid."""
    return build.cast(intrinsic_call("gpu.block_idx.x"), dtypes.i64)


def barrier() -> Stmt:
    """All threads of a block wait for each other."""
    return Evaluate(intrinsic_call("gpu.syncthreads"))


def warp_barrier() -> Stmt:
    """All threads of a warp wait for each other."""
    return Evaluate(intrinsic_call("gpu.syncwarp", 0xFFFFFFFF))


def moved(how: str, value: Expr, lane: int) -> Expr:
    """The value of another lane of the warp: "xor" of the number that differs by `lane`, "up" of the one so far below,
    its own where there is none, "" of that number."""
    name = f"gpu.shuffle_{how}" if how else "gpu.shuffle"
    given = intrinsic_call(name, 0xFFFFFFFF, build.cast(value, _carrier(value.dtype)), lane, WARP)
    return build.cast(given, value.dtype)


def _carrier(dtype: DType) -> DType:
    """The type in which a value is exchanged: words, for integers below them and bools."""
    return dtypes.i32 if dtype.bits < 32 and not dtype.is_float else dtype
