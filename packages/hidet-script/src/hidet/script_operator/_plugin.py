"""Plug-in module of hidet-script: scripts as operators of graphs. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.compute.routine import RoutineSpec
    from hidet.plugins.specs import ScheduleSpec

HIDET_API = 1


def hidet_routines() -> Iterable[RoutineSpec]:
    """What a node that calls a script does."""
    from hidet.script_operator.operator import ROUTINE

    return [ROUTINE]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """Calls of scripts."""
    from hidet.plugins.specs import ANY, ScheduleSpec

    return [
        ScheduleSpec(
            name="script",
            ops=("script",),
            targets=(ANY,),
            load="hidet.script_operator.schedule:ScriptRule",
            doc="calls of scripts that users have registered as operators",
        )
    ]
