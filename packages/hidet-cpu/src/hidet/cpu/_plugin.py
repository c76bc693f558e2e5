"""Plug-in module of the CPU target: what hidet-cpu offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from hidet.plugins.specs import ScheduleSpec, TargetSpec

HIDET_API = 1


def hidet_targets() -> Iterable[TargetSpec]:
    """The machine this process runs on."""
    return [TargetSpec(name="cpu", aliases=("llvm",), load="hidet.cpu.target:CpuTarget", doc="This CPU, through LLVM")]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """The CPU schedule pack; the fallback nest comes from core."""
    return [
        ScheduleSpec(
            name="cpu.elementwise",
            ops=("elementwise",),
            targets=("cpu",),
            load="hidet.cpu.schedules.elementwise:ElementwiseRule",
            doc="fused element-wise chains, vectorised",
        )
    ]
