"""Folding rows one after the other: SIMD along the row.

    for row
      for each pass over the row
        for block of the row                      partial results in the arithmetic type,
          vectorised loop                         combined in f64 where they are sums or products of floats
        formulas
      outputs

Pairs of value and position are folded in as many lanes as fill some registers, kept in a small array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Combiner
from hidet.cpu.schedules.fold_layout import FoldMemory, Loop
from hidet.cpu.schedules.folds import Fold, FoldOutput
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
"""Lanes of folds that LLVM does not vectorise itself: four registers of 16."""

_UNORDERED = tuple(COMBINERS[name] for name in ("argmax", "argmin", "welford"))


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """A loop over part of its extent. size: the extent's bound while compiling."""

    var: Var
    start: Expr
    count: Expr
    size: Dim


def whole(loop: Loop, memory: FoldMemory) -> Range:
    """All of a loop."""
    return Range(loop.var, build.index(0), memory.scope.size(loop.extent, "n"), loop.extent)


def loses_digits(fold: Fold) -> bool:
    """Whether long rows are folded block by block: sums and products of floats."""
    return fold.combiner.name in ("sum", "prod") and fold.dtypes[0].is_float


def total_dtypes(fold: Fold) -> tuple[DType, ...]:
    """Types in which the results of blocks are combined."""
    return (dtypes.f64,) if loses_digits(fold) else fold.dtypes


def is_short(ranges: Sequence[Range], limit: int = BLOCK) -> bool:
    """Whether a row surely has no more elements than `limit`."""
    return dims.prove_le(dims.product([r.size for r in ranges]), limit) is True


def update(combiner: Combiner, places: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
    """Statements that fold `values` into local variables.

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


class RowFolds:
    """Statements that fold one row, the outer variables being bound."""

    def __init__(self, memory: FoldMemory, bindings: Mapping[Var, Expr]) -> None:
        self.memory = memory
        self.bindings: dict[Var, Expr] = dict(bindings)

    def read(self, value: Expr) -> Expr:
        """`value` with loads and the formulas known so far."""
        return substitute(self.memory.read(value), self.bindings)

    def fold(self, folds: Sequence[Fold], ranges: Sequence[Range]) -> tuple[list[Stmt], list[tuple[Var, ...]]]:
        """One pass over the row, and the variables that hold what each fold gives."""
        types = [fold.dtypes if is_short(ranges) else total_dtypes(fold) for fold in folds]
        totals = [tuple(Var("total", dtype) for dtype in entry) for entry in types]
        declared: list[Stmt] = []
        for fold, places, entry in zip(folds, totals, types, strict=True):
            starts = fold.combiner.identity(entry)
            declared += [Declare(var, start) for var, start in zip(places, starts, strict=True)]
        plain = [(f, t) for f, t in zip(folds, totals, strict=True) if not _in_strips(f, ranges)]
        strips = [(f, t) for f, t in zip(folds, totals, strict=True) if _in_strips(f, ranges)]
        stmts = [*declared]
        if plain:
            stmts.append(self._plain(plain, ranges))
        for fold, places in strips:
            stmts += self._strips(fold, places, ranges)
        return stmts, totals

    def _plain(self, folds: Sequence[tuple[Fold, tuple[Var, ...]]], ranges: Sequence[Range]) -> Stmt:
        # LLVM vectorises folds of single values only.
        kind = "vectorize" if all(len(fold.values) == 1 for fold, _ in folds) else "serial"
        if is_short(ranges) or not any(loses_digits(fold) for fold, _ in folds):
            body = build.seq(s for fold, totals in folds for s in update(fold.combiner, totals, self._values(fold)))
            return nest(ranges, body, kind)
        *outside, last = ranges
        partial = [tuple(Var("partial", dtype) for dtype in fold.dtypes) for fold, _ in folds]
        declared = [
            Declare(var, start)
            for (fold, _), places in zip(folds, partial, strict=True)
            for var, start in zip(places, fold.combiner.identity(fold.dtypes), strict=True)
        ]
        body = build.seq(
            s
            for (fold, _), places in zip(folds, partial, strict=True)
            for s in update(fold.combiner, places, self._values(fold))
        )
        merged = [
            s for (fold, totals), places in zip(folds, partial, strict=True) for s in self._merge(fold, totals, places)
        ]
        if dims.prove_le(last.size, BLOCK) is True:
            loop = nest([last], body, kind)
            return nest(outside, build.seq([*declared, loop, *merged]))
        begin = build.size_var("begin")
        count = build.minimum(last.count - begin, BLOCK)
        loop = nest([Range(last.var, last.start + begin, count, BLOCK)], body, kind)
        blocks = For(begin, build.index(0), last.count, build.seq([*declared, loop, *merged]), step=BLOCK)
        return nest(outside, blocks)

    def _values(self, fold: Fold) -> list[Expr]:
        return [self.read(value) for value in fold.values]

    @staticmethod
    def _merge(fold: Fold, totals: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
        """Fold partial results into totals."""
        wide = [build.cast(value, total.dtype) for value, total in zip(values, totals, strict=True)]
        return update(fold.combiner, totals, wide)

    def _strips(self, fold: Fold, totals: tuple[Var, ...], ranges: Sequence[Range]) -> list[Stmt]:
        """Lanes in an array, combined at the end; the combiner must not care for the order of elements."""
        *outside, last = ranges
        extent = (build.index(STRIP),)
        arrays = [Var("lanes", BufferType(dtype, extent, space="local")) for dtype in fold.dtypes]
        lane, base = build.size_var("lane"), build.size_var("base")
        starts = fold.combiner.identity(fold.dtypes)
        fill = [Store(array, (lane,), start) for array, start in zip(arrays, starts, strict=True)]
        kept = [build.load(array, lane) for array in arrays]
        place: dict[Var, Expr] = {last.var: last.start + base + lane}
        values = [substitute(value, place) for value in self._values(fold)]
        fresh = [Var(f"next{n}", dtype) for n, dtype in enumerate(fold.dtypes)]
        combined = fold.combiner.combine(kept, values)
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
            For(lane, build.index(0), build.index(STRIP), build.seq(update(fold.combiner, totals, pick))),
        ]

    def bind(self, folds: Sequence[Fold], totals: Sequence[tuple[Expr, ...]]) -> None:
        """Let the results of folds be known from now on."""
        for fold, places in zip(folds, totals, strict=True):
            for result, place in zip(fold.results, places, strict=True):
                self.bindings[result] = build.cast(place, result.dtype)

    def formulas(self, formulas: Sequence[tuple[Var, Expr]]) -> list[Stmt]:
        """Locals that hold the formulas."""
        stmts: list[Stmt] = []
        for variable, value in formulas:
            local = Var(variable.name, variable.type)
            stmts.append(Declare(local, self.read(value)))
            self.bindings[variable] = local
        return stmts

    def outputs(self, outputs: Sequence[FoldOutput]) -> list[Stmt]:
        """Stores of the row's results."""
        stmts: list[Stmt] = []
        for output in outputs:
            pointer, place = self.memory.target(output)
            stmts.append(Store(pointer, (place,), self.read(output.value)))
        return stmts


def _in_strips(fold: Fold, ranges: Sequence[Range]) -> bool:
    """Whether a fold of tuples is worth the array: rows that may be longer than some strips."""
    if fold.combiner not in _UNORDERED or not ranges:
        return False
    return dims.prove_le(dims.product([r.size for r in ranges]), 4 * STRIP) is not True
