"""Memory of a device by its address, for who calls other libraries: `hidet.cuda.malloc`, `memcpy`, `memset`, `free`.

Nothing frees it, or knows how much there is, but the caller; tensors and arrays (`hidet.cuda.empty`) do both.
"""

from __future__ import annotations

import ctypes

from hidet.cuda.devices import Device, chosen_device


def malloc(num_bytes: int, device: int | Device | None = None) -> int:
    """The address of so many bytes, uninitialised; 0 for none. DeviceOutOfMemory where there is too little."""
    if num_bytes == 0:
        return 0
    address = ctypes.c_uint64()
    what = f"allocating {num_bytes} bytes"
    chosen_device(device).call("cuMemAlloc_v2", ctypes.byref(address), num_bytes, what=what)
    return address.value


def free(addr: int, device: int | Device | None = None) -> None:
    """Give memory of `malloc` back, when the device is done with it."""
    if addr:
        chosen_device(device).call("cuMemFree_v2", addr, what="freeing memory")


def memcpy(dst: int, src: int, num_bytes: int, device: int | Device | None = None) -> None:
    """Copy bytes from one address to another, each on the host or on a device; they are there when this returns."""
    if num_bytes:
        chosen_device(device).call("cuMemcpy", dst, src, num_bytes, what=f"copying {num_bytes} bytes")


def memset(addr: int, value: int, num_bytes: int, device: int | Device | None = None) -> None:
    """Set each of so many bytes to a value from 0 to 255, in the order of the default stream."""
    if num_bytes:
        chosen_device(device).call("cuMemsetD8Async", addr, value, num_bytes, 0, what=f"setting {num_bytes} bytes")


def profiler_start(device: int | Device | None = None) -> None:
    """Have a profiler that waits for it (`nsys --capture-range=cudaProfilerApi`) begin to record."""
    chosen_device(device).call("cuProfilerStart")


def profiler_stop(device: int | Device | None = None) -> None:
    """Have it end."""
    chosen_device(device).call("cuProfilerStop")
