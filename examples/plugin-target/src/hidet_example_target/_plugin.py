"""What this wheel offers to hidet. Runs whenever hidet loads its plug-ins, so heavy imports stay inside the hooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins import ScheduleSpec, TargetSpec

if TYPE_CHECKING:
    from hidet.ir.intrinsic import IntrinsicFamily

HIDET_API = 1


def hidet_targets() -> Iterable[TargetSpec]:
    """The target. Its kind brings it the schedules and passes that others have written for `kinds=("cpu",)`."""
    return [
        TargetSpec(
            name="example-c",
            kind="cpu",
            devices=("cpu",),
            load="hidet_example_target.target:CTarget",
            doc="this machine, through C and its compiler",
        )
    ]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """Plain loops for everything, by core's own nest: under a name of ours, so that nobody is warned of slow ones."""
    return [
        ScheduleSpec(
            name="example-c.nest",
            ops=("*",),
            targets=("example-c",),
            priority=-999,
            prologue="gather",
            epilogue="element-wise",
            load="hidet_example_target.schedules:NestRule",
            doc="a plain loop nest for any task",
        )
    ]


def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """An instruction of the processor, with its meaning for the interpreter and its spelling in C."""
    from hidet_example_target.intrinsics import FAMILY

    return [FAMILY]
