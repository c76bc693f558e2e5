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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Combiner
from hidet.cpu.schedules.reduce_layout import Loop, ReductionMemory
from hidet.cpu.schedules.reductions import Reduction, ReductionOutput
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Binary, Const, Expr, Load, Var
from hidet.ir.stmt import LoopKind
from hidet.ir.visit import substitute, walk

BLOCK = 2048
"""Elements that are summed in the arithmetic type before their sum is added in f64. Adding all elements of a long row
in f32 would lose digits with the square root of its length; torch adds pairwise."""

_PASSES = 8
"""Vectorised loops over the innermost range whose sums may be added one after the other in the arithmetic type: the
lanes of each are added pairwise, the sums of the passes are not."""

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


def has_at_most(limit: int, ranges: Sequence[Range]) -> bool:
    """Whether ranges surely have no more than `limit` elements."""
    return dims.prove_le(dims.product([r.size for r in ranges]), limit) is True


def _is_short(ranges: Sequence[Range]) -> bool:
    """Whether a row may be reduced in the arithmetic type alone."""
    return has_at_most(BLOCK, ranges) and has_at_most(_PASSES, ranges[:-1])


def update(k: IRBuilder, combiner: Combiner, places: Sequence[Var], values: Sequence[Expr]) -> None:
    """Reduce `values` into local variables.

    Values are computed first: `and` and `or` would read memory only where that decides.
    """
    combined = combiner.combine(places, [k.let("value", value) for value in values])
    k.assign_each(places, combined if len(places) == 1 else k.let_each("next", combined))


@contextmanager
def nest(k: IRBuilder, ranges: Sequence[Range], innermost: LoopKind = "serial") -> Iterator[None]:
    """Loops over ranges, the last one innermost and of the given kind."""
    with ExitStack() as loops:
        for r in ranges:
            loops.enter_context(k.loop(r.var, r.count, r.start, kind=innermost if r is ranges[-1] else "serial"))
        yield


