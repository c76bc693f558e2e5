"""Layer, RMS, group, instance and L2 normalisation, with element-wise operators fused before and after them."""

from __future__ import annotations

from dataclasses import dataclass

from hidet import dtypes
from hidet.cpu.schedules.row_layout import RowLayout, row_layout
from hidet.cpu.schedules.row_loops import contiguous_rows
from hidet.cpu.schedules.rows import RowProgram, row_program
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task
from hidet.target import Target

# Elements of one work item: a few microseconds of work.
ITEM_ELEMENTS = 16384
# Time of one element on a core with 512-bit vectors: three passes over a row in the first-level cache.
PICOSECONDS = 120

_ARITHMETIC = (dtypes.f32, dtypes.f64)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    program: RowProgram
    layout: RowLayout


class NormalizeRule:
    """Schedules every operator whose definition is statistics of rows and an element-wise stage."""

    def match(self, task: Task, target: Target) -> Match | None:
        """f64, f32, f16 and bf16 tensors of any strides."""
        program = None if task.anchor is None else row_program(task)
        if program is None or program.dtype not in _ARITHMETIC:
            return None
        layout = row_layout(task, program)
        return None if layout is None else Match(task, _Found(program, layout))

    def space(self, match: Match, target: Target) -> SearchSpace:
        """How many elements one work item computes."""
        return SearchSpace({"item_elements": (4096, 16384, 65536)})

    def default(self, match: Match, target: Target) -> Params:
        """A few microseconds a work item."""
        return {"item_elements": ITEM_ELEMENTS}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """One kernel."""
        found: _Found = match.data
        lanes = max(8, target.vector_bits // found.program.dtype.bits)
        return contiguous_rows(match.task, found.program, found.layout, params["item_elements"], lanes, PICOSECONDS)
