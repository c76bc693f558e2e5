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
from contextlib import AbstractContextManager

from hidet import dims
from hidet.cpu.schedules.reduce_layout import ReductionMemory
from hidet.cpu.schedules.reduce_rows import Range, has_at_most, loses_digits, nest, total_dtypes
from hidet.cpu.schedules.reductions import Reduction, ReductionOutput
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.visit import substitute

BLOCK = 32
"""Elements of each row that are summed in the arithmetic type before their sum is added in f64."""


class ColumnReducer:
    """Writes what reduces a tile of rows: those of `column`, the other outer variables being bound.

    tile: rows of a full tile, the size of local arrays.
    """

    def __init__(
        self, k: IRBuilder, memory: ReductionMemory, bindings: Mapping[Var, Expr], column: Range, tile: int
    ) -> None:
        self.k = k
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
        return self.k.array(name, dtype, self.tile, space="local")

    def across(self) -> AbstractContextManager[None]:
        """A vectorised loop over the rows."""
        return self.k.loop(self.lane, self.column.count, kind="vectorize")

    def _fill(self, reductions: Sequence[Reduction], arrays: Sequence[Sequence[Var]]) -> None:
        """What every reduction starts with."""
        with self.across():
            for reduction, entry in zip(reductions, arrays, strict=True):
                starts = reduction.combiner.identity([array.dtype for array in entry])
                self.k.store_each(entry, self.lane, starts)

    def _update(
        self, reductions: Sequence[Reduction], arrays: Sequence[Sequence[Var]], values: Sequence[Sequence[Expr]]
    ) -> None:
        """Reduce values of every row into the arrays' elements."""
        with self.across():
            for reduction, entry, fresh in zip(reductions, arrays, values, strict=True):
                combined = reduction.combiner.combine(self._elements(entry), fresh)
                self.k.store_each(entry, self.lane, self.k.let_each("next", combined))

    def reduce(self, reductions: Sequence[Reduction], ranges: Sequence[Range]) -> list[tuple[Expr, ...]]:
        """One pass over the rows; gives what each reduction gives, as elements of arrays."""
        k = self.k
        partial = [tuple(self.array("partial", dtype) for dtype in reduction.dtypes) for reduction in reductions]
        values = [[self.read(value) for value in reduction.values] for reduction in reductions]

        def reduce_block(part: Sequence[Range]) -> None:
            self._fill(reductions, partial)
            with nest(k, part):
                self._update(reductions, partial, values)

        if has_at_most(2 * BLOCK, ranges) or not any(map(loses_digits, reductions)):
            reduce_block(ranges)
            return [self._elements(arrays) for arrays in partial]
        totals = [tuple(self.array("total", dtype) for dtype in total_dtypes(reduction)) for reduction in reductions]
        first, *rest = ranges
        inside = dims.product([r.size for r in rest])
        step = self.memory.scope.size(dims.maximum(1, dims.floordiv(BLOCK, dims.maximum(1, inside))), "block")
        self._fill(reductions, totals)
        with k.for_range("begin", build.binary("floordiv", first.count + (step - 1), step)) as begin:
            count = build.minimum(first.count - begin * step, step)
            reduce_block([Range(first.var, first.start + begin * step, count, first.size), *rest])
            widened = [self._widened(parts, arrays) for parts, arrays in zip(partial, totals, strict=True)]
            self._update(reductions, totals, widened)
        return [self._elements(arrays) for arrays in totals]

    def _elements(self, arrays: Sequence[Var]) -> tuple[Expr, ...]:
        return tuple(build.load(array, self.lane) for array in arrays)

    def _widened(self, parts: Sequence[Var], totals: Sequence[Var]) -> list[Expr]:
        return [build.cast(build.load(p, self.lane), t.dtype) for p, t in zip(parts, totals, strict=True)]

    def bind(self, reductions: Sequence[Reduction], totals: Sequence[tuple[Expr, ...]]) -> None:
        """Let the results of reductions be known from now on."""
        for reduction, places in zip(reductions, totals, strict=True):
            for result, place in zip(reduction.results, places, strict=True):
                self.bindings[result] = build.cast(place, result.dtype)

    def formulas(self, formulas: Sequence[tuple[Var, Expr]]) -> None:
        """Arrays that hold the formulas, filled in one loop."""
        arrays = {variable: self.array(variable.name, variable.dtype) for variable, _ in formulas}
        if not arrays:
            return
        with self.across():
            for variable, value in formulas:
                self.k.store(arrays[variable], self.lane, self.read(value))
                self.bindings[variable] = build.load(arrays[variable], self.lane)

    def outputs(self, outputs: Sequence[ReductionOutput]) -> None:
        """Stores of the rows' results, one loop an output."""
        for output in outputs:
            pointer, place = self.memory.target(output)
            with self.across():
                self.k.store(pointer, substitute(place, self.bindings), self.read(output.value))
