"""What a matrix product or convolution multiplies: rows given by addresses, columns by panels or where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hidet.cpu.schedules.gemm_columns import Columns
from hidet.cpu.schedules.gemm_epilogue import TilePlace
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.schedule.lowering import KernelScope


@dataclass(frozen=True, slots=True, eq=False)
class RowTable:
    """The table of addresses to fill: entry tap * stride + i for row `first_row` + i, i below `count`."""

    variable: Var
    stride: Expr
    first_row: Expr
    count: Expr
    last_row: Expr


FillTable = Callable[[IRBuilder, KernelScope, RowTable, Expr], None]


@dataclass(frozen=True, slots=True, eq=False)
class Gemm:
    """result[p, m, n] = sum over taps t and steps k of row(p, m, t)[k * step] * right[p](n, t, k).

    problems: how many products of this size there are (batches, groups); p counts them.
    rows, columns, taps, run: extents of m, n, t, k.
    element, step: dtype of row elements, and their distance.
    right: where the columns are; packed panels are contiguous.
    fill: writes the table of row addresses; it gets the scope for its sizes, the table, and p.
    sources: pointers that `fill` uses, in the entry function and in the kernel.
    place: how p, m and n stand for axes of the result; it gets the scope and p.
    """

    problems: Dim
    rows: Dim
    columns: Dim
    taps: Dim
    run: Dim
    element: DType
    step: Dim
    right: Columns
    fill: FillTable
    sources: Mapping[Var, Var]
    place: Callable[[KernelScope, Expr], TilePlace]
