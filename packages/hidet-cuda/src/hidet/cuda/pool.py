"""Memory of one device that is allocated and freed in the order of streams, through a pool of the driver's own making.

The pool keeps what is freed for the next allocation, so that a call allocates without waiting for the device.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from hidet.cuda.devices import Device, chosen_device
from hidet.cuda.streams import Stream
from hidet.errors import DeviceOutOfMemory

ALIGNMENT = 512
"""Bytes that sizes are rounded up to: what the driver aligns blocks to."""

# CUmemPool_attribute
_RELEASE_THRESHOLD = 4
_RESERVED_NOW, _RESERVED_MOST, _USED_NOW, _USED_MOST = 5, 6, 7, 8
_PINNED, _ON_DEVICE = 1, 1
_EVENT_WITHOUT_TIME = 2


class _PoolProperties(ctypes.Structure):
    """CUmemPoolProps of the driver API: 88 bytes."""

    _fields_ = (
        ("allocation", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", ctypes.c_int),
        ("device", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("most_bytes", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


_MAKING = threading.Lock()
"""Held while a pool is looked up, as devices are."""


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """Bytes of a pool: in blocks that are used, and reserved from the device; now, and the most there were."""

    used: int
    most_used: int
    reserved: int
    most_reserved: int


class MemoryPool:
    """The pool of one device. Threads may use it at once."""

    def __init__(self, device: Device) -> None:
        self._device = device
        properties = _PoolProperties(_PINNED, 0, _ON_DEVICE, device.handle)
        self._handle = device.make("cuMemPoolCreate", ctypes.byref(properties), what="making a memory pool")
        # What was freed stays in the pool until `trim`, rather than until the next wait.
        everything = ctypes.c_uint64(2**64 - 1)
        device.call("cuMemPoolSetAttribute", self._handle, _RELEASE_THRESHOLD, ctypes.byref(everything))

    def allocate(self, nbytes: int, stream: Stream) -> Block:
        """Uninitialised memory for work put into `stream` from now on. DeviceOutOfMemory tells the sizes."""
        if nbytes == 0:
            return Block(self._device, 0, 0, stream)
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        try:
            address = self._take(size, stream)
        except DeviceOutOfMemory:
            # What the driver found for it before it gave up stays in the pool, beside what was freed before.
            self.trim()
            try:
                address = self._take(size, stream)
            except DeviceOutOfMemory:
                self.trim()
                raise self._device.out_of_memory(nbytes) from None
        return Block(self._device, address, size, stream)

    def _take(self, size: int, stream: Stream) -> int:
        arguments = (size, self._handle, stream.handle)
        return self._device.make("cuMemAllocFromPoolAsync", *arguments, what=f"allocating {size} bytes")

    def trim(self) -> None:
        """Give memory that no block uses back to the device, once the work that used it is done."""
        self._device.synchronize()
        self._device.call("cuMemPoolTrimTo", self._handle, 0, what="trimming the memory pool")

    def statistics(self) -> MemoryStatistics:
        """How much memory there is."""
        return MemoryStatistics(*map(self._number, (_USED_NOW, _USED_MOST, _RESERVED_NOW, _RESERVED_MOST)))

    def _number(self, attribute: int) -> int:
        found = ctypes.c_uint64()
        self._device.call("cuMemPoolGetAttribute", self._handle, attribute, ctypes.byref(found))
        return found.value


class Block:
    """Memory of a pool, which goes back when this object does: after the work put into its stream until then.

    Work in other streams that uses it is noted by `used_in`, and waited for.
    """

    __slots__ = ("__weakref__", "_others", "address", "nbytes", "stream")

    def __init__(self, device: Device, address: int, nbytes: int, stream: Stream) -> None:
        self.address = address
        self.nbytes = nbytes
        self.stream = stream
        self._others: dict[int, Stream] = {}
        if address:
            finalizer = weakref.finalize(self, _free, device, address, stream, self._others)
            # At the end of the process the driver frees everything itself, and may be gone already.
            finalizer.atexit = False

    def used_in(self, stream: Stream) -> None:
        """Note that work put into another stream uses the memory."""
        if stream.handle != self.stream.handle:
            self._others[stream.handle] = stream


def _free(device: Device, address: int, stream: Stream, others: dict[int, Stream]) -> None:
    # Nothing can be done about a failure, which later calls report: a lost device has no memory to free.
    with device.current():
        status: Callable[..., int] = device.driver.status
        for other in others.values():
            event = ctypes.c_void_p()
            if status("cuEventCreate", ctypes.byref(event), _EVENT_WITHOUT_TIME):
                continue
            status("cuEventRecord", event, other.handle)
            status("cuStreamWaitEvent", stream.handle, event, 0)
            status("cuEventDestroy_v2", event)
        status("cuMemFreeAsync", address, stream.handle)


@functools.cache
def _make_pool(device: Device) -> MemoryPool:
    return MemoryPool(device)


def pool_of(device: Device) -> MemoryPool:
    """The pool of a device, one a process: results and arenas where no framework is."""
    with _MAKING:
        return _make_pool(device)


def memory_statistics(device: int | None = None) -> MemoryStatistics:
    """What hidet's own pool holds on a device: results and arenas of calls without a framework's tensors."""
    return pool_of(chosen_device(device)).statistics()


def empty_cache(device: int | None = None) -> None:
    """Give memory that hidet keeps without using it back to a device, for which it waits."""
    pool_of(chosen_device(device)).trim()
