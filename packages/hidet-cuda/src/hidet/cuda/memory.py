"""Memory of one CUDA device, as the run time asks a target for it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hidet.cuda.adapter import ArrayAdapter, StreamMemory, place_array
from hidet.cuda.arrays import DeviceArray, download_array
from hidet.cuda.devices import L2_CACHE, Device, device_at, properties
from hidet.cuda.graphs import RecordedWork, graph_of, is_capturing, keep_for_graph, record_work
from hidet.cuda.streams import Event, Stream
from hidet.errors import DeviceOutOfMemory


def memory_at(index: int) -> CudaMemory:
    """Memory of the device of a number. LaunchError where it is not there."""
    return CudaMemory(device_at(index))


@dataclass(frozen=True, slots=True)
class CudaMemory:
    """`hidet.target.DeviceMemory` of a CUDA device."""

    device: Device
    can_capture: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """As torch names it."""
        return self.device.name

    @property
    def description(self) -> str:
        """Name, architecture and highest clocks: what the device runs at now is known to NVIDIA's tools alone."""
        found = properties(self.device.index)
        return (
            f"{found.name}, {found.architecture}, at most {found.clock / 1e3:.0f} MHz, memory at most "
            f"{found.memory_clock / 1e3:.0f} MHz"
        )

    @property
    def cache_bytes(self) -> int:
        """Bytes of the L2 cache."""
        return self.device.driver.attribute(self.device.handle, L2_CACHE)

    def upload(self, array: Any) -> tuple[object, int]:
        """A copy of a numpy array: its owner and its address."""
        owner = self.allocate(array.nbytes)
        if array.nbytes:
            with self.device.current():
                self.device.driver.call("cuMemcpyHtoD_v2", owner.address, array.ctypes.data, array.nbytes)
                # The copy has left the host's memory, but may not have arrived for streams that wait for none.
                self.device.driver.call("cuStreamSynchronize", 0, what="uploading constants")
        return owner, owner.address

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """By the device, in the default stream."""
        if nbytes:
            self.device.call("cuMemsetD8Async", address, byte, nbytes, 0)

    def allocate(self, nbytes: int) -> Allocation:
        """Uninitialised memory. DeviceOutOfMemory where there is too little."""
        self.device.kept.drop_unneeded()
        return Allocation(self.device, nbytes)

    def adapter(self) -> ArrayAdapter:
        """For arrays in memory that hidet itself allocates, and those of other libraries that share theirs."""
        return ArrayAdapter(self.device)

    def place(self, array: Any) -> DeviceArray:
        """A copy of a numpy array as an array of that adapter, strides and all."""
        return place_array(array, self.device)

    def download(self, array: DeviceArray) -> Any:
        """The elements of such an array, flat, as they lie in memory."""
        return download_array(array)

    def in_stream(self, stream: int) -> StreamMemory:
        """A few numbers read and written in the order of a stream."""
        return StreamMemory(self.device, stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether a stream is recorded by somebody else now, or must not be asked because another one is."""
        return is_capturing(self.device, stream)

    def keep_for_graph(self, stream: int, owner: object) -> None:
        """Keep an object as long as the graph that a stream is recorded into by somebody else can be replayed."""
        keep_for_graph(self.device, graph_of(self.device, stream), owner)

    def capture(self, run: Callable[[int], None]) -> RecordedWork:
        """What `run` puts into the stream it is given, recorded instead of done."""
        return record_work(self.device, run)

    def time(self, run: Callable[[int], object]) -> float:
        """Seconds between an event before what `run` puts into a stream and one behind it."""
        stream = Stream(self.device)
        start, end = (Event(timing=True, device=self.device) for _ in range(2))
        start.record(stream)
        run(stream.handle)
        end.record(stream)
        return start.elapsed_time(end) / 1e3

    def finish(self, stream: int) -> None:
        """Wait for a stream."""
        self.device.finish(stream)

    def synchronize(self) -> None:
        """Wait for all work on the device. DeviceLost if it failed."""
        self.device.synchronize()


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
