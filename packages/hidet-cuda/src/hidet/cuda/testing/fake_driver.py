"""A CUDA driver in Python, for tests of loading, launching and failing without a GPU. Launches are recorded.

All work is done when it is put into a stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hidet.cuda.devices import Device
from hidet.cuda.driver import Driver
from hidet.cuda.memory import CudaMemory
from hidet.cuda.signatures import SIGNATURES
from hidet.cuda.testing.fake_memory import FakeMemory, write, write32

CONTEXT = 0x1000
"""The context of the first device; those of further ones follow."""
FIRST_STREAM, FIRST_EVENT, FIRST_GRAPH = 0x2000, 0x3000, 0x5000
FIRST_OBJECT, FIRST_RECORDED = 0x6000, 0x100000
ATTRIBUTE_BYTES, ATTRIBUTE_VALUE = 72, 8
NO_CONTEXT = 201


@dataclass
class Launch:
    """What one launch was asked for; parameters are the 8-byte words their addresses point to.

    attributes: numbers of its CUlaunchAttributes, but for those whose value is 0. held: keeps the memory of parameters.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    pointers: int
    attributes: tuple[int, ...] = ()
    held: object = None

    def place(self, number: int) -> int:
        """Where the value of parameter `number` lies. Valid while the launch runs, as the driver's rule is."""
        return ctypes.c_uint64.from_address(self.pointers + 8 * number).value

    def word(self, number: int) -> int:
        """Parameter `number` as a signed word."""
        return ctypes.c_int64.from_address(self.place(number)).value

    def copied(self, count: int) -> Launch:
        """The launch with its first parameters kept, as a graph keeps them."""
        words = (ctypes.c_int64 * count)(*map(self.word, range(count)))
        first = ctypes.addressof(words)
        places = (ctypes.c_uint64 * count)(*(first + 8 * number for number in range(count)))
        made = replace(self, pointers=ctypes.addressof(places))
        made.held = (words, places)
        return made


@dataclass(frozen=True)
class EncodedMap:
    """What one tensor map was asked for; numbers by axis, the fastest first.

    steps: elements from one to the next. For columns of pixels, box holds the channels and the pixels, and lower and
    upper are the corners.
    """

    place: int
    dtype: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int
    promotion: int
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()


def _numbers(kind: type[Any], count: int, place: int) -> tuple[int, ...]:
    """`count` numbers of a C type that lie at an address."""
    return tuple((kind * count).from_address(place))


def _map_tensor(
    place: int, dtype: int, rank: int, address: int, sizes: int, strides: int
) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
    """The fields of `EncodedMap` that say where the map and its tensor lie, from the arguments of an encoder."""
    return place, dtype, address, _numbers(ctypes.c_uint64, rank, sizes), _numbers(ctypes.c_uint64, rank - 1, strides)


