"""The rule that row programs share: matching, and the choice between SIMD along rows and across them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hidet import dtypes
from hidet.context import CompileContext
from hidet.cpu.schedules.cost_items import Work, items_seconds, task_bytes
from hidet.cpu.schedules.lane_loops import MOST_COLUMNS, adjoining_rows
from hidet.cpu.schedules.row_layout import RowLayout, row_layout
from hidet.cpu.schedules.row_loops import contiguous_rows
from hidet.cpu.schedules.spans import vector_lanes
from hidet.schedule.cost import element_count, extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rows import Rework, RowProgram, row_program
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task

_ITEM_ELEMENTS = (1024, 4096, 16384, 65536)
_COLUMNS = (16, 32, 64, 128, MOST_COLUMNS)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    program: RowProgram
    layout: RowLayout


@dataclass(frozen=True, slots=True)
class RowParams:
    """item_elements: of a work item, where rows are contiguous. columns: of a work item at most, where they lie side by
    side."""

    item_elements: int = 16384
    columns: int = MOST_COLUMNS


class RowRule(ScheduleRule[_Found, RowParams]):
    """Schedules anchors that are statistics of rows followed by an element-wise stage.

    reworks: operators with a cheaper form than their definition. picoseconds: time of one element on a core with
    512-bit vectors.
    """

    reworks: ClassVar[Mapping[str, Rework]] = {}
    picoseconds: ClassVar[int]

    def match(self, task: Task, ctx: CompileContext) -> Match[_Found] | None:
        """f64, f32, f16 and bf16 tensors of any strides."""
        if task.anchor is None:
            return None
        program = row_program(task, self.reworks.get(task.anchor.op.name))
        if program is None or program.dtype not in (dtypes.f32, dtypes.f64):
            return None
        if any(len(statistic.results) != len(statistic.values) for statistic in program.statistics):
            return None
        layout = row_layout(task, program)
        return None if layout is None else Match(task, _Found(program, layout))

    def space(self, match: Match[_Found], ctx: CompileContext) -> Space[RowParams]:
        """Elements or columns of a work item."""
        if match.data.layout.columns is not None:
            most = Knob("columns", _COLUMNS, "columns of a work item at most")
            return Space((most,), lambda columns: RowParams(columns=columns))
        return Space((Knob("item_elements", _ITEM_ELEMENTS, "elements that a work item computes"),), RowParams)

    def default(self, match: Match[_Found], ctx: CompileContext) -> RowParams:
        """A few microseconds a work item."""
        return RowParams()

    def predict(self, match: Match[_Found], params: RowParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_items`."""
        program, constants = match.data.program, known_constants(ctx)
        assert constants is not None
        length = extent_estimate(program.row_elements)
        elements = length * element_count(program.outer_extents)
        of_item = params.item_elements if match.data.layout.columns is None else params.columns * length
        work = Work(elements, of_item, self.picoseconds, task_bytes(match.task))
        return items_seconds(work, constants, ctx.options.threads or constants.cores)

    def build(self, match: Match[_Found], params: RowParams, ctx: CompileContext) -> Program:
        """One kernel."""
        program, layout = match.data.program, match.data.layout
        lanes = vector_lanes(ctx.target.vector_bits, program.dtype.bits)
        if layout.columns is not None:
            return adjoining_rows(match.task, program, layout, params.columns, lanes, self.picoseconds)
        return contiguous_rows(match.task, program, layout, params.item_elements, lanes, self.picoseconds)
