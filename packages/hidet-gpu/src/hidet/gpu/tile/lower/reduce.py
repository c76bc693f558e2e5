"""Reductions of register tiles: within a thread, between the lanes that share a row or column, between warps."""

from __future__ import annotations

import math

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.lower.elementwise import each
from hidet.gpu.tile.lower.fragment import ALL_LANES, LANES, Fragment, Threads, place
from hidet.gpu.tile.statements import Reduce, ReduceOp
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.types import BufferType

# The lanes that hold other columns of a row differ in bits 0 and 1, those with other rows of a column in bits 2 to 4.
_LANE_BITS = ((4, 8, 16), (1, 2))


def identity(op: ReduceOp, dtype: DType) -> float:
    """The neutral element of a reduction."""
    if op == "add":
        return 0
    if dtype.is_int:
        return dtype.min if op == "max" else dtype.max
    return -math.inf if op == "max" else math.inf


def reduce_tile(node: Reduce, target: Fragment, source: Fragment, threads: Threads) -> s.Stmt:
    """Reduce along an axis; afterwards every thread that holds a row (or column) holds its result.

    A target with an element a lane along the axis takes partial results: each thread reduces what it holds.
    """
    if source.tile.is_transposed:
        raise ScheduleError(f"{node.source.name} is spread as its transpose, which is not reduced")
    is_partial = _is_partial(node)
    if is_partial and (node.target.rows, node.target.columns)[node.axis] != LANES[node.axis] * threads.warps[node.axis]:
        raise ScheduleError(
            f"{node.target.name} has {(node.target.rows, node.target.columns)[node.axis]} partial results along axis "
            f"{node.axis}, expected {LANES[node.axis]} a warp"
        )
    steps = [each(target.extents, lambda at: _within_warp(node, target, source, at))]
    if threads.warps[node.axis] > 1 and not is_partial:
        steps.append(_between_warps(node, target, threads))
    return build.seq(steps)


def _is_partial(node: Reduce) -> bool:
    return (node.target.rows, node.target.columns)[node.axis] > 1


def _within_warp(node: Reduce, target: Fragment, source: Fragment, at: tuple[Expr, ...]) -> s.Stmt:
    total = Var("total", target.tile.dtype)
    inner = (source.extents[node.axis], source.extents[2 + node.axis])

    def add(inside: tuple[Expr, ...]) -> s.Stmt:
        place = list(at)
        place[node.axis], place[2 + node.axis] = inside
        value = build.load(source.buffer, *place)
        return s.Assign(total, build.binary(node.op, total, value))

    start = build.const(identity(node.op, total.dtype), total.dtype)
    exchange = [
        s.Assign(total, build.binary(node.op, total, _exchanged(total, bits)))
        for bits in (() if _is_partial(node) else _LANE_BITS[node.axis])
    ]
    return build.seq([s.Declare(total, start), each(inner, add), *exchange, s.Store(target.buffer, at, total)])


def _exchanged(value: Var, bits: int) -> Expr:
    mask = build.const(ALL_LANES, dtypes.u32)
    return intrinsic_call("gpu.shuffle_xor", mask, value, build.const(bits, dtypes.i32), 32)


def _between_warps(node: Reduce, target: Fragment, threads: Threads) -> s.Stmt:
    """Through shared memory: one lane of each warp and row writes, all read."""
    warps, tile = threads.warps[node.axis], node.source
    kept = tile.rows if node.axis == 1 else tile.columns
    shape = (build.index(warps), build.index(kept))
    parts = Var("parts", BufferType(tile.dtype, shape, None, "shared"))
    own = threads.warp_column if node.axis == 1 else threads.warp_row
    first = threads.lane % 4 if node.axis == 1 else threads.lane // 4
    meet = s.Evaluate(intrinsic_call("gpu.syncthreads"))

    def kept_place(at: tuple[Expr, ...]) -> Expr:
        row, column = place(tile, threads, at[0], at[1], at[2], at[3])
        return row if node.axis == 1 else column

    def write(at: tuple[Expr, ...]) -> s.Stmt:
        return s.Store(parts, (own, kept_place(at)), build.load(target.buffer, *at))

    def read(at: tuple[Expr, ...]) -> s.Stmt:
        total, warp = Var("total", tile.dtype), build.size_var("warp")
        value = build.load(parts, warp, kept_place(at))
        add = s.Assign(total, build.binary(node.op, total, value))
        start = build.const(identity(node.op, tile.dtype), tile.dtype)
        reduction = s.For(warp, build.index(0), build.index(warps), add, kind="unroll")
        return build.seq([s.Declare(total, start), reduction, s.Store(target.buffer, at, total)])

    writes = s.If(build.equal(first, 0), each(target.extents, write))
    # The first meeting lets all finish reading what an earlier reduction left there.
    return build.seq([s.Declare(parts), meet, writes, meet, each(target.extents, read)])
