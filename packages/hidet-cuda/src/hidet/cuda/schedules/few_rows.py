"""The product of few rows with a matrix whose rows lie along k: as fast as that matrix is read.

A warp computes some columns of the result. Its lanes read neighbouring 16 bytes of the matrix' rows, several of them
ahead of what they multiply, and fold their sums at the end, always in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.compute.definition import SUM
from hidet.cuda.schedules.exchange import WARP, fold_lanes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.stmt import Assign, Declare, For, If, Stmt, Store
from hidet.ir.types import VectorType
from hidet.tile.tensors import GTensor

THREADS = 128
COLUMNS = THREADS // WARP * 2
"""Columns of a block."""
_EACH = COLUMNS * WARP // THREADS
_AHEAD = 4
_BYTES = 16


def few_rows_kernel(
    name: str,
    params: tuple[Var, ...],
    a: GTensor,
    b: GTensor,
    c: GTensor,
    rows: int,
    *,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
    accumulator: DType,
    batch: Var | None = None,
) -> Function:
    """c = epilogue(a b^T, row, column) for a [rows, k] and b [n, k], whose rows start at multiples of 16 bytes and have
    whole parts of 16 bytes.

    The grid has ceil(n / COLUMNS) blocks of `THREADS` threads along x, and those of the index `batch`, which pointers
    may mention.
    """
    block, thread, lane, first = (build.size_var(which) for which in ("block", "thread", "lane", "first_column"))
    part = _BYTES // a.dtype.nbytes
    wide = VectorType(accumulator, part)
    totals = [[Var(f"total{row}_{column}", wide) for column in range(_EACH)] for row in range(rows)]
    lefts = [Var(f"row{row}", a.pointer.type) for row in range(rows)]
    rights = [Var(f"column{column}", b.pointer.type) for column in range(_EACH)]
    at_left = [build.binary("add", a.pointer, a.row_stride * row) for row in range(rows)]
    # Beyond the last column it is read once more.
    at_right = [
        build.binary("add", b.pointer, build.minimum(first + column, b.rows - 1) * b.row_stride)
        for column in range(_EACH)
    ]

    def parts(places: list[Expr]) -> Stmt:
        """Multiply the parts at some places along k: all of the matrix are read first."""
        stmts: list[Stmt] = []
        products: list[Stmt] = []
        for place in places:
            of_b = [Var("b", VectorType(b.dtype, part)) for _ in rights]
            of_a = [Var("a", VectorType(a.dtype, part)) for _ in lefts]
            stmts += [Declare(var, build.load(p, place, lanes=part)) for var, p in zip(of_b, rights, strict=True)]
            products += [Declare(var, build.load(p, place, lanes=part)) for var, p in zip(of_a, lefts, strict=True)]
            for row, left in enumerate(of_a):
                for column, right in enumerate(of_b):
                    product = build.cast(left, accumulator) * build.cast(right, accumulator)
                    products.append(Assign(totals[row][column], totals[row][column] + product))
        return build.seq([*stmts, *products])

    step, rest = build.size_var("step"), build.size_var("step")
    across = WARP * part
    whole = a.columns // (across * _AHEAD)
    ahead = parts([(step * _AHEAD + n) * across + lane * part for n in range(_AHEAD)])
    last = rest * across + lane * part
    start = whole * _AHEAD
    count = (a.columns + (across - 1)) // across - start
    body = [
        Declare(thread, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)),
        Declare(lane, thread % WARP),
        Declare(first, (block * (THREADS // WARP) + thread // WARP) * _EACH),
        *(Declare(var, place) for var, place in zip((*lefts, *rights), (*at_left, *at_right), strict=True)),
        *(Declare(var, build.broadcast(build.const(0, accumulator), part)) for line in totals for var in line),
        For(step, build.index(0), whole, ahead),
        For(rest, start, count, If(last < a.columns, parts([last]))),
        *(
            _finish(c, totals[row][column], row, first + column, lane, epilogue)
            for row in range(rows)
            for column in range(_EACH)
        ),
    ]
    return Function(name, params, build.seq(body), "kernel", (block, *(() if batch is None else (batch,))))


def _finish(
    c: GTensor, lanes: Var, row: int, column: Expr, lane: Var, epilogue: Callable[[Expr, Expr, Expr], Expr]
) -> Stmt:
    """Fold what the lanes of a warp have, and store it."""
    total = Var("total", lanes.dtype)
    value: Expr = build.extract(lanes, 0)
    for n in range(1, lanes.lanes):
        value = value + build.extract(lanes, n)
    place = c.row_stride * row + column
    store = Store(c.pointer, (place,), epilogue(total, build.index(row), column))
    is_mine = build.logical_and(build.equal(lane, 0), column < c.columns)
    return build.seq([Declare(total, value), *fold_lanes(SUM, [total], WARP), If(is_mine, store)])
