"""Plug-in module of the OpenCL target: what hidet-opencl offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from hidet.plugins.specs import CheckSpec, TargetSpec

HIDET_API = 1


def hidet_targets() -> Iterable[TargetSpec]:
    """Devices with an OpenCL driver."""
    return [
        TargetSpec(
            name="opencl",
            kind="gpu",
            devices=("cpu",),
            load="hidet.opencl.target:OpenCLTarget",
            machines="hidet.opencl.devices:list_devices",
            doc="A GPU or a processor, through its OpenCL driver",
        )
    ]


def hidet_checks() -> Iterable[CheckSpec]:
    """Platforms."""
    return [
        CheckSpec(name="opencl.platforms", load="hidet.opencl.checks:check_platforms", doc="platforms with a device"),
    ]
