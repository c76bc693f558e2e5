"""CUDA devices: what there are, what they can do, which one is current, and calls of the driver on one."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hidet.cuda.arch import architecture_name
from hidet.cuda.driver import Driver, load_driver
from hidet.cuda.kept import KeptObjects
from hidet.errors import DeviceOutOfMemory, LaunchError

_MAKING = threading.Lock()
"""Held while a device is looked up: two threads that ask first would make two objects, each with its own memory."""


def device_at(index: int) -> Device:
    """The device of a number, one object a process. LaunchError where it is not there."""
    with _MAKING:
        return _make_device(index)


@functools.cache
def _make_device(index: int) -> Device:
    driver = load_driver()
    count = driver.number("cuDeviceGetCount")
    if not 0 <= index < count:
        have = f"only {count} of them, cuda:0 to cuda:{count - 1}" if count > 1 else "only cuda:0"
        raise LaunchError(f"there is no CUDA device {index}, {have}", hint="CUDA_VISIBLE_DEVICES may hide devices")
    return Device(driver, index)


def current_device() -> int:
    """Number of the calling thread's device: the one that torch or another library made current, else 0."""
    driver = load_driver()
    return driver.number("cuCtxGetDevice") if driver.current_context() else 0


def chosen_device(chosen: int | Device | None) -> Device:
    """The device of a number; None is the current one."""
    if isinstance(chosen, Device):
        return chosen
    return device_at(current_device() if chosen is None else chosen)


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


L2_CACHE = 38
"""Number of CUdevice_attribute: bytes of the L2 cache."""

# Numbers of CUdevice_attribute by the property they are.
_ATTRIBUTES = {
    "multiprocessors": 16,
    "warp_size": 10,
    "block_threads": 1,
    "block_shared_memory": 97,
    "multiprocessor_threads": 39,
    "multiprocessor_shared_memory": 81,
    "multiprocessor_registers": 82,
    "l2_cache": L2_CACHE,
    "clock": 13,
    "memory_clock": 36,
    "memory_bus_bits": 37,
}


class Device:
    """One CUDA device and its primary context, which every CUDA library of the process shares.

    kept: what graphs of other libraries need of hidet's memory there.
    """

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver = driver
        self.index = index
        self.handle = driver.number("cuDeviceGet", index)
        self.kept = KeptObjects()

    @functools.cached_property
    def context(self) -> int:
        """The primary context. It takes memory of the device: a process that only compiles for it has none."""
        return self.driver.handle("cuDevicePrimaryCtxRetain", self.handle, what=f"opening {self.name}")

    @property
    def name(self) -> str:
        """As torch names it."""
        return f"cuda:{self.index}"

    @functools.cached_property
    def properties(self) -> DeviceProperties:
        """What the device is, as the driver has told once."""
        driver = self.driver
        name = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", name, len(name), self.handle)
        capability = driver.capability(self.handle)
        numbers = {key: driver.attribute(self.handle, number) for key, number in _ATTRIBUTES.items()}
        return DeviceProperties(
            name=name.value.decode(errors="replace"),
            capability=capability,
            architecture=architecture_name(*capability),
            total_memory=driver.handle("cuDeviceTotalMem_v2", self.handle),
            **numbers,
        )

    @functools.cached_property
    def shared_limit(self) -> int:
        """Bytes of shared memory that one block can ask for."""
        return self.driver.shared_bytes(self.handle)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device the calling thread's, and the one before again afterwards."""
        if self.driver.current_context() == self.context:
            yield
            return
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            popped = ctypes.c_void_p()
            self.driver.call("cuCtxPopCurrent_v2", ctypes.byref(popped))

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call a function of the driver with the device current."""
        if self.driver.current_context() == self.context:
            # Nearly always: a context manager would cost as much as the call.
            self.driver.call(name, *arguments, what=what)
            return
        with self.current():
            self.driver.call(name, *arguments, what=what)

    def make(self, name: str, *arguments: Any, what: str = "") -> int:
        """The handle that a function of the driver writes to its first argument, with the device current."""
        with self.current():
            return self.driver.handle(name, *arguments, what=what)

    def memory_info(self) -> tuple[int, int]:
        """Bytes that are free, and bytes in all, as the driver counts them for all processes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def out_of_memory(self, nbytes: int) -> DeviceOutOfMemory:
        """The exception for bytes that could not be had."""
        free, total = self.memory_info()
        return DeviceOutOfMemory(
            f"cannot allocate {_size_text(nbytes)} on {self.name}: {_size_text(free)} of {_size_text(total)} are free",
            hint="free tensors, or use smaller batches; torch.cuda.empty_cache() gives back what torch keeps, "
            "hidet.cuda.empty_cache() what hidet keeps",
        )

    def finish(self, stream: int) -> None:
        """Wait for a stream."""
        self.call("cuStreamSynchronize", stream, what="waiting for a stream")
        self.kept.drop_unneeded()

    def synchronize(self) -> None:
        """Wait for all work on the device. DeviceLost if it failed."""
        self.call("cuCtxSynchronize", what=f"waiting for {self.name}")
        self.driver.recent.clear()
        self.kept.drop_unneeded()


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
    return chosen_device(device).properties


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


def _size_text(nbytes: int) -> str:
    """Bytes for people to read."""
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{nbytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
