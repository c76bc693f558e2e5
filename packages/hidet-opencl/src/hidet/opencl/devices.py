"""The devices of this machine's OpenCL platforms.

A loader of platforms (ICD) comes with pyopencl and looks for them in /etc/OpenCL/vendors. Intel's runtime for
processors, as a wheel, lies where that loader does not look, so that it is named to it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hidet.errors import LaunchError, OptionError
from hidet.opencl.codegen.warps import LANES, NONE, NVIDIA, SUB_GROUPS, Warps

_COARSE_SVM, _SYSTEM_SVM = 1 << 0, 1 << 2
_GPU = 1 << 2
_SUB_GROUP_SIZES = 0x4108
"""CL_DEVICE_SUB_GROUP_SIZES_INTEL"""
_WARP_SIZE = 0x4003
"""CL_DEVICE_WARP_SIZE_NV"""
_VENDORS = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES")
_INTEL = "libintelocl.so"
_SYSTEM = Path("/etc/OpenCL/vendors")
INSTALL = (
    "a GPU's driver brings an OpenCL platform; for an x86 processor, pip install 'hidet-opencl[intel-cpu]', or "
    "Debian's pocl-opencl-icd"
)


@dataclass(frozen=True, eq=False)
class Device:
    """A device, opened.

    platform, name, driver: as their vendors write them. number: among all devices of the machine. handle: pyopencl's.
    has_system_svm: whether its kernels read and write the host's memory as it is. has_svm: whether it has
    memory with addresses that host and kernels share. warps: how 32 lanes of a
    kernel exchange values. facts: numbers that describe it, by their names in pyopencl.
    extensions: what its compiler takes besides the language.
    """

    number: int
    platform: str
    name: str
    driver: str
    handle: Any
    has_system_svm: bool
    has_svm: bool
    warps: Warps
    facts: Mapping[str, int]
    extensions: frozenset[str]

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, not a processor."""
        return bool(self.facts["type"] & _GPU)

    @functools.cached_property
    def context(self) -> Any:
        """A context of the device alone."""
        return load_opencl().Context([self.handle])

    @functools.cached_property
    def queue(self) -> Any:
        """The queue that all work is put into, in order."""
        cl = load_opencl()
        return cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)

    def seconds(self, run: Callable[[], object]) -> float:
        """Seconds by the device's clock, between what was put into the queue before `run` and the end of what `run`
        puts there; waits for it."""
        cl = load_opencl()
        start = cl.enqueue_marker(self.queue)
        run()
        end = cl.enqueue_marker(self.queue)
        end.wait()
        return float(end.profile.end - start.profile.end) / 1e9

    def __str__(self) -> str:
        return f"opencl:{self.number}: {self.name} ({self.platform}, driver {self.driver})"


@functools.cache
def load_opencl() -> Any:
    """pyopencl, with Intel's runtime for processors named to its loader where no platform is installed."""
    is_told = any(name in os.environ for name in _VENDORS) or any(_SYSTEM.glob("*.icd"))
    if not is_told and (runtime := intel_runtime()) is not None:
        os.environ[_VENDORS[0]] = str(runtime)
    import pyopencl

    return pyopencl


def intel_runtime() -> Path | None:
    """The library of Intel's runtime for processors, where its wheel put it; None where it is not installed."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (Path(file.locate()).resolve() for file in files if file.name == _INTEL)
    return next((path for path in paths if path.exists()), None)


@functools.cache
def library() -> Any:
    """The loader of platforms that pyopencl brings along, whose functions compiled host code calls."""
    return ctypes.CDLL(load_opencl()._cl.__file__)


@functools.cache
def devices() -> tuple[Device, ...]:
    """Every device of every platform: GPUs, then others, as the platforms list them. Empty where there is none."""
    cl = load_opencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        return ()
    found = [(platform, handle) for platform in platforms for handle in _devices_of(cl, platform)]
    found.sort(key=lambda pair: not pair[1].type & _GPU)
    return tuple(_describe(number, platform, handle) for number, (platform, handle) in enumerate(found))


def _devices_of(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a platform without a device of its own
        return []


def _describe(number: int, platform: Any, handle: Any) -> Device:
    names = (
        *("type", "max_compute_units", "max_work_group_size", "local_mem_size", "max_clock_frequency"),
        *("global_mem_cache_size", "double_fp_config", "single_fp_config"),
    )
    shared = getattr(handle, "svm_capabilities", 0)
    return Device(
        number,
        platform.name.strip(),
        handle.name.strip(),
        handle.driver_version.strip(),
        handle,
        bool(shared & _SYSTEM_SVM),
        bool(shared & _COARSE_SVM),
        _warps_of(handle),
        {name: int(getattr(handle, name)) for name in names},
        frozenset(handle.extensions.split()),
    )


def _warps_of(handle: Any) -> Warps:
    """As sub-groups where kernels may ask for 32 lanes; as PTX has them on devices of NVIDIA."""
    extensions = set(handle.extensions.split())
    needed = {"cl_intel_required_subgroup_size", "cl_khr_subgroup_shuffle", "cl_khr_subgroup_ballot"}
    if needed <= extensions and LANES in _numbers(handle, _SUB_GROUP_SIZES, ctypes.c_size_t):
        return SUB_GROUPS
    if "cl_nv_device_attribute_query" in extensions and LANES in _numbers(handle, _WARP_SIZE, ctypes.c_uint):
        return NVIDIA
    return NONE


def _numbers(handle: Any, what: int, kind: type[Any]) -> tuple[int, ...]:
    """What a device says of itself, as numbers of a type of C."""
    found, nbytes = (kind * 16)(), ctypes.c_size_t()
    ask = library().clGetDeviceInfo
    status = ask(ctypes.c_void_p(handle.int_ptr), what, ctypes.sizeof(found), found, ctypes.byref(nbytes))
    return () if status else tuple(found[: nbytes.value // ctypes.sizeof(kind)])


def find_device(machine: str | None) -> Device:
    """The device that a target names: by its number, or by a part of its or its platform's name; None is the first.

    LaunchError where the machine has no device, OptionError where none is called so.
    """
    known = devices()
    if not known:
        raise LaunchError("no OpenCL device was found on this machine", hint=INSTALL)
    if machine is None:
        return known[0]
    if machine.isdigit():
        chosen = [device for device in known if device.number == int(machine)]
    else:
        chosen = [d for d in known if machine.lower() in f"{d.platform} {d.name}".lower()]
    if not chosen:
        listed = "; ".join(map(str, known))
        raise OptionError(f"no OpenCL device is called {machine!r}", hint=f"there are {listed}")
    return chosen[0]


def list_devices() -> list[str]:
    """A line for each device, for people; those that no target can use say why."""
    lacking = ": it has no shared virtual memory, which hidet-opencl needs"
    return [f"{device}{'' if device.has_svm else lacking}" for device in devices()]
