"""Work of a stream recorded as a CUDA graph, and put into streams as one launch."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

from hidet.cuda.devices import Device
from hidet.cuda.kept import RELEASE, DriverLock
from hidet.cuda.streams import Stream
from hidet.errors import HidetError

# Only what is put into our own stream is recorded; what other threads and libraries do meanwhile is none of its matter.
_RELAXED = 2
_NO_CONTEXT = 201  # CUresult
_WITHOUT_WAITING, _MOVED = 1, 1
"""Flags: nobody waits for the call that ends an object; its one reference becomes the graph's."""


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


def record_work(device: Device, run: Callable[[int], None]) -> RecordedWork:
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


def graph_of(device: Device, stream: int) -> int:
    """The graph that a stream is being recorded into. Whoever records it owns it."""
    state, number, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
    graph, nodes, edges = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    places = map(ctypes.byref, (state, number, graph, nodes, edges, count))
    device.call("cuStreamGetCaptureInfo_v3", stream, *places, what="asking which graph is recorded")
    return graph.value or 0


def is_capturing(device: Device, stream: int) -> bool:
    """Whether a stream is recorded by somebody else now, or must not be asked because another one is."""
    state = ctypes.c_int()
    status = device.driver.status("cuStreamIsCapturing", stream, ctypes.byref(state))
    if status == _NO_CONTEXT:
        # A new thread has none, and the default stream is that of the context.
        with device.current():
            status = device.driver.status("cuStreamIsCapturing", stream, ctypes.byref(state))
    return status != 0 or state.value != 0


def keep_for_graph(device: Device, graph: int, owner: object) -> None:
    """Keep an object as long as a graph of somebody else's, or what was made from it, is there."""
    lock = DriverLock()
    what = "keeping memory for a CUDA graph"
    handle = device.make("cuUserObjectCreate", lock.address, RELEASE, 1, _WITHOUT_WAITING, what=what)
    # Before the graph has it: nothing may go wrong between that and the end of this function.
    device.kept.add(owner, lock)
    try:
        device.call("cuGraphRetainUserObject", graph, handle, 1, _MOVED, what=what)
    except HidetError:
        # The reference was not moved: without one, the object ends as it does with its graph.
        device.call("cuUserObjectRelease", handle, 1)
        raise


def _destroy(device: Device, handle: int) -> None:
    # Nothing can be done about a failure, which later calls report.
    with device.current():
        device.driver.status("cuGraphExecDestroy", handle)
