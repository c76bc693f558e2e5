"""sort, argsort and topk: a work item orders one row."""

from __future__ import annotations

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, For, If, Stmt, Store
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

    def kernel(self, k: Dim | None) -> RoutineKernel:
        """The first `k` elements in order; all for None."""
        if self.x.rank == 0:
            return RoutineKernel(self.item, 1, build.seq(self._write(build.index(0), build.index(0))))
        length = self.x.shape[self.cut]
        if k == 0:
            return RoutineKernel(self.item, 0, build.seq([]))
        if isinstance(k, int) and k <= _MOST_SELECTED:
            parts, stmts, start = self._select(k, length)
        else:
            parts, stmts, start = self._sort(length)
        place, position = build.size_var("place"), build.size_var("position")
        found = self.format.position([build.load(part, start + place) for part in parts])
        write = build.seq([Declare(position, found), *self._write(place, position)])
        stmts.append(For(place, build.index(0), self.site.size(length if k is None else k), write))
        return RoutineKernel(self.item, self.rows, build.seq(stmts))

    def _at(self, operand: Operand, position: Expr) -> tuple[Expr, ...]:
        return (*self.outer[: self.cut], position, *self.outer[self.cut :]) if operand.rank else ()

    def _write(self, place: Expr, position: Expr) -> list[Stmt]:
        """Results at `place` of the row: the element that was at `position`, if wanted, and the position."""
        *values, positions = self.site.stage.results
        element = self.site.read(self.x, self._at(self.x, position))
        stmts = [self.site.write(result, self._at(result, place), element) for result in values]
        return [*stmts, self.site.write(positions, self._at(positions, place), position)]

    def _sort_keys(self, count: Dim) -> tuple[list[Var], Expr]:
        """Memory for `count` sort keys a row, and where those of this row start."""
        total = self.rows * count
        parts = [self.site.scratch(f"sort_keys{n}", dtype, total) for n, dtype in enumerate(self.format.parts)]
        return parts, self.item * self.site.size(count)

    def _sort(self, length: Dim) -> tuple[list[Var], list[Stmt], Expr]:
        parts, start = self._sort_keys(length * 2)
        position = build.size_var("position")
        sort_key = self.format.sort_key(self.site.read(self.x, self._at(self.x, position)), position)
        stores = [Store(part, (start + position,), value) for part, value in zip(parts, sort_key, strict=True)]
        count = self.site.size(length)
        stmts, sorted_start = merge_sort(parts, start, count)
        return parts, [For(position, build.index(0), count, build.seq(stores)), *stmts], sorted_start

    def _select(self, k: int, length: Dim) -> tuple[list[Var], list[Stmt], Expr]:
        """One pass over the row; most elements are no better than the k-th best so far and cost a comparison."""
        parts, start = self._sort_keys(k)
        count, last = build.size_var("count"), build.size_var("last")
        position = build.size_var("position")
        value = self.format.sort_key(self.site.read(self.x, self._at(self.x, position)), position)
        sort_key = [Var(f"sort_key{n}", part.dtype) for n, part in enumerate(parts)]
        wanted = self.site.size(k)
        keep = build.seq(
            [
                Declare(last, start + build.minimum(count, wanted - 1)),
                *insert(parts, sort_key, start, last),
                Assign(count, build.minimum(count + 1, wanted)),
            ]
        )
        # Before k sort keys are there the place compared with holds anything.
        is_better = sort_key[0] < build.load(parts[0], start + (wanted - 1))
        scan = build.seq(
            [
                *(Declare(var, part) for var, part in zip(sort_key, value, strict=True)),
                If(count < wanted, keep, If(is_better, keep)),
            ]
        )
        return (
            parts,
            [
                Declare(count, build.index(0)),
                For(position, build.index(0), self.site.size(length), scan),
            ],
            start,
        )
