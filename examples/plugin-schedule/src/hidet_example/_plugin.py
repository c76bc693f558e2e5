"""What this wheel offers to hidet. Runs whenever hidet loads its plug-ins, so heavy imports stay inside the hooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins import ScheduleSpec

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """The operator; its definition is needed as soon as a graph uses it."""
    from hidet_example.operators import SQUARED_DISTANCE

    return [SQUARED_DISTANCE]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """The schedule; hidet imports what `load` names when it meets a task that the rule may match."""
    return [
        ScheduleSpec(
            name="example.squared_distance",
            ops=("squared_distance",),
            targets=("cpu",),
            load="hidet_example.schedules:SquaredDistanceRule",
            doc="squared_distance in float32, several centres at a time",
        )
    ]
