"""Work of a stream recorded as a CUDA graph, and put into streams as one launch."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hidet.cuda.streams import Stream
from hidet.errors import HidetError

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


def graph_of(device: Device, stream: int) -> int:
    """The graph that a stream is being recorded into. Whoever records it owns it."""
    state, number, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
    graph, nodes, edges = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    places = map(ctypes.byref, (state, number, graph, nodes, edges, count))
    device.call("cuStreamGetCaptureInfo_v3", stream, *places, what="asking which graph is recorded")
    return graph.value or 0


class KeptForGraphs:
    """Objects that graphs of other libraries need, each until its graph and all that was made from it are destroyed.

    The driver says so by a call in a thread of its own, which must neither call it nor wait. What it calls there is the
    release of a lock of Python, which needs no interpreter. Which locks are free, and their objects to be dropped, is
    looked at when hidet waits for the device, or allocates there: never while somebody records, when memory must not be
    freed.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._items: list[tuple[_Released, object]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, graph: int, owner: object) -> None:
        """Keep an object for a graph."""
        released = _Released()
        arguments = (released.lock, _RELEASE, 1, _WITHOUT_WAITING)
        handle = self._device.make("cuUserObjectCreate", *arguments, what="keeping memory for a CUDA graph")
        # Before the graph has it: nothing may go wrong between that and the end of this function.
        with self._lock:
            self._items.append((released, owner))
        try:
            what = "keeping memory for a CUDA graph"
            self._device.call("cuGraphRetainUserObject", graph, handle, 1, _MOVED, what=what)
        except HidetError:
            # The reference was not moved: without one, the object ends as it does with its graph.
            self._device.call("cuUserObjectRelease", handle, 1)
            raise

    def drop_unneeded(self) -> None:
        """Drop what no graph needs any more."""
        if not self._items:
            return
        with self._lock:
            is_over = [released.is_over() for released, _ in self._items]
            dropped = [item for item, over in zip(self._items, is_over, strict=True) if over]
            self._items = [item for item, over in zip(self._items, is_over, strict=True) if not over]
        # Whatever freeing them runs, it does not hold the lock.
        del dropped


class _Released:
    """A lock that is taken, and released by the driver."""

    def __init__(self) -> None:
        self.lock = _ALLOCATE_LOCK()
        if not self.lock:
            raise MemoryError("no memory for a lock")
        _ACQUIRE_LOCK(self.lock, 0)

    def is_over(self) -> bool:
        """Whether it was released. Once it was, it is gone."""
        if not _ACQUIRE_LOCK(self.lock, 0):
            return False
        _RELEASE_LOCK(self.lock)
        _FREE_LOCK(self.lock)
        return True


_WITHOUT_WAITING, _MOVED = 1, 1
"""Flags: nobody waits for the call that ends an object; its one reference becomes the graph's."""


def _python_function(name: str, result: Any, *arguments: Any) -> Any:
    # A prototype of its own, because attributes of ctypes.pythonapi belong to everybody.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_ALLOCATE_LOCK = _python_function("PyThread_allocate_lock", ctypes.c_void_p)
_ACQUIRE_LOCK = _python_function("PyThread_acquire_lock", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_RELEASE_LOCK = _python_function("PyThread_release_lock", None, ctypes.c_void_p)
_FREE_LOCK = _python_function("PyThread_free_lock", None, ctypes.c_void_p)
_RELEASE = ctypes.cast(ctypes.pythonapi["PyThread_release_lock"], ctypes.c_void_p).value


def _destroy(device: Device, handle: int) -> None:
    # Nothing can be done about a failure, which later calls report.
    with device.current():
        device.driver.status("cuGraphExecDestroy", handle)
