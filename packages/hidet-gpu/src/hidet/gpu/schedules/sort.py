"""sort, argsort, topk and what picks from a sorted row: rows of sort keys that hold an element's order and position."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute.definition import Compute, Routine, Scan, Scatter
from hidet.compute.routines import ARGSORT, SORT, TOPK
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.row_sort import Method, can_order, methods, usual_method, write_first
from hidet.gpu.schedules.row_sort_keys import RowKernel, Rows
from hidet.gpu.schedules.sort_kernels import SortKey
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.schedule.fallback import NestBuilder
from hidet.schedule.routines.sort_key import SortKeyFormat
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

_SORTS = (SORT, ARGSORT, TOPK)


class SortRule(ScheduleRule[None, Method]):
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

    def space(self, match: Match[None], ctx: CompileContext) -> Space[Method]:
        """The ways in which rows of their length can be ordered."""
        return Space.of_knob(Knob("method", methods(*_sizes(match.task)), "how rows are put in order"))

    def default(self, match: Match[None], ctx: CompileContext) -> Method:
        """By the length of rows and how much of them is wanted."""
        return usual_method(*_sizes(match.task))

    def build(self, match: Match[None], params: Method, ctx: CompileContext) -> Program:
        """A kernel, or several, for the ordering, and one for every other stage."""
        return _SortNest(match.task, gpu_target(ctx.target), params).program()


def _sizes(task: Task) -> tuple[Dim, Dim, Sequence[DType]]:
    """The length of rows, how many elements of each are wanted, and the parts of their sort keys."""
    (routine,) = (stage for stage in task.definition.stages if isinstance(stage, Routine))
    length, wanted, format_ = _ordering(routine)
    return length, wanted, format_.parts


def _ordering(routine: Routine) -> tuple[Dim, Dim, SortKeyFormat]:
    attributes = routine.attribute_values()
    (x,) = routine.operands
    length = x.shape[attributes["axis"] % x.rank]
    form = SortKeyFormat(x.dtype, attributes.get("descending", attributes.get("largest", False)))
    return length, attributes.get("k", length), form


class _SortNest(NestBuilder):
    def __init__(self, task: Task, target: GpuTarget, method: Method) -> None:
        super().__init__(task, is_by_element=True)
        self._target, self._method = target, method

    def stage(self, stage: Compute | Scan | Scatter | Routine) -> None:
        """Add the kernels of one stage."""
        if isinstance(stage, Routine):
            _Elements(self, stage, self._target).add(self._method)
        else:
            super().stage(stage)


class _Elements:
    """The rows of a routine's operand."""

    def __init__(self, nest: NestBuilder, stage: Routine, target: GpuTarget) -> None:
        self.nest, self.routine = nest, stage
        (self.x,) = stage.operands
        self.cut = stage.attribute_values()["axis"] % self.x.rank
        length, self.wanted, self.format = _ordering(stage)
        others = tuple(extent for axis, extent in enumerate(self.x.shape) if axis != self.cut)
        self.outer = tuple(build.size_var(f"row{n}") for n in range(len(others)))
        kinds = self.format.parts, self.format.order_bits
        self.rows = Rows(self.outer, others, length, *kinds, target, self._sort_key, self._results, self._write)

    def add(self, method: Method) -> None:
        """Add all kernels to the nest."""
        write_first(self.nest, self.routine, self.rows, self.wanted, method)

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
