"""GEMV and skinny GEMM: the product of a row or two with a matrix whose rows lie along k: as fast as that matrix is
read.

A warp computes some columns of the result. Its lanes read neighbouring 16 bytes of the matrix' rows, several of them
ahead of what they multiply, and reduce their sums at the end, always in the same order. The first of them are read
before anything else: where they are weights, the kernel before may still run.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from hidet.compute.definition import SUM
from hidet.dtypes import DType
from hidet.gpu.schedules.exchange import WARP, reduce_lanes, thread_in_block
from hidet.gpu.tile.tensors import GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function

THREADS = 128
COLUMNS = THREADS // WARP * 2
"""Columns of a block."""
_EACH = COLUMNS * WARP // THREADS
_AHEAD = 4
_BYTES = 16


def gemv_kernel(
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
    whole parts of 16 bytes, one at least.

    The grid has ceil(n / COLUMNS) blocks of `THREADS` threads along x, and those of the index `batch`, which pointers
    may mention.
    """
    k, block = IRBuilder(), build.size_var("block")
    part = _BYTES // a.dtype.nbytes
    thread = k.let("thread", thread_in_block())
    lane = k.let("lane", thread % WARP)
    first = k.let("first_column", (block * (THREADS // WARP) + thread // WARP) * _EACH)
    # Beyond the last column it is read once more.
    columns = [build.minimum(first + column, b.rows - 1) * b.row_stride for column in range(_EACH)]
    lefts = k.let_each("row", [build.binary("add", a.pointer, a.row_stride * row) for row in range(rows)])
    rights = k.let_each("column", [build.binary("add", b.pointer, offset) for offset in columns])
    zero = build.broadcast(build.const(0, accumulator), part)
    totals = [k.let_each(f"total{row}_", [zero] * _EACH) for row in range(rows)]

    def read(offsets: list[Expr]) -> list[list[Expr]]:
        """The parts of the matrix at some offsets along k, for each of them those of all columns."""
        return [[k.let("b", build.load(right, offset, lanes=part)) for right in rights] for offset in offsets]

    def multiply(offsets: list[Expr], of_b: list[list[Expr]]) -> None:
        for offset, here in zip(offsets, of_b, strict=True):
            of_a = [k.let("a", build.load(left, offset, lanes=part)) for left in lefts]
            for left, sums in zip(of_a, totals, strict=True):
                for right, total in zip(here, sums, strict=True):
                    k.assign(total, total + build.cast(left, accumulator) * build.cast(right, accumulator))

    across = WARP * part
    whole = k.let("whole", a.columns // (across * _AHEAD))

    def parts_of(step: Expr) -> list[Expr]:
        return [(step * _AHEAD + n) * across + lane * part for n in range(_AHEAD)]

    # Beyond the end of short rows the last part is read.
    early = read([build.minimum(offset, a.columns - part) for offset in parts_of(build.index(0))])
    with k.if_(whole > 0):
        multiply(parts_of(build.index(0)), early)
    with k.for_range("step", whole - 1, 1) as step:
        multiply(parts_of(step), read(parts_of(step)))
    start = whole * _AHEAD
    with k.for_range("step", (a.columns + (across - 1)) // across - start, start) as step:
        last = step * across + lane * part
        with k.if_(last < a.columns):
            multiply([last], read([last]))
    for row, sums in enumerate(totals):
        for column, lanes in enumerate(sums):
            total = k.let("total", functools.reduce(operator.add, [build.extract(lanes, n) for n in range(part)]))
            reduce_lanes(k, SUM, [total], WARP)
            with k.if_(build.logical_and(build.equal(lane, 0), first + column < c.columns)):
                value = epilogue(total, build.index(row), first + column)
                k.store(c.pointer, c.row_stride * row + (first + column), value)
    return Function(name, params, k.body, "kernel", (block, *(() if batch is None else (batch,))))
