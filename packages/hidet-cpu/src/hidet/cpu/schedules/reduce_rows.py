"""Reducing rows one after the other: SIMD along the row.

    for row
      for each pass over the row
        for block of the row                      partial results in the arithmetic type,
          vectorised loop                         combined in f64 where they are sums or products of floats
        formulas
      outputs

Pairs of value and position are reduced in as many lanes as fill some registers, kept in a small array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Combiner
from hidet.cpu.schedules.reduce_layout import Loop, ReductionMemory
from hidet.cpu.schedules.reductions import Reduction, ReductionOutput
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, For, Stmt, Store
from hidet.ir.types import BufferType
from hidet.ir.visit import substitute

BLOCK = 2048
"""Elements that are summed in the arithmetic type before their sum is added in f64. Adding all elements of a long row
in f32 would lose digits with the square root of its length; torch adds pairwise."""

STRIP = 64
"""Lanes of reductions that LLVM does not vectorise itself: four registers of 16."""

_UNORDERED = tuple(COMBINERS[name] for name in ("argmax", "argmin", "welford"))


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """A loop over part of its extent. size: the extent's bound while compiling."""

    var: Var
    start: Expr
    count: Expr
    size: Dim


def whole(loop: Loop, memory: ReductionMemory) -> Range:
    """All of a loop."""
    return Range(loop.var, build.index(0), memory.scope.size(loop.extent, "n"), loop.extent)


def loses_digits(reduction: Reduction) -> bool:
    """Whether long rows are reduced block by block: sums and products of floats."""
    return reduction.combiner.name in ("sum", "prod") and reduction.dtypes[0].is_float


def total_dtypes(reduction: Reduction) -> tuple[DType, ...]:
    """Types in which the results of blocks are combined."""
    return (dtypes.f64,) if loses_digits(reduction) else reduction.dtypes


def is_short(ranges: Sequence[Range], limit: int = BLOCK) -> bool:
    """Whether a row surely has no more elements than `limit`."""
    return dims.prove_le(dims.product([r.size for r in ranges]), limit) is True


