"""What `hidet doctor` says of OpenCL where there is no device: what brings one."""

from __future__ import annotations

from collections.abc import Iterator

from hidet.doctor import Check
from hidet.opencl.devices import INSTALL, devices


def check_platforms() -> Iterator[Check]:
    """Whether there is a platform with a device."""
    found = devices()
    platforms = sorted({f"{device.platform} (driver {device.driver})" for device in found})
    if found:
        yield Check("opencl platforms", "ok", ", ".join(platforms))
    else:
        yield Check("opencl platforms", "none", "none with a device", INSTALL)
