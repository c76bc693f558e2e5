"""GEMV and skinny GEMM: the product of a row or two with a matrix whose rows lie along k: as fast as that matrix is
read.

A warp computes some columns of the result. Its lanes read neighbouring 16 bytes of the matrix' rows, several of them
ahead of what they multiply, and reduce their sums at the end, always in the same order; each result then is that of
one lane. The first parts, and what else results are made of, are read before anything is multiplied: where they are
weights, the kernel before may still run.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection

from hidet.compute.definition import SUM
from hidet.dtypes import DType
from hidet.gpu.schedules.early_reads import read_early
from hidet.gpu.schedules.exchange import WARP, reduce_lanes, thread_in_block
from hidet.gpu.tile.tensors import GTensor, Stacked
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function

THREADS = 128
_RIGHTS = 2
"""Columns of right matrices of a warp: two of one, or one of two."""
COLUMNS = THREADS // WARP * _RIGHTS
"""Columns of a block, of one right matrix."""
_AHEAD = 4
_BYTES = 16


def step_of(dtype: DType) -> int:
    """Elements along k of which a warp reads ahead."""
    return _AHEAD * WARP * (_BYTES // dtype.nbytes)


def columns_of(rights: int) -> int:
    """Columns of the result of a block, of so many right matrices."""
    return COLUMNS // rights


def gemv_kernel(
    name: str,
    params: tuple[Var, ...],
    a: GTensor,
    b: GTensor | Stacked,
    c: GTensor,
    rows: int,
    *,
    epilogue: Callable[..., Expr],
    accumulator: DType,
    has_short_step: bool = True,
    weights: Collection[Var] = (),
    batch: Var | None = None,
    twin: GTensor | None = None,
) -> Function:
    """c = epilogue(a b^T, row, column) for a [rows, k] and b [n, k], whose rows start at multiples of 16 bytes and have
    whole parts of 16 bytes, one at least. Matrices below each other in b have multiples of COLUMNS rows, but for the
    last one.

    twin: a matrix like b; the epilogue gets the sum of a twin^T as well, behind the first one. has_short_step: whether
    k may be no multiple of `step_of(a.dtype)`. weights: pointers to what nothing writes in a call. The grid has
    ceil(n / columns_of(matrices)) blocks of `THREADS` threads along x, and those of the index `batch`, which pointers
    may mention.
    """
    k, block = IRBuilder(), build.size_var("block")
    each = _RIGHTS if twin is None else 1
    part = _BYTES // a.dtype.nbytes
    thread = k.let("thread", thread_in_block())
    lane = k.let("lane", thread % WARP)
    first = k.let("first_column", (block * (THREADS // WARP) + thread // WARP) * each)
    # Beyond the last column it is read once more.
    b = b.at(first) if isinstance(b, Stacked) else b
    sides = [b] if twin is None else [b, twin]
    columns = [build.minimum(first + column, b.rows - 1) * b.row_stride for column in range(each)]
    lefts = k.let_each("row", [build.binary("add", a.pointer, a.row_stride * row) for row in range(rows)])
    rights = k.let_each("column", [build.binary("add", s.pointer, offset) for s in sides for offset in columns])
    zero = build.broadcast(build.const(0, accumulator), part)
    totals = [k.let_each(f"total{row}_", [zero] * len(rights)) for row in range(rows)]

    def read(pointers: list[Var], offsets: list[Expr]) -> list[list[Expr]]:
        """Parts of some rows at some offsets along k, for each of them those of all rows."""
        return [[k.let("part", build.load(row, offset, lanes=part)) for row in pointers] for offset in offsets]

    def add(of_a: list[Expr], of_b: list[Expr]) -> None:
        for left, sums in zip(of_a, totals, strict=True):
            for right, total in zip(of_b, sums, strict=True):
                k.assign(total, total + build.cast(left, accumulator) * build.cast(right, accumulator))

    across = WARP * part
    whole = k.let("whole", a.columns // step_of(a.dtype))

    def parts_of(step: Expr) -> list[Expr]:
        return [(step * _AHEAD + n) * across + lane * part for n in range(_AHEAD)]

    def inside(offsets: list[Expr]) -> list[Expr]:
        """Beyond the end the last part is read."""
        return [build.minimum(offset, a.columns - part) for offset in offsets]

    def multiply(offsets: list[Expr], of_b: list[list[Expr]]) -> None:
        for offset, right in zip(offsets, of_b, strict=True):
            (left,) = read(lefts, [offset])
            add(left, right)

    first_parts = parts_of(build.index(0))
    early = read(rights, inside(first_parts))
    row = lane // each if rows > 1 else build.index(0)
    column = k.let("own_column", first + lane % each)
    is_there = k.let("is_there", build.logical_and(lane < rows * each, column < c.columns))
    own = [Var(name, accumulator) for name in ("own", "own_twin")[: len(sides)]]
    (value,) = read_early(k, [epilogue(*own, row, column)], own, is_there, weights)
    with k.if_(whole > 0):
        multiply(first_parts, early)
    with k.for_range("step", whole - 1, 1) as step:
        multiply(parts_of(step), read(rights, parts_of(step)))
    # Of a last, short step two parts are on their way at once; more would take the registers of other warps.
    if has_short_step:
        start = whole * _AHEAD
        with k.for_range("pair", ((a.columns + (across - 1)) // across - start + 1) // 2, 0) as pair:
            places = [(start + pair * 2 + n) * across + lane * part for n in range(2)]
            for place, right in zip(places, read(rights, inside(places)), strict=True):
                (left,) = read(lefts, inside([place]))
                with k.if_(place < a.columns):
                    add(left, right)
    wholes = []
    for lanes in itertools.chain.from_iterable(totals):
        whole_sum = k.let("total", functools.reduce(operator.add, [build.extract(lanes, n) for n in range(part)]))
        reduce_lanes(k, SUM, [whole_sum], WARP)
        wholes.append(whole_sum)
    for side, var in enumerate(own):
        # Sums of a row are of all columns of one matrix, and then of the other one.
        firsts = range(side * each, len(wholes), len(rights))
        *others, last = [wholes[at + offset] for at in firsts for offset in range(each)]
        k.declare(var, last)
        for number, whole_sum in enumerate(others):
            k.assign(var, build.select(build.equal(lane, number), whole_sum, var))
    with k.if_(is_there):
        k.store(c.pointer, c.row_stride * row + column, value)
    return Function(name, params, k.body, "kernel", (block, *(() if batch is None else (batch,))))
