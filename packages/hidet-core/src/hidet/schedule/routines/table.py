"""Which routines have a kernel: name -> program."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.schedule.routines.assert_positions import assert_positions_program
from hidet.schedule.routines.common_divisor import common_divisor_program
from hidet.schedule.routines.determinant import determinant_program
from hidet.schedule.routines.overlap import suppress_program
from hidet.schedule.routines.site import RoutineProgram
from hidet.schedule.routines.sorting import sort_program, topk_program

ROUTINE_PROGRAMS: Mapping[str, RoutineProgram] = {
    "sort": sort_program,
    "argsort": sort_program,
    "topk": topk_program,
    "common_divisor": common_divisor_program,
    "determinant": determinant_program,
    "suppress": suppress_program,
    "assert_positions": assert_positions_program,
}
