"""A device without a matrix unit: threads multiply and copy element by element. Every GPU is one."""

from __future__ import annotations

from hidet import dtypes
from hidet.errors import ScheduleError
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.lower.elementwise import each
from hidet.gpu.tile.lower.fragment import ALL_LANES, PIECE_COLUMNS, Fragment, Threads, place
from hidet.gpu.tile.lower.machine import Machine, Operand
from hidet.gpu.tile.statements import Mma
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr


def multiply(node: Mma, accumulator: Fragment, a: Operand | Fragment, b: Operand, threads: Threads) -> s.Stmt:
    """Multiply and add, each thread for the results that it holds.

    ScheduleError for a left operand in registers whose columns several warps share.
    """
    if isinstance(a, Fragment) and threads.warps[1] != 1:
        raise ScheduleError(
            f"{a.tile.name} over {threads.warps[1]} warps along its columns cannot be multiplied from registers",
            hint="give warps along the rows only",
        )
    at, dtype = build.size_var("at"), accumulator.tile.dtype
    k = node.b.columns if node.b_is_transposed else node.b.rows

    def add(where: tuple[Expr, ...]) -> s.Stmt:
        row, column = place(accumulator.tile, threads, *where)
        left = _held(a, where, at, threads) if isinstance(a, Fragment) else _read(a, row, at, node.a_is_transposed)
        # What is multiplied from registers has as many digits as what it is multiplied with.
        left, right = build.cast(left, node.b.dtype), _read(b, at, column, node.b_is_transposed)
        factors = build.cast(left, dtype) * build.cast(right, dtype)
        places = accumulator.at(*where)
        return s.Store(accumulator.buffer, places, build.load(accumulator.buffer, *places) + factors)

    body = each(accumulator.extents, add)
    # Registers have no index that is not known.
    return s.For(at, build.index(0), build.index(k), body, kind="unroll" if isinstance(a, Fragment) else "serial")


def _read(operand: Operand, row: Expr, column: Expr, is_transposed: bool) -> Expr:
    layout = operand.tile.layout
    offset = layout.offset(column, row) if is_transposed else layout.offset(row, column)
    return build.load(operand.buffer, operand.stage * layout.size + offset)


def _held(a: Fragment, where: tuple[Expr, ...], at: Expr, threads: Threads) -> Expr:
    """Element `at` of a row of registers, from the one of the row's four lanes that holds it."""
    value = build.load(a.buffer, *a.at(where[0], at // PIECE_COLUMNS, where[2], at % 2))
    lane = build.cast(threads.lane // 4 * 4 + at % PIECE_COLUMNS // 2, dtypes.i32)
    return intrinsic_call("gpu.shuffle", Const(ALL_LANES, dtypes.u32), value, lane, WARP)


SIMT = Machine(multiply)
"""The device."""
