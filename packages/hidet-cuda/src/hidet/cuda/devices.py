"""What CUDA devices there are, what they can do, and which one is current."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hidet.cuda.arch import architecture_name
from hidet.cuda.driver import load_driver
from hidet.cuda.memory import chosen_device, current_device, device_at
from hidet.cuda.pool import MemoryStatistics
from hidet.errors import LaunchError


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What a device is. Sizes are in bytes, clocks in kHz; shared memory and threads are what one block can have."""

    name: str
    capability: tuple[int, int]
    architecture: str
    total_memory: int
    multiprocessors: int
    warp_size: int
    block_threads: int
    block_shared_memory: int
    multiprocessor_threads: int
    multiprocessor_shared_memory: int
    multiprocessor_registers: int
    l2_cache: int
    clock: int
    memory_clock: int
    memory_bus_bits: int


# Numbers of CUdevice_attribute by the property they are.
_ATTRIBUTES = {
    "multiprocessors": 16,
    "warp_size": 10,
    "block_threads": 1,
    "block_shared_memory": 97,
    "multiprocessor_threads": 39,
    "multiprocessor_shared_memory": 81,
    "multiprocessor_registers": 82,
    "l2_cache": 38,
    "clock": 13,
    "memory_clock": 36,
    "memory_bus_bits": 37,
}


def available() -> bool:
    """Whether this process can use a CUDA device."""
    try:
        load_driver()
    except LaunchError:
        return False
    return True


def device_count() -> int:
    """Devices that this process sees; 0 where there is no driver."""
    return load_driver().number("cuDeviceGetCount") if available() else 0


def driver_version() -> tuple[int, int]:
    """The newest version of CUDA that the driver supports."""
    version = load_driver().number("cuDriverGetVersion")
    return version // 1000, version % 1000 // 10


def properties(device: int | None = None) -> DeviceProperties:
    """What a device is; None is the current one. LaunchError where it is not there."""
    found = chosen_device(device)
    driver = found.driver
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, len(name), found.handle)
    capability = driver.capability(found.handle)
    numbers = {key: driver.attribute(found.handle, number) for key, number in _ATTRIBUTES.items()}
    return DeviceProperties(
        name=name.value.decode(errors="replace"),
        capability=capability,
        architecture=architecture_name(*capability),
        total_memory=driver.handle("cuDeviceTotalMem_v2", found.handle),
        **numbers,
    )


def compute_capability(device: int | None = None) -> tuple[int, int]:
    """Major and minor compute capability."""
    found = chosen_device(device)
    return found.driver.capability(found.handle)


def set_device(device: int) -> None:
    """Make a device the calling thread's."""
    found = device_at(device)
    found.driver.call("cuCtxSetCurrent", found.context)


@contextmanager
def device(index: int) -> Iterator[None]:
    """Make a device the calling thread's as long as the block runs."""
    with device_at(index).current():
        yield


def synchronize(device: int | None = None) -> None:
    """Wait for all work on a device; None is the current one. DeviceLost, naming what was launched, if it failed."""
    chosen_device(device).synchronize()


def memory_info(device: int | None = None) -> tuple[int, int]:
    """Bytes of a device that are free, and bytes in all."""
    return chosen_device(device).memory_info()


def memory_statistics(device: int | None = None) -> MemoryStatistics:
    """What hidet's own pool holds on a device: results and arenas of calls without a framework's tensors."""
    return chosen_device(device).pool.statistics()


def empty_cache(device: int | None = None) -> None:
    """Give memory that hidet keeps without using it back to a device, for which it waits."""
    chosen_device(device).pool.trim()


__all__ = [
    "DeviceProperties",
    "available",
    "compute_capability",
    "current_device",
    "device",
    "device_count",
    "driver_version",
    "empty_cache",
    "memory_info",
    "memory_statistics",
    "properties",
    "set_device",
    "synchronize",
]