@dataclass
class FakeDriver(FakeMemory):
    """Functions of the driver by name.

    refuse: result of every launch, refuse_maps: of encoding every tensor map, refused: of other functions by name.
    on_launch: called while a launch runs. recorded_words: how many parameters of a launch a graph remembers.
    recordings: launches by the stream that is captured; graphs: those that are made. user_objects: of the graph of a
    captured stream, each as a function and its argument.
    """

    refuse: int = 0
    refuse_maps: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    on_launch: Callable[[Launch], None] | None = None
    launches: list[Launch] = field(default_factory=list)
    maps: list[EncodedMap] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    allowed_shared: dict[str, int] = field(default_factory=dict)
    context: int = CONTEXT
    devices: int = 1
    version: int = 13000
    recorded_words: int = 2
    recordings: dict[int, list[Launch]] = field(default_factory=dict)
    graphs: dict[int, list[Launch]] = field(default_factory=dict)
    user_objects: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _objects: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The C function called `name`. AttributeError where this driver has none, as ctypes raises it."""
        if name not in self._functions:
            own = getattr(self, name)

            def called(*arguments: Any) -> int:
                return self.refused.get(name) or own(*arguments)

            self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int, *SIGNATURES[name])(called)
        return self._functions[name]

    def driver(self) -> Driver:
        """The functions, as hidet calls them."""
        return Driver(self.function)

    def device(self, index: int = 0) -> Device:
        """A device of a driver of its own."""
        return Device(self.driver(), index)

    def memory(self) -> CudaMemory:
        """Memory of such a device."""
        return CudaMemory(self.device())

    # --- functions, in the driver's spelling -------------------------------------------------------------------------

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, result: int) -> int:
        return write32(result, self.version)

    def cuLaunchKernel(self, kernel: int, *numbers: int) -> int:
        gx, gy, gz, bx, by, bz, shared, stream, pointers, _ = numbers
        return self._launch(Launch(self.kernels[kernel - 1], (gx, gy, gz), (bx, by, bz), shared, stream or 0, pointers))

    def _launch(self, launch: Launch) -> int:
        if launch.stream in self.recordings:
            self.recordings[launch.stream].append(launch.copied(self.recorded_words))
            return self.refuse
        self.launches.append(launch)
        if self.on_launch is not None:
            self.on_launch(launch)
        return self.refuse

    def cuLaunchKernelEx(self, config: int, kernel: int, pointers: int, extra: int | None) -> int:
        words = (ctypes.c_uint32 * 14).from_address(config)
        longs = (ctypes.c_uint64 * 7).from_address(config)
        grid, block = (words[0], words[1], words[2]), (words[3], words[4], words[5])
        places = [longs[5] + ATTRIBUTE_BYTES * number for number in range(words[12])]
        attributes = tuple(
            ctypes.c_uint32.from_address(place).value
            for place in places
            if ctypes.c_uint32.from_address(place + ATTRIBUTE_VALUE).value
        )
        launch = Launch(self.kernels[kernel - 1], grid, block, words[6], longs[4], pointers, attributes)
        return self._launch(launch)

    def cuTensorMapEncodeTiled(
        self,
        place: int,
        dtype: int,
        rank: int,
        address: int,
        sizes: int,
        strides: int,
        box: int,
        steps: int,
        interleave: int,
        swizzle: int,
        promotion: int,
        outside: int,
    ) -> int:
        tensor = _map_tensor(place, dtype, rank, address, sizes, strides)
        self.maps.append(
            EncodedMap(
                *tensor,
                _numbers(ctypes.c_uint32, rank, box),
                _numbers(ctypes.c_uint32, rank, steps),
                swizzle,
                promotion,
            )
        )
        return self.refuse_maps

    def cuTensorMapEncodeIm2col(
        self,
        place: int,
        dtype: int,
        rank: int,
        address: int,
        sizes: int,
        strides: int,
        lower: int,
        upper: int,
        channels: int,
        pixels: int,
        steps: int,
        interleave: int,
        swizzle: int,
        promotion: int,
        outside: int,
    ) -> int:
        tensor = _map_tensor(place, dtype, rank, address, sizes, strides)
        apart = _numbers(ctypes.c_uint32, rank, steps)
        corners = [_numbers(ctypes.c_int32, rank - 2, array) for array in (lower, upper)]
        self.maps.append(EncodedMap(*tensor, (channels, pixels), apart, swizzle, promotion, *corners))
        return self.refuse_maps

    def cuCtxGetCurrent(self, result: int) -> int:
        return write(result, self.context)

    def cuCtxSetCurrent(self, context: int) -> int:
        self.context = context
        return 0

    def cuCtxGetDevice(self, result: int) -> int:
        return write32(result, self.context - CONTEXT)

    def cuProfilerStart(self) -> int:
        self.log.append(("profiler starts",))
        return 0

    def cuProfilerStop(self) -> int:
        self.log.append(("profiler stops",))
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuDeviceGetCount(self, result: int) -> int:
        return write32(result, self.devices)

    def cuDeviceGet(self, result: int, index: int) -> int:
        return write32(result, index)

    def cuDeviceGetName(self, result: int, length: int, device: int) -> int:
        ctypes.memmove(result, b"Fake GPU\0", 9)
        return 0

    def cuDeviceTotalMem_v2(self, result: int, device: int) -> int:
        return write(result, self.free_bytes)

    def cuDeviceGetAttribute(self, result: int, number: int, device: int) -> int:
        return write32(
            result, {75: 8, 76: 0, 16: 108, 97: 166912, 10: 32, 1: 1024, 39: 2048, 81: 167936}.get(number, 1)
        )

    def cuDevicePrimaryCtxRetain(self, result: int, device: int) -> int:
        return write(result, CONTEXT + device)

    def cuCtxPushCurrent_v2(self, context: int) -> int:
        self._before = self.context
        self.context = context
        return 0

    def cuCtxPopCurrent_v2(self, result: int) -> int:
        self.context = self._before
        return 0

    def cuLibraryLoadData(self, result: int, code: bytes, *options: object) -> int:
        return write(result, 77)

    def cuLibraryGetKernel(self, result: int, library: int, name: bytes) -> int:
        self.kernels.append(name.decode())
        return write(result, len(self.kernels))

    def cuKernelGetAttribute(self, result: int, attribute: int, kernel: int, device: int) -> int:
        return write32(result, 0)

    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int) -> int:
        self.allowed_shared[self.kernels[kernel - 1]] = value
        return 0

    def cuPointerGetAttribute(self, result: int, attribute: int, address: int) -> int:
        return write32(result, 0)

    def cuStreamSynchronize(self, stream: int | None) -> int:
        self.log.append(("wait for", stream or 0))
        return 0

    def cuStreamCreateWithPriority(self, result: int, flags: int, priority: int) -> int:
        return self._handle(result, FIRST_STREAM)

    def cuStreamDestroy_v2(self, stream: int) -> int:
        self.log.append(("destroy", stream))
        return 0

    def cuStreamQuery(self, stream: int | None) -> int:
        return 0

    def cuStreamWaitEvent(self, stream: int | None, event: int, flags: int) -> int:
        self.log.append(("waits", stream or 0, event))
        return 0

    def cuEventCreate(self, result: int, flags: int) -> int:
        return self._handle(result, FIRST_EVENT)

    def cuEventDestroy_v2(self, event: int) -> int:
        return 0

    def cuEventRecord(self, event: int, stream: int | None) -> int:
        self.log.append(("records", event, stream or 0))
        return 0

    def cuEventQuery(self, event: int) -> int:
        return 0

    def cuEventSynchronize(self, event: int) -> int:
        return 0

    def cuEventElapsedTime_v2(self, result: int, start: int, end: int) -> int:
        ctypes.c_float.from_address(result).value = 1.5
        return 0

    def cuStreamIsCapturing(self, stream: int | None, result: int) -> int:
        if not stream and not self.context:
            return NO_CONTEXT
        return write32(result, int((stream or 0) in self.recordings))

    def cuStreamGetCaptureInfo_v3(self, stream: int | None, state: int, number: int, graph: int, *more: int) -> int:
        return write32(state, 1) or write(graph, FIRST_RECORDED + (stream or 0))

    def cuUserObjectCreate(self, result: int, argument: int, function: int, count: int, flags: int) -> int:
        status = self._handle(result, FIRST_OBJECT)
        self._objects[FIRST_OBJECT + self._made] = (function, argument)
        return status

    def cuGraphRetainUserObject(self, graph: int, user_object: int, count: int, flags: int) -> int:
        self.user_objects.setdefault(graph - FIRST_RECORDED, []).append(self._objects.pop(user_object))
        return 0

    def cuUserObjectRelease(self, user_object: int, count: int) -> int:
        self._end([self._objects.pop(user_object)])
        return 0

    def destroy_recorded(self, stream: int) -> None:
        """Destroy the graph that somebody recorded a stream into."""
        self._end(self.user_objects.pop(stream))

    def _end(self, objects: Sequence[tuple[int, int]]) -> None:
        """A thread of the driver's own ends user objects."""
        ends = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        calls = [partial(ends(function), argument) for function, argument in objects]
        with ThreadPoolExecutor(1) as threads:
            for call in calls:
                threads.submit(call).result()

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> int:
        self.recordings[stream] = []
        return 0

    def cuStreamEndCapture(self, stream: int, result: int) -> int:
        self._made += 1
        self.graphs[FIRST_GRAPH + self._made] = self.recordings.pop(stream)
        return write(result, FIRST_GRAPH + self._made)

    def cuGraphGetNodes(self, graph: int, nodes: int | None, count: int) -> int:
        return write(count, len(self.graphs[graph]))

    def cuGraphInstantiateWithFlags(self, result: int, graph: int, flags: int) -> int:
        return write(result, graph)

    def cuGraphLaunch(self, graph: int, stream: int | None) -> int:
        self.log.append(("replays", stream or 0))
        for launch in self.graphs[graph]:
            if self.on_launch is not None:
                self.on_launch(launch)
        return 0

    def cuGraphDestroy(self, graph: int) -> int:
        return 0

    def cuGraphExecDestroy(self, graph: int) -> int:
        del self.graphs[graph]
        return 0

    def cuGetErrorName(self, status: int, result: int) -> int:
        return 1

    def cuGetErrorString(self, status: int, result: int) -> int:
        return 1