def update(combiner: Combiner, places: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
    """Statements that reduce `values` into local variables.

    Values are computed first: `and` and `or` would read memory only where that decides.
    """
    named = [Var("value", value.dtype) for value in values]
    stmts: list[Stmt] = [Declare(var, value) for var, value in zip(named, values, strict=True)]
    combined = combiner.combine(places, named)
    if len(places) == 1:
        return [*stmts, Assign(places[0], combined[0])]
    fresh = [Var(f"next{n}", place.dtype) for n, place in enumerate(places)]
    stmts += [Declare(var, value) for var, value in zip(fresh, combined, strict=True)]
    return [*stmts, *(Assign(place, var) for place, var in zip(places, fresh, strict=True))]


def nest(ranges: Sequence[Range], body: Stmt, innermost: str = "serial") -> Stmt:
    """Loops over ranges, the last one innermost and of the given kind."""
    for position in reversed(range(len(ranges))):
        kind = innermost if position == len(ranges) - 1 else "serial"
        r = ranges[position]
        body = For(r.var, r.start, r.count, body, kind=kind)  # type: ignore[arg-type]  # a LoopKind
    return body


class RowReducer:
    """Statements that reduce one row, the outer variables being bound."""

    def __init__(self, memory: ReductionMemory, bindings: Mapping[Var, Expr]) -> None:
        self.memory = memory
        self.bindings: dict[Var, Expr] = dict(bindings)

    def read(self, value: Expr) -> Expr:
        """`value` with loads and the formulas known so far."""
        return substitute(self.memory.read(value), self.bindings)

    def reduce(
        self, reductions: Sequence[Reduction], ranges: Sequence[Range]
    ) -> tuple[list[Stmt], list[tuple[Var, ...]]]:
        """One pass over the row, and the variables that hold what each reduction gives."""
        types = [reduction.dtypes if is_short(ranges) else total_dtypes(reduction) for reduction in reductions]
        totals = [tuple(Var("total", dtype) for dtype in entry) for entry in types]
        declared: list[Stmt] = []
        for reduction, places, entry in zip(reductions, totals, types, strict=True):
            starts = reduction.combiner.identity(entry)
            declared += [Declare(var, start) for var, start in zip(places, starts, strict=True)]
        plain = [(f, t) for f, t in zip(reductions, totals, strict=True) if not _in_strips(f, ranges)]
        strips = [(f, t) for f, t in zip(reductions, totals, strict=True) if _in_strips(f, ranges)]
        stmts = [*declared]
        if plain:
            stmts.append(self._plain(plain, ranges))
        for reduction, places in strips:
            stmts += self._strips(reduction, places, ranges)
        return stmts, totals

    def _plain(self, reductions: Sequence[tuple[Reduction, tuple[Var, ...]]], ranges: Sequence[Range]) -> Stmt:
        # LLVM vectorises reductions of single values only.
        kind = "vectorize" if all(len(reduction.values) == 1 for reduction, _ in reductions) else "serial"
        if is_short(ranges) or not any(loses_digits(reduction) for reduction, _ in reductions):
            body = build.seq(
                s
                for reduction, totals in reductions
                for s in update(reduction.combiner, totals, self._values(reduction))
            )
            return nest(ranges, body, kind)
        *outside, last = ranges
        partial = [tuple(Var("partial", dtype) for dtype in reduction.dtypes) for reduction, _ in reductions]
        declared = [
            Declare(var, start)
            for (reduction, _), places in zip(reductions, partial, strict=True)
            for var, start in zip(places, reduction.combiner.identity(reduction.dtypes), strict=True)
        ]
        body = build.seq(
            s
            for (reduction, _), places in zip(reductions, partial, strict=True)
            for s in update(reduction.combiner, places, self._values(reduction))
        )
        merged = [
            s
            for (reduction, totals), places in zip(reductions, partial, strict=True)
            for s in self._merge(reduction, totals, places)
        ]
        if dims.prove_le(last.size, BLOCK) is True:
            loop = nest([last], body, kind)
            return nest(outside, build.seq([*declared, loop, *merged]))
        begin = build.size_var("begin")
        count = build.minimum(last.count - begin, BLOCK)
        loop = nest([Range(last.var, last.start + begin, count, BLOCK)], body, kind)
        blocks = For(begin, build.index(0), last.count, build.seq([*declared, loop, *merged]), step=BLOCK)
        return nest(outside, blocks)

    def _values(self, reduction: Reduction) -> list[Expr]:
        return [self.read(value) for value in reduction.values]

    @staticmethod
    def _merge(reduction: Reduction, totals: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
        """Reduce partial results into totals."""
        wide = [build.cast(value, total.dtype) for value, total in zip(values, totals, strict=True)]
        return update(reduction.combiner, totals, wide)

    def _strips(self, reduction: Reduction, totals: tuple[Var, ...], ranges: Sequence[Range]) -> list[Stmt]:
        """Lanes in an array, combined at the end; the combiner must not care for the order of elements."""
        *outside, last = ranges
        extent = (build.index(STRIP),)
        arrays = [Var("lanes", BufferType(dtype, extent, space="local")) for dtype in reduction.dtypes]
        lane, base = build.size_var("lane"), build.size_var("base")
        starts = reduction.combiner.identity(reduction.dtypes)
        fill = [Store(array, (lane,), start) for array, start in zip(arrays, starts, strict=True)]
        kept = [build.load(array, lane) for array in arrays]
        place: dict[Var, Expr] = {last.var: last.start + base + lane}
        values = [substitute(value, place) for value in self._values(reduction)]
        fresh = [Var(f"next{n}", dtype) for n, dtype in enumerate(reduction.dtypes)]
        combined = reduction.combiner.combine(kept, values)
        step = build.seq(
            [
                *(Declare(var, value) for var, value in zip(fresh, combined, strict=True)),
                *(Store(array, (lane,), var) for array, var in zip(arrays, fresh, strict=True)),
            ]
        )
        lanes = For(lane, build.index(0), build.minimum(last.count - base, STRIP), step, kind="vectorize")
        pick = [build.load(array, lane) for array in arrays]
        return [
            *(Declare(array) for array in arrays),
            For(lane, build.index(0), build.index(STRIP), build.seq(fill), kind="vectorize"),
            nest(outside, For(base, build.index(0), last.count, lanes, step=STRIP)),
            For(lane, build.index(0), build.index(STRIP), build.seq(update(reduction.combiner, totals, pick))),
        ]

    def bind(self, reductions: Sequence[Reduction], totals: Sequence[tuple[Expr, ...]]) -> None:
        """Let the results of reductions be known from now on."""
        for reduction, places in zip(reductions, totals, strict=True):
            for result, place in zip(reduction.results, places, strict=True):
                self.bindings[result] = build.cast(place, result.dtype)

    def formulas(self, formulas: Sequence[tuple[Var, Expr]]) -> list[Stmt]:
        """Locals that hold the formulas."""
        stmts: list[Stmt] = []
        for variable, value in formulas:
            local = Var(variable.name, variable.type)
            stmts.append(Declare(local, self.read(value)))
            self.bindings[variable] = local
        return stmts

    def outputs(self, outputs: Sequence[ReductionOutput]) -> list[Stmt]:
        """Stores of the row's results."""
        stmts: list[Stmt] = []
        for output in outputs:
            pointer, place = self.memory.target(output)
            stmts.append(Store(pointer, (place,), self.read(output.value)))
        return stmts


def _in_strips(reduction: Reduction, ranges: Sequence[Range]) -> bool:
    """Whether a reduction of tuples is worth the array: rows that may be longer than some strips."""
    if reduction.combiner not in _UNORDERED or not ranges:
        return False
    return dims.prove_le(dims.product([r.size for r in ranges]), 4 * STRIP) is not True
