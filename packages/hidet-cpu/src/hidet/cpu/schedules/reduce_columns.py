"""Reducing many rows at once: SIMD across rows that lie side by side in memory.

    for tile of rows                              as many as fill some registers with partial results
      for each pass over the rows
        for block of their elements
          for element
            loop over the tile: array of partial results
          loop over the tile: array of totals, f64 where they are sums or products of floats
        formulas, in arrays
      outputs

A full tile has a constant number of rows: its loops are unrolled, and LLVM keeps the arrays in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims
from hidet.cpu.schedules.reduce_layout import ReductionMemory
from hidet.cpu.schedules.reduce_rows import Range, is_short, loses_digits, nest, total_dtypes
from hidet.cpu.schedules.reductions import Reduction, ReductionOutput
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Declare, For, Stmt, Store
from hidet.ir.types import BufferType
from hidet.ir.visit import substitute

BLOCK = 128
"""Elements of each row that are summed in the arithmetic type before their sum is added in f64."""


class ColumnReducer:
    """Statements that reduce a tile of rows: those of `column`, the other outer variables being bound.

    tile: rows of a full tile, the size of local arrays.
    """

    def __init__(self, memory: ReductionMemory, bindings: Mapping[Var, Expr], column: Range, tile: int) -> None:
        self.memory = memory
        self.column = column
        self.tile = tile
        self.lane = build.size_var("lane")
        here: dict[Var, Expr] = {column.var: column.start + self.lane}
        self.bindings: dict[Var, Expr] = {**here, **{v: substitute(e, here) for v, e in bindings.items()}}

    def read(self, value: Expr) -> Expr:
        """`value` with loads and the formulas known so far."""
        return substitute(self.memory.read(value), self.bindings)

    def array(self, name: str, dtype: DType) -> Var:
        """A local array with one element a row."""
        return Var(name, BufferType(dtype, (build.index(self.tile),), space="local"))

    def across(self, body: Sequence[Stmt]) -> Stmt:
        """A vectorised loop over the rows."""
        return For(self.lane, build.index(0), self.column.count, build.seq(body), kind="vectorize")

    def _fill(self, arrays: Sequence[Var], starts: Sequence[Expr]) -> list[Stmt]:
        return [Store(array, (self.lane,), start) for array, start in zip(arrays, starts, strict=True)]

    def _update(self, reduction: Reduction, arrays: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
        """Reduce values into the arrays' elements of one row."""
        combined = reduction.combiner.combine([build.load(array, self.lane) for array in arrays], values)
        fresh = [Var(f"next{n}", array.dtype) for n, array in enumerate(arrays)]
        return [
            *(Declare(var, value) for var, value in zip(fresh, combined, strict=True)),
            *(Store(array, (self.lane,), var) for array, var in zip(arrays, fresh, strict=True)),
        ]

    def reduce(
        self, reductions: Sequence[Reduction], ranges: Sequence[Range]
    ) -> tuple[list[Stmt], list[tuple[Expr, ...]]]:
        """One pass over the rows, and what each reduction gives, as elements of arrays."""
        partial = [tuple(self.array("partial", dtype) for dtype in reduction.dtypes) for reduction in reductions]
        fill = [
            s for f, a in zip(reductions, partial, strict=True) for s in self._fill(a, f.combiner.identity(f.dtypes))
        ]
        body = [
            s
            for reduction, arrays in zip(reductions, partial, strict=True)
            for s in self._update(reduction, arrays, [self.read(value) for value in reduction.values])
        ]
        stmts: list[Stmt] = [Declare(array) for arrays in partial for array in arrays]
        if is_short(ranges, 2 * BLOCK) or not any(map(loses_digits, reductions)):
            stmts += [self.across(fill), nest(ranges, self.across(body))]
            return stmts, [self._elements(arrays) for arrays in partial]
        totals = [tuple(self.array("total", dtype) for dtype in total_dtypes(reduction)) for reduction in reductions]
        stmts += [Declare(array) for arrays in totals for array in arrays]
        start = [
            s for f, a in zip(reductions, totals, strict=True) for s in self._fill(a, f.combiner.identity(_types(a)))
        ]
        merge = [
            s
            for reduction, arrays, parts in zip(reductions, totals, partial, strict=True)
            for s in self._update(reduction, arrays, self._widened(parts, arrays))
        ]
        begin = build.size_var("begin")
        first, *rest = ranges
        inside = dims.product([r.size for r in rest])
        step = self.memory.scope.size(dims.maximum(1, dims.floordiv(BLOCK, dims.maximum(1, inside))), "block")
        count = build.minimum(first.count - begin * step, step)
        part = Range(first.var, first.start + begin * step, count, first.size)
        blocks = build.binary("floordiv", first.count + (step - 1), step)
        loop = For(
            begin,
            build.index(0),
            blocks,
            build.seq([self.across(fill), nest([part, *rest], self.across(body)), self.across(merge)]),
        )
        stmts += [self.across(start), loop]
        return stmts, [self._elements(arrays) for arrays in totals]

    def _elements(self, arrays: Sequence[Var]) -> tuple[Expr, ...]:
        return tuple(build.load(array, self.lane) for array in arrays)

    def _widened(self, parts: Sequence[Var], totals: Sequence[Var]) -> list[Expr]:
        return [build.cast(build.load(p, self.lane), t.dtype) for p, t in zip(parts, totals, strict=True)]

    def bind(self, reductions: Sequence[Reduction], totals: Sequence[tuple[Expr, ...]]) -> None:
        """Let the results of reductions be known from now on."""
        for reduction, places in zip(reductions, totals, strict=True):
            for result, place in zip(reduction.results, places, strict=True):
                self.bindings[result] = build.cast(place, result.dtype)

    def formulas(self, formulas: Sequence[tuple[Var, Expr]]) -> list[Stmt]:
        """Arrays that hold the formulas, filled in one loop."""
        arrays = {variable: self.array(variable.name, variable.dtype) for variable, _ in formulas}
        body: list[Stmt] = []
        for variable, value in formulas:
            body.append(Store(arrays[variable], (self.lane,), self.read(value)))
            self.bindings[variable] = build.load(arrays[variable], self.lane)
        return [*(Declare(array) for array in arrays.values()), *([self.across(body)] if body else [])]

    def outputs(self, outputs: Sequence[ReductionOutput]) -> list[Stmt]:
        """Stores of the rows' results, one loop an output."""
        stmts: list[Stmt] = []
        for output in outputs:
            pointer, place = self.memory.target(output)
            place = substitute(place, self.bindings)
            stmts.append(self.across([Store(pointer, (place,), self.read(output.value))]))
        return stmts


def _types(arrays: Sequence[Var]) -> list[DType]:
    return [array.dtype for array in arrays]
