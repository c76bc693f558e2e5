"""What this wheel offers to hidet. Runs whenever hidet loads its plug-ins, so heavy imports stay inside the hooks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins import FrontendSpec, PassSpec, ScheduleSpec

if TYPE_CHECKING:
    from hidet.compute.routine import RoutineSpec
    from hidet.graph.operator import OperatorSpec
    from hidet.ir.intrinsic import IntrinsicFamily

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """`dilate` and `label_regions`."""
    from hidet_example_morphology.operators import DILATE, LABEL_REGIONS

    return [DILATE, LABEL_REGIONS]


def hidet_routines() -> Iterable[RoutineSpec]:
    """The algorithm of `label_regions`, which no index formula says."""
    from hidet_example_morphology.label_regions import LABEL_REGIONS

    return [LABEL_REGIONS]


def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """An instruction that hidet has no name for."""
    from hidet_example_morphology.intrinsics import FAMILY

    return [FAMILY]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """`dilate` on every GPU, and faster for bytes on those of NVIDIA, whose rule is asked first."""
    return [
        ScheduleSpec(
            name="morphology.dilate",
            ops=("dilate",),
            kinds=("gpu",),
            priority=100,
            load="hidet_example_morphology.schedules:DilateRule",
            doc="dilate of any numbers, however images lie: a thread a pixel",
        ),
        ScheduleSpec(
            name="morphology.dilate_bytes",
            ops=("dilate",),
            targets=("cuda",),
            priority=101,
            load="hidet_example_morphology.schedules:DilateBytesRule",
            doc="dilate of u8: four neighbours at a time",
        ),
    ]


def hidet_passes() -> Iterable[PassSpec]:
    """A graph pass; `hidet opt` runs it alone."""
    return [
        PassSpec(
            name="morphology.merge_dilations",
            level="graph",
            after=("simplify",),
            load="hidet_example_morphology.passes:MergeDilations",
            doc="a dilation of a dilation is one with a larger window",
        )
    ]


def is_recipe(model: object) -> bool:
    """Whether a model is the path of a recipe."""
    return isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".morphology")


def hidet_frontends() -> Iterable[FrontendSpec]:
    """Files of steps as models: `hidet run edges.morphology`."""
    return [
        FrontendSpec(
            name="morphology",
            accepts=is_recipe,
            load="hidet_example_morphology.frontend:import_recipe",
            doc="a .morphology file: an image and the steps that are done to it",
        )
    ]
