"""Reductions: sums, extremes with and without positions, variances, norms and the like, along any axes.

Rows whose elements lie side by side are reduced with SIMD along the row; rows that lie side by side themselves, with
SIMD across rows. Few long rows are cut into parts of fixed length, whose results are combined in order: the result does
not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hidet import dims
from hidet.context import CompileContext
from hidet.cpu.schedules.cost_items import Work, items_seconds, task_bytes
from hidet.cpu.schedules.reduce_kernels import Plan, assemble, element_picoseconds, whole_kernel
from hidet.cpu.schedules.reduce_layout import Loop, ReductionLayout, reduction_layout
from hidet.cpu.schedules.reduce_parts import cut_program
from hidet.cpu.schedules.reductions import ReductionProgram, reduction_program
from hidet.schedule.cost import extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.target import Target

# Elements of one work item, and of one part of a long row: some microseconds of work.
ITEM_ELEMENTS = 32768
# Rows shorter than this are reduced side by side even if their elements lie closer together than the rows do.
_TINY_ROW = 16
# A row is cut into parts when fewer work items than this many would be left otherwise.
_FEW_ITEMS = 16


@dataclass(frozen=True, slots=True)
class ReduceParams:
    """item_elements: of a work item, and of a part of a long row. vectors: of rows that are reduced at once, where they
    lie side by side."""

    item_elements: int
    vectors: int


class ReduceRule(ScheduleRule[Plan, ReduceParams]):
    """Schedules every operator that reduces rows of one tensor and computes formulas of the results."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Plan] | None:
        """Any element type, any strides."""
        program = None if task.anchor is None else reduction_program(task)
        layout = None if program is None else reduction_layout(task, program)
        if program is None or layout is None:
            return None
        column = _column(layout)
        tile, lanes = _tile(program, column, ctx.target), _lanes(ctx.target)
        return Match(task, Plan(program, layout, column, tile, lanes, ITEM_ELEMENTS))

    def space(self, match: Match[Plan], ctx: CompileContext) -> Space[ReduceParams]:
        """Elements of a work item, and rows that are reduced at once."""
        default = self.default(match, ctx)
        elements = Knob("item_elements", (8192, ITEM_ELEMENTS, 131072), "elements that a work item reduces")
        if match.data.column is None:
            return Space((elements,), lambda elements: replace(default, item_elements=elements))
        vectors = tuple(sorted({1, 2, 4, 8, default.vectors}))
        return Space((elements, Knob("vectors", vectors, "vectors of rows that are reduced at once")), ReduceParams)

    def default(self, match: Match[Plan], ctx: CompileContext) -> ReduceParams:
        """Some microseconds a work item."""
        return ReduceParams(ITEM_ELEMENTS, match.data.tile // match.data.lanes)

    def predict(self, match: Match[Plan], params: ReduceParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_items`."""
        plan, constants = match.data, known_constants(ctx)
        assert constants is not None
        elements = extent_estimate(plan.layout.row_elements) * extent_estimate(plan.layout.rows)
        each = element_picoseconds(plan.program)
        work = Work(elements, params.item_elements, each, task_bytes(match.task))
        return items_seconds(work, constants, ctx.options.threads or constants.cores)

    def build(self, match: Match[Plan], params: ReduceParams, ctx: CompileContext) -> Program:
        """One kernel, or a chain of them when rows are cut into parts."""
        tile = params.vectors * match.data.lanes
        plan = replace(match.data, item_elements=params.item_elements, tile=tile)
        if _is_cut(plan):
            return cut_program(match.task, plan)
        return assemble(match.task, [whole_kernel(match.task, plan)])


def _column(layout: ReductionLayout) -> Loop | None:
    """The loop to go across, if rows are tiny or lie closer together than their elements."""
    if not layout.outer:
        return None
    beside = next((loop for loop in layout.outer if loop.stride == 1), None)
    if beside is not None and not any(loop.stride == 1 for loop in layout.inner):
        return beside
    return layout.outer[-1] if dims.prove_le(layout.row_elements, _TINY_ROW) is True else None


def _lanes(target: Target) -> int:
    """f32 lanes of a vector."""
    return max(1, target.vector_bits // 32)


def _tile(program: ReductionProgram, column: Loop | None, target: Target) -> int:
    """Rows that are reduced at once: eight registers of partial results, half as many where each is a pair."""
    pairs = any(len(reduction.values) > 1 for level in program.levels for reduction in level.reductions)
    vectors = 4 if pairs else 8
    extent = None if column is None else dims.hint_value(column.extent)
    if extent is not None:
        vectors = max(1, min(vectors, extent // _lanes(target)))
    return vectors * _lanes(target)


def _is_cut(plan: Plan) -> bool:
    """Whether rows are so long, and work items so few, that rows are cut into parts."""
    length, rows = dims.hint_value(plan.layout.row_elements), dims.hint_value(plan.layout.rows)
    if length is None or rows is None or not plan.layout.inner:
        return False
    beside = 1 if plan.column is None else plan.tile
    return -(-rows // beside) < _FEW_ITEMS and length * min(rows, beside) >= 4 * plan.item_elements