class RowReducer:
    """Writes what reduces one row, the outer variables being bound."""

    def __init__(self, k: IRBuilder, memory: ReductionMemory, bindings: Mapping[Var, Expr]) -> None:
        self.k = k
        self.memory = memory
        self.bindings: dict[Var, Expr] = dict(bindings)

    @contextmanager
    def across(self) -> Iterator[None]:
        """Statements for every row at hand: this one."""
        yield

    def read(self, value: Expr) -> Expr:
        """`value` with loads and the formulas known so far."""
        return substitute(self.memory.read(value), self.bindings)

    def reduce(self, reductions: Sequence[Reduction], ranges: Sequence[Range]) -> list[tuple[Var, ...]]:
        """One pass over the row; gives the variables that hold what each reduction gives."""
        is_strided = any(map(loses_digits, reductions)) and self._is_strided(reductions, ranges)
        is_narrow = _is_short(ranges) and not is_strided
        types = [reduction.dtypes if is_narrow else total_dtypes(reduction) for reduction in reductions]
        totals = [
            tuple(self.k.let("total", start) for start in reduction.combiner.identity(entry))
            for reduction, entry in zip(reductions, types, strict=True)
        ]
        plain = [(f, t) for f, t in zip(reductions, totals, strict=True) if not _in_strips(f, ranges)]
        if plain:
            self._plain(plain, ranges, is_strided)
        for reduction, places in zip(reductions, totals, strict=True):
            if _in_strips(reduction, ranges):
                self._strips(reduction, places, ranges)
        return totals

    def _plain(
        self, reductions: Sequence[tuple[Reduction, tuple[Var, ...]]], ranges: Sequence[Range], is_strided: bool
    ) -> None:
        k = self.k
        # LLVM vectorises reductions of single values only.
        kind: LoopKind = "vectorize" if all(len(reduction.values) == 1 for reduction, _ in reductions) else "serial"
        if is_strided or _is_short(ranges) or not any(loses_digits(reduction) for reduction, _ in reductions):
            with nest(k, ranges, kind):
                for reduction, totals in reductions:
                    update(k, reduction.combiner, totals, self._widened(reduction, totals))
            return
        *outside, last = ranges
        with nest(k, outside):
            if dims.prove_le(last.size, BLOCK) is True:
                self._block(reductions, last, kind)
                return
            with k.for_range("begin", last.count, step=BLOCK) as begin:
                count = build.minimum(last.count - begin, BLOCK)
                self._block(reductions, Range(last.var, last.start + begin, count, BLOCK), kind)

    def _block(self, reductions: Sequence[tuple[Reduction, tuple[Var, ...]]], block: Range, kind: LoopKind) -> None:
        """Reduce part of the row in the arithmetic type, and that into the totals."""
        k = self.k
        partial = [
            tuple(k.let("partial", start) for start in reduction.combiner.identity(reduction.dtypes))
            for reduction, _ in reductions
        ]
        with nest(k, [block], kind):
            for (reduction, _), places in zip(reductions, partial, strict=True):
                update(k, reduction.combiner, places, self._values(reduction))
        for (reduction, totals), places in zip(reductions, partial, strict=True):
            wide = [build.cast(value, total.dtype) for value, total in zip(places, totals, strict=True)]
            update(k, reduction.combiner, totals, wide)

    def _is_strided(self, reductions: Sequence[Reduction], ranges: Sequence[Range]) -> bool:
        """Whether the innermost loop reads elements that are a run-time number of elements apart. LLVM leaves that loop
        scalar, so that nothing is added in lanes: floats are added one after the other, in f64."""
        if not ranges:
            return False
        loads = (n for r in reductions for value in self._values(r) for n in walk(value) if isinstance(n, Load))
        return any(_has_stride(index, ranges[-1].var) for load in loads for index in load.indices)

    def _widened(self, reduction: Reduction, totals: Sequence[Var]) -> list[Expr]:
        """An element's values in the types of the totals."""
        return [build.cast(value, total.dtype) for value, total in zip(self._values(reduction), totals, strict=True)]

    def _values(self, reduction: Reduction) -> list[Expr]:
        return [self.read(value) for value in reduction.values]

    def _strips(self, reduction: Reduction, totals: tuple[Var, ...], ranges: Sequence[Range]) -> None:
        """Lanes in an array, combined at the end; the combiner must not care for the order of elements."""
        k, combiner, lane = self.k, reduction.combiner, build.size_var("lane")
        *outside, last = ranges
        arrays = [k.array("lanes", dtype, STRIP, space="local") for dtype in reduction.dtypes]
        kept = [build.load(array, lane) for array in arrays]
        with k.loop(lane, STRIP, kind="vectorize"):
            k.store_each(arrays, lane, combiner.identity(reduction.dtypes))
        with nest(k, outside), k.for_range("base", last.count, step=STRIP) as base:
            place: dict[Var, Expr] = {last.var: last.start + base + lane}
            with k.loop(lane, build.minimum(last.count - base, STRIP), kind="vectorize"):
                values = [substitute(value, place) for value in self._values(reduction)]
                k.store_each(arrays, lane, k.let_each("next", combiner.combine(kept, values)))
        with k.loop(lane, STRIP):
            update(k, combiner, totals, kept)

    def bind(self, reductions: Sequence[Reduction], totals: Sequence[tuple[Expr, ...]]) -> None:
        """Let the results of reductions be known from now on."""
        for reduction, places in zip(reductions, totals, strict=True):
            for result, place in zip(reduction.results, places, strict=True):
                self.bindings[result] = build.cast(place, result.dtype)

    def formulas(self, formulas: Sequence[tuple[Var, Expr]]) -> None:
        """Locals that hold the formulas."""
        for variable, value in formulas:
            self.bindings[variable] = self.k.let(variable.name, self.read(value))

    def outputs(self, outputs: Sequence[ReductionOutput]) -> None:
        """Stores of the row's results."""
        for output in outputs:
            pointer, place = self.memory.target(output)
            self.k.store(pointer, place, self.read(output.value))


def _has_stride(index: Expr, var: Var) -> bool:
    """Whether a place depends on `var` times something that is not a constant."""
    products = (n for n in walk(index) if isinstance(n, Binary) and n.op == "mul")
    return any(
        any(n is var for n in walk(a)) and not isinstance(b, Const)
        for product in products
        for a, b in ((product.a, product.b), (product.b, product.a))
    )


def _in_strips(reduction: Reduction, ranges: Sequence[Range]) -> bool:
    """Whether a reduction of tuples is worth the array: rows that may be longer than some strips."""
    if reduction.combiner not in _UNORDERED or not ranges:
        return False
    return dims.prove_le(dims.product([r.size for r in ranges]), 4 * STRIP) is not True
