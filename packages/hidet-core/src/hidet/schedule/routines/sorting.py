"""sort, argsort and topk: a work item orders one row."""

from __future__ import annotations

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Stmt
from hidet.schedule.routines.merge_sort import insert, merge_sort
from hidet.schedule.routines.site import RoutineKernel, RoutineSite, unflatten
from hidet.schedule.routines.sort_key import SortKeyFormat

# Up to so many best elements are kept in order while the row is read once; more are taken from the sorted row.
_MOST_SELECTED = 128


def sort_program(site: RoutineSite) -> RoutineKernel:
    """Results: values in order and their positions, or the positions alone."""
    attributes = site.stage.attribute_values()
    return _Rows(site, attributes["axis"], attributes["descending"]).kernel(None)


def topk_program(site: RoutineSite) -> RoutineKernel:
    """Results: the k best values, best first, and their positions."""
    attributes = site.stage.attribute_values()
    return _Rows(site, attributes["axis"], attributes["largest"]).kernel(attributes["k"])


class _Rows:
    """A kernel under construction; `item` numbers the rows along `axis`."""

    def __init__(self, site: RoutineSite, axis: int, descending: bool) -> None:
        (self.x,) = site.stage.operands
        self.site = site
        self.item = build.size_var("item")
        self.cut = axis % max(self.x.rank, 1)
        self.others = [extent for position, extent in enumerate(self.x.shape) if position != self.cut]
        self.rows = dims.product(self.others)
        self.outer = unflatten(self.item, [site.size(extent) for extent in self.others])
        self.format = SortKeyFormat(self.x.dtype, descending)

    def kernel(self, wanted: Dim | None) -> RoutineKernel:
        """The first `wanted` elements in order; all for None."""
        k = IRBuilder()
        if self.x.rank == 0:
            k.emit(*self._results(build.index(0), build.index(0)))
            return RoutineKernel(self.item, 1, k.body)
        length = self.x.shape[self.cut]
        if wanted == 0:
            return RoutineKernel(self.item, 0, k.body)
        if isinstance(wanted, int) and wanted <= _MOST_SELECTED:
            parts, start = self._select(k, wanted, length)
        else:
            parts, start = self._sort(k, length)
        place, position = build.size_var("place"), build.size_var("position")
        results = self._results(place, position)
        with k.loop(place, self.site.size(length if wanted is None else wanted)):
            k.declare(position, self.format.position([build.load(part, start + place) for part in parts]))
            k.emit(*results)
        return RoutineKernel(self.item, self.rows, k.body)

    def _at(self, operand: Operand, position: Expr) -> tuple[Expr, ...]:
        return (*self.outer[: self.cut], position, *self.outer[self.cut :]) if operand.rank else ()

    def _results(self, place: Expr, position: Expr) -> list[Stmt]:
        """Writes of results at `place` of the row: the element that was at `position`, if wanted, and the position."""
        *values, positions = self.site.stage.results
        element = self.site.read(self.x, self._at(self.x, position))
        stmts = [self.site.write(result, self._at(result, place), element) for result in values]
        return [*stmts, self.site.write(positions, self._at(positions, place), position)]

    def _sort_keys(self, count: Dim) -> tuple[list[Var], Expr]:
        """Memory for `count` sort keys a row, and where those of this row start."""
        total = self.rows * count
        parts = [self.site.scratch(f"sort_keys{n}", dtype, total) for n, dtype in enumerate(self.format.parts)]
        return parts, self.item * self.site.size(count)

    def _sort(self, k: IRBuilder, length: Dim) -> tuple[list[Var], Expr]:
        """All sort keys in order, and where they start."""
        parts, start = self._sort_keys(length * 2)
        count = self.site.size(length)
        with k.for_range("position", count) as position:
            k.store_each(parts, start + position, self._sort_key(position))
        return parts, merge_sort(k, parts, start, count)

    def _select(self, k: IRBuilder, most: int, length: Dim) -> tuple[list[Var], Expr]:
        """One pass over the row; most elements are no better than the last that is kept and cost a comparison."""
        parts, start = self._sort_keys(most)
        wanted = self.site.size(most)
        count = k.let("count", build.index(0))

        def keep() -> None:
            last = k.let("last", start + build.minimum(count, wanted - 1))
            insert(k, parts, sort_key, start, last)
            k.assign(count, build.minimum(count + 1, wanted))

        with k.for_range("position", self.site.size(length)) as position:
            sort_key = k.let_each("sort_key", self._sort_key(position))
            with k.if_(count < wanted):
                keep()
            # Before so many sort keys are there the place compared with holds anything.
            with k.else_(), k.if_(sort_key[0] < build.load(parts[0], start + (wanted - 1))):
                keep()
        return parts, start

    def _sort_key(self, position: Expr) -> list[Expr]:
        return self.format.sort_key(self.site.read(self.x, self._at(self.x, position)), position)
