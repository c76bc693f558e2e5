"""Memory of one CUDA device that hidet itself owns: constants of compiled graphs."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hidet.cuda.driver import Driver

if TYPE_CHECKING:
    from hidet.cuda.arrays import ArrayAdapter, DeviceArray, StreamMemory


class Device:
    """One CUDA device and its primary context, which every CUDA library of the process shares."""

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver = driver
        self.index = index
        self.handle = driver.number("cuDeviceGet", index)
        self.context = driver.handle("cuDevicePrimaryCtxRetain", self.handle)

    @property
    def name(self) -> str:
        """As torch names it."""
        return f"cuda:{self.index}"

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

    def upload(self, array: Any) -> tuple[object, int]:
        """A copy of a numpy array: its owner and its address."""
        owner = self.allocate(array.nbytes)
        if array.nbytes:
            with self.current():
                self.driver.call("cuMemcpyHtoD_v2", owner.address, array.ctypes.data, array.nbytes)
                # The copy has left the host's memory, but may not have arrived for streams that wait for none.
                self.driver.call("cuStreamSynchronize", 0, what="uploading constants")
        return owner, owner.address

    def allocate(self, nbytes: int) -> Allocation:
        """Uninitialised memory."""
        return Allocation(self, nbytes)

    def adapter(self) -> ArrayAdapter:
        """For arrays in memory that hidet itself allocates."""
        from hidet.cuda.arrays import ArrayAdapter

        return ArrayAdapter(self)

    def download(self, array: DeviceArray) -> Any:
        """The elements of such an array, flat, as they lie in memory."""
        from hidet.cuda.arrays import downloaded

        return downloaded(self, array)

    def in_stream(self, stream: int) -> StreamMemory:
        """A few numbers read and written in the order of a stream."""
        from hidet.cuda.arrays import StreamMemory

        return StreamMemory(self, stream)

    def finish(self, stream: int) -> None:
        """Wait for a stream."""
        with self.current():
            self.driver.call("cuStreamSynchronize", stream, what="waiting for a stream")


class Allocation:
    """A run of bytes that is freed with this object. Freeing waits for the device, as the driver does."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.address = 0
        if nbytes == 0:
            return
        address = ctypes.c_uint64()
        with device.current():
            device.driver.call("cuMemAlloc_v2", ctypes.byref(address), nbytes, what=f"allocating {nbytes} bytes")
        self.address = address.value
        # At the end of the process the driver frees everything itself, and may be gone already.
        weakref.finalize(self, _free, device, self.address).atexit = False


def _free(device: Device, address: int) -> None:
    with device.current():
        device.driver.call("cuMemFree_v2", address)
