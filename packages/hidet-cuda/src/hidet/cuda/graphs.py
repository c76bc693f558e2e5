"""Work of a stream recorded as a CUDA graph, and put into streams as one launch."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from hidet.cuda.streams import Stream

if TYPE_CHECKING:
    from hidet.cuda.memory import Device

# Only what is put into our own stream is recorded; what other threads and libraries do meanwhile is none of its matter.
_RELAXED = 2


class RecordedWork:
    """A CUDA graph, whose launches into different streams must not overlap. label: how errors call it."""

    def __init__(self, device: Device, graph: int, label: str) -> None:
        self._device = device
        self._label = label
        count = ctypes.c_size_t()
        device.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        self.kernels = count.value
        self._handle = device.make("cuGraphInstantiateWithFlags", graph, 0, what="making a CUDA graph")
        weakref.finalize(self, _destroy, device, self._handle).atexit = False

    def launch(self, stream: int) -> None:
        """Put the work into a stream."""
        self._device.call("cuGraphLaunch", self._handle, stream, what=f"launching {self._label}")
        self._device.driver.recent.append(self._label)


def recorded(device: Device, run: Callable[[int], None]) -> RecordedWork:
    """What `run` puts into the stream whose handle it is given. The error of `run` where it fails."""
    stream = Stream(device)
    graph = ctypes.c_void_p()
    device.call("cuStreamBeginCapture_v2", stream.handle, _RELAXED, what="recording a CUDA graph")
    try:
        run(stream.handle)
    finally:
        # A recording that failed gives no graph.
        with device.current():
            status = device.driver.status("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
    if status:
        raise device.driver.error(status, "recording a CUDA graph")
    # What was launched last is what is recorded, and has not run.
    label = f"the CUDA graph of {device.driver.recent.pop()}" if device.driver.recent else "a CUDA graph"
    try:
        return RecordedWork(device, graph.value or 0, label)
    finally:
        device.call("cuGraphDestroy", graph)


def is_capturing(device: Device, stream: int) -> bool:
    """Whether a stream is being recorded, or must not be asked because another one is."""
    state = ctypes.c_int()
    status = device.driver.status("cuStreamIsCapturing", stream, ctypes.byref(state))
    return status != 0 or state.value != 0


def _destroy(device: Device, handle: int) -> None:
    # Nothing can be done about a failure, which later calls report.
    with device.current():
        device.driver.status("cuGraphExecDestroy", handle)
