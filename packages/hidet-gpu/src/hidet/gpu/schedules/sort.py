"""sort, argsort, topk and what picks from a sorted row: rows of sort keys that hold an element's order and position."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute.definition import Compute, Routine, Scan, Scatter
from hidet.compute.routines import ARGSORT, SORT, TOPK
from hidet.context import CompileContext
from hidet.gpu.schedules.row_sort import can_order, write_first
from hidet.gpu.schedules.row_sort_keys import RowKernel, Rows
from hidet.gpu.schedules.sort_kernels import SortKey
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.schedule.fallback import FallbackRule, NestBuilder
from hidet.schedule.routines.sort_key import SortKeyFormat
from hidet.schedule.rule import Match, Program
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

_SORTS = (SORT, ARGSORT, TOPK)


class SortRule(FallbackRule):
    """Schedules operators whose definitions begin with an ordering of rows."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """None for scalars and for results without elements, which the fallback nest does as well."""
        stages = task.definition.stages if task.anchor is not None else ()
        found = [stage for stage in stages if isinstance(stage, Routine)]
        if len(found) != 1 or found[0].spec not in _SORTS or found[0].operands[0].rank == 0:
            return None
        if dict(found[0].attributes).get("k") == 0 or not can_order(gpu_target(ctx.target)):
            return None
        return Match(task)

    def build(self, match: Match[None], params: None, ctx: CompileContext) -> Program:
        """A kernel, or several, for the ordering, and one for every other stage."""
        return _SortNest(match.task, gpu_target(ctx.target)).program()


class _SortNest(NestBuilder):
    def __init__(self, task: Task, target: GpuTarget) -> None:
        super().__init__(task, is_by_element=True)
        self._target = target

    def stage(self, stage: Compute | Scan | Scatter | Routine) -> None:
        """Add the kernels of one stage."""
        if isinstance(stage, Routine):
            _Elements(self, stage, self._target).add()
        else:
            super().stage(stage)


class _Elements:
    """The rows of a routine's operand."""

    def __init__(self, nest: NestBuilder, stage: Routine, target: GpuTarget) -> None:
        self.nest, self.routine = nest, stage
        attributes = stage.attribute_values()
        (self.x,) = stage.operands
        self.cut = attributes["axis"] % self.x.rank
        self.wanted = attributes.get("k", self.x.shape[self.cut])
        self.format = SortKeyFormat(self.x.dtype, attributes.get("descending", attributes.get("largest", False)))
        others = tuple(extent for axis, extent in enumerate(self.x.shape) if axis != self.cut)
        self.outer = tuple(build.size_var(f"row{n}") for n in range(len(others)))
        length = self.x.shape[self.cut]
        kinds = self.format.parts, self.format.order_bits
        self.rows = Rows(self.outer, others, length, *kinds, target, self._sort_key, self._results, self._write)

    def add(self) -> None:
        """Add all kernels to the nest."""
        write_first(self.nest, self.routine, self.rows, self.wanted)

    def _at(self, position: Expr) -> tuple[Expr, ...]:
        return (*self.outer[: self.cut], position, *self.outer[self.cut :])

    def _element(self, kernel: RowKernel, position: Expr) -> Expr:
        return kernel.opened.lowering.resolve(self.x[self._at(position)], {})

    def _sort_key(self, kernel: RowKernel, position: Expr) -> Sequence[Expr]:
        return self.format.sort_key(self._element(kernel, position), position)

    def _results(self, kernel: RowKernel, sort_key: SortKey) -> Sequence[Expr]:
        """The element that the sort key is of, if wanted, and its position."""
        position = self.format.position(sort_key)
        values = self.routine.results[:-1]
        return [*(self._element(kernel, position) for _ in values), position]

    def _write(self, k: IRBuilder, kernel: RowKernel, place: Expr, values: Sequence[Expr]) -> None:
        for result, value in zip(self.routine.results, values, strict=True):
            k.emit(self.nest.store(result, kernel.opened.pointers, kernel.scope, self._at(place), value))
