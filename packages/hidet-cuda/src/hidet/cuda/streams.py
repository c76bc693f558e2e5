"""Streams and events of CUDA devices, and the stream in which hidet works on arrays of its own.

Tensors of a framework are used in that framework's current stream. Arrays of hidet, and of libraries without a notion
of a current stream, are used in the one that `stream` makes current, the default stream outside of it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from hidet.cuda.devices import Device, chosen_device
from hidet.errors import LaunchError

LEGACY_STREAM = 1
"""Handle of the default stream in protocols that have no 0."""

_NOT_READY = 600
_INDEPENDENT = 1  # CU_STREAM_NON_BLOCKING: no order between it and the default stream
_WITHOUT_TIME, _SLEEPING = 2, 1


class Stream:
    """A queue of work on a device, whose items run in order; work in different streams may run at the same time.

    device: number of the device, None for the calling thread's. priority: -1 runs before 0, 0 before 1 where both wait.
    """

    def __init__(self, device: int | Device | None = None, priority: int = 0) -> None:
        self.device = chosen_device(device)
        arguments = (_INDEPENDENT, priority)
        self.handle = self.device.make("cuStreamCreateWithPriority", *arguments, what="making a stream")
        weakref.finalize(self, _destroy, self.device, "cuStreamDestroy_v2", self.handle).atexit = False

    def synchronize(self) -> None:
        """Wait until its work is done. DeviceLost if it failed."""
        self.device.finish(self.handle)

    def is_done(self) -> bool:
        """Whether all of its work is done."""
        return _is_done(self.device, "cuStreamQuery", self.handle)

    def record(self, event: Event | None = None) -> Event:
        """Let an event happen when the work that is in the stream now is done; a new event where none is given."""
        event = Event(device=self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work that is put into the stream from now on wait for an event."""
        self.device.call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def wait_stream(self, other: Stream) -> None:
        """Let work that is put into the stream from now on wait for what is in another one."""
        self.wait_event(other.record())

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and the handle."""
        return 0, self.handle

    def __repr__(self) -> str:
        return f"{type(self).__name__}(device={self.device.name!r}, handle={self.handle:#x})"


class ExternalStream(Stream):
    """A stream that somebody else made and keeps alive. handle: its CUstream as an integer; 0 is the default stream."""

    def __init__(self, handle: int, device: int | Device | None = None) -> None:
        self.device = chosen_device(device)
        self.handle = handle


class Event:
    """A point in the work of a stream.

    timing: whether `elapsed_time` can use it. sleeping: whether threads that wait for it sleep instead of spinning.
    """

    def __init__(self, timing: bool = False, sleeping: bool = False, device: int | Device | None = None) -> None:
        self.device = chosen_device(device)
        flags = (0 if timing else _WITHOUT_TIME) | (_SLEEPING if sleeping else 0)
        self.has_time = timing
        self.handle = self.device.make("cuEventCreate", flags, what="making an event")
        weakref.finalize(self, _destroy, self.device, "cuEventDestroy_v2", self.handle).atexit = False

    def record(self, stream: Stream | None = None) -> None:
        """Happen when the work that is in a stream now is done; None is the current stream."""
        stream = current_stream(self.device) if stream is None else stream
        stream.device.call("cuEventRecord", self.handle, stream.handle)

    def is_done(self) -> bool:
        """Whether it has happened."""
        return _is_done(self.device, "cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait until it has happened. DeviceLost if the work before it failed."""
        self.device.call("cuEventSynchronize", self.handle, what="waiting for an event")

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`, for which it waits. LaunchError for events without timing."""
        if not (self.has_time and end.has_time):
            raise LaunchError("an event has no time", hint="make both events with timing=True")
        end.synchronize()
        found = ctypes.c_float()
        self.device.call("cuEventElapsedTime_v2", ctypes.byref(found), self.handle, end.handle)
        return found.value


_CURRENT: ContextVar[Mapping[int, Stream]] = ContextVar("hidet_cuda_streams")


def default_stream(device: int | Device | None = None) -> Stream:
    """The default stream of a device, which is in order with all streams that CUDA calls blocking."""
    return ExternalStream(0, device)


def current_stream(device: int | Device | None = None) -> Stream:
    """The stream in which hidet works on arrays of its own on a device."""
    own = chosen_device(device)
    found = _CURRENT.get({}).get(own.index)
    return default_stream(own) if found is None else found


@contextmanager
def stream(chosen: Stream) -> Iterator[Stream]:
    """Work on arrays of hidet in a stream as long as the block runs, on the stream's device, in this thread or task."""
    token = _CURRENT.set({**_CURRENT.get({}), chosen.device.index: chosen})
    try:
        yield chosen
    finally:
        _CURRENT.reset(token)


def order_streams(later: Stream, earlier: Stream) -> None:
    """Let work that is put into one stream from now on wait for what is in another one."""
    if later.handle != earlier.handle:
        later.wait_stream(earlier)


def _is_done(device: Device, function: str, handle: int) -> bool:
    with device.current():
        status = device.driver.status(function, handle)
    if status not in (0, _NOT_READY):
        raise device.driver.error(status, function)
    return status == 0


def _destroy(device: Device, function: str, handle: int) -> None:
    # Nothing can be done about a failure, which later calls report.
    with device.current():
        device.driver.status(function, handle)
