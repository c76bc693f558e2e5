"""One CUDA device: its context, memory that hidet itself owns there, and waiting for its work."""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hidet.cuda.driver import Driver, load_driver
from hidet.errors import DeviceOutOfMemory, LaunchError

if TYPE_CHECKING:
    from hidet.cuda.arrays import ArrayAdapter, DeviceArray, StreamMemory
    from hidet.cuda.graphs import KeptForGraphs, RecordedWork
    from hidet.cuda.pool import MemoryPool

# CUDA driver API, CUresult.
_NO_CONTEXT = 201
_MAKING = threading.Lock()
"""Held while a device is looked up: two threads that ask first would make two objects, each with its own memory."""


def device_at(index: int) -> Device:
    """The device of a number, one object a process. LaunchError where it is not there."""
    with _MAKING:
        return _made_device(index)


@functools.cache
def _made_device(index: int) -> Device:
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


class Device:
    """One CUDA device and its primary context, which every CUDA library of the process shares."""

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver = driver
        self.index = index
        self.handle = driver.number("cuDeviceGet", index)
        self.context = driver.handle("cuDevicePrimaryCtxRetain", self.handle, what=f"opening cuda:{index}")

    @property
    def name(self) -> str:
        """As torch names it."""
        return f"cuda:{self.index}"

    @functools.cached_property
    def shared_limit(self) -> int:
        """Bytes of shared memory that one block can ask for."""
        return self.driver.shared_bytes(self.handle)

    @functools.cached_property
    def pool(self) -> MemoryPool:
        """Memory that is allocated and freed in the order of streams: results and arenas where no framework is."""
        from hidet.cuda.pool import MemoryPool

        return MemoryPool(self)

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
            f"cannot allocate {size_text(nbytes)} on {self.name}: {size_text(free)} of {size_text(total)} are free",
            hint="free tensors, or use smaller batches; torch.cuda.empty_cache() gives back what torch keeps, "
            "hidet.cuda.empty_cache() what hidet keeps",
        )

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
        """Uninitialised memory. DeviceOutOfMemory where there is too little."""
        self.kept.drop_unneeded()
        return Allocation(self, nbytes)

    def adapter(self) -> ArrayAdapter:
        """For arrays in memory that hidet itself allocates, and those of other libraries that share theirs."""
        from hidet.cuda.arrays import ArrayAdapter

        return ArrayAdapter(self)

    def place(self, array: Any) -> DeviceArray:
        """A copy of a numpy array as an array of that adapter, strides and all."""
        from hidet.cuda.arrays import placed

        return placed(array, self)

    def download(self, array: DeviceArray) -> Any:
        """The elements of such an array, flat, as they lie in memory."""
        from hidet.cuda.arrays import downloaded

        return downloaded(array)

    def in_stream(self, stream: int) -> StreamMemory:
        """A few numbers read and written in the order of a stream."""
        from hidet.cuda.arrays import StreamMemory

        return StreamMemory(self, stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether a stream is recorded by somebody else now, or must not be asked because another one is."""
        state = ctypes.c_int()
        status = self.driver.status("cuStreamIsCapturing", stream, ctypes.byref(state))
        if status == _NO_CONTEXT:
            # A new thread has none, and the default stream is that of the context.
            with self.current():
                status = self.driver.status("cuStreamIsCapturing", stream, ctypes.byref(state))
        return status != 0 or state.value != 0

    def keep_for_graph(self, stream: int, owner: object) -> None:
        """Keep an object as long as the graph that a stream is recorded into by somebody else can be replayed."""
        from hidet.cuda.graphs import graph_of

        self.kept.add(graph_of(self, stream), owner)

    @functools.cached_property
    def kept(self) -> KeptForGraphs:
        """What graphs of other libraries need."""
        from hidet.cuda.graphs import KeptForGraphs

        return KeptForGraphs(self)

    def capture(self, run: Callable[[int], None]) -> RecordedWork:
        """What `run` puts into the stream it is given, recorded instead of done."""
        from hidet.cuda.graphs import recorded

        return recorded(self, run)

    def finish(self, stream: int) -> None:
        """Wait for a stream."""
        self.call("cuStreamSynchronize", stream, what="waiting for a stream")
        self.kept.drop_unneeded()

    def synchronize(self) -> None:
        """Wait for all work on the device. DeviceLost if it failed."""
        self.call("cuCtxSynchronize", what=f"waiting for {self.name}")
        self.driver.recent.clear()
        self.kept.drop_unneeded()


class Allocation:
    """A run of bytes that is freed with this object. Freeing waits for the device, as the driver does."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.address = 0
        if nbytes == 0:
            return
        address = ctypes.c_uint64()
        try:
            device.call("cuMemAlloc_v2", ctypes.byref(address), nbytes, what=f"allocating {nbytes} bytes")
        except DeviceOutOfMemory:
            raise device.out_of_memory(nbytes) from None
        self.address = address.value
        # At the end of the process the driver frees everything itself, and may be gone already.
        weakref.finalize(self, _free, device, self.address).atexit = False


def _free(device: Device, address: int) -> None:
    # Nothing can be done about a failure, which later calls report: a lost device has no memory to free.
    with device.current():
        device.driver.status("cuMemFree_v2", address)


def size_text(nbytes: int) -> str:
    """Bytes for people to read."""
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{nbytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
