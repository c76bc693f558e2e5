"""A CUDA driver in Python, for tests of loading, launching and failing without a GPU. Launches are recorded."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hidet.cuda.driver import Driver
from hidet.cuda.memory import Device

CONTEXT = 0x1000


@dataclass
class Launch:
    """What one launch was asked for; parameters are the 8-byte words their addresses point to."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    pointers: int

    def place(self, number: int) -> int:
        """Where the value of parameter `number` lies. Valid while the launch runs, as the driver's rule is."""
        return ctypes.c_uint64.from_address(self.pointers + 8 * number).value

    def word(self, number: int) -> int:
        """Parameter `number` as a signed word."""
        return ctypes.c_int64.from_address(self.place(number)).value


@dataclass(frozen=True)
class EncodedMap:
    """What one tensor map was asked for; numbers by axis, the fastest first."""

    place: int
    dtype: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass
class FakeDriver:
    """Functions of the driver by name. `refuse`: result of every launch. `on_launch`: called while it runs.
    `refuse_maps`: result of encoding every tensor map."""

    refuse: int = 0
    refuse_maps: int = 0
    on_launch: Callable[[Launch], None] | None = None
    launches: list[Launch] = field(default_factory=list)
    maps: list[EncodedMap] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    allowed_shared: dict[str, int] = field(default_factory=dict)
    context: int = CONTEXT
    _alive: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The C function called `name`."""
        if name not in self._functions:
            self._functions[name] = _PROTOTYPES[name](getattr(self, name))
        return self._functions[name]

    def device(self) -> Device:
        """The one device."""
        return Device(Driver(self.function), 0)

    # --- functions, in the driver's spelling -------------------------------------------------------------------------

    def cuLaunchKernel(self, kernel: int, *numbers: int) -> int:
        gx, gy, gz, bx, by, bz, shared, stream, pointers, _ = numbers
        launch = Launch(self.kernels[kernel - 1], (gx, gy, gz), (bx, by, bz), shared, stream or 0, pointers)
        self.launches.append(launch)
        if self.on_launch is not None:
            self.on_launch(launch)
        return self.refuse

    def cuLaunchKernelEx(self, config: int, kernel: int, pointers: int, extra: int | None) -> int:
        words = (ctypes.c_uint32 * 14).from_address(config)
        longs = (ctypes.c_uint64 * 7).from_address(config)
        grid, block = (words[0], words[1], words[2]), (words[3], words[4], words[5])
        self.launches.append(Launch(self.kernels[kernel - 1], grid, block, words[6], longs[4], pointers))
        return self.refuse

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
        *options: int,
    ) -> int:
        wide = [tuple((ctypes.c_uint64 * n).from_address(p)) for p, n in ((sizes, rank), (strides, rank - 1))]
        extents = tuple((ctypes.c_uint32 * rank).from_address(box))
        self.maps.append(EncodedMap(place, dtype, address, wide[0], wide[1], extents, options[1]))
        return self.refuse_maps

    def cuCtxGetCurrent(self, result: int) -> int:
        return _write(result, self.context)

    def cuDeviceGetCount(self, result: int) -> int:
        return _write32(result, 1)

    def cuDeviceGet(self, result: int, index: int) -> int:
        return _write32(result, index)

    def cuDeviceGetAttribute(self, result: int, number: int, device: int) -> int:
        return _write32(result, {75: 8, 76: 0, 16: 108, 97: 166912}[number])

    def cuDevicePrimaryCtxRetain(self, result: int, device: int) -> int:
        return _write(result, CONTEXT)

    def cuCtxPushCurrent_v2(self, context: int) -> int:
        self.context = context
        return 0

    def cuCtxPopCurrent_v2(self, result: int) -> int:
        self.context = 0
        return 0

    def cuLibraryLoadData(self, result: int, code: bytes, *options: object) -> int:
        return _write(result, 77)

    def cuLibraryGetKernel(self, result: int, library: int, name: bytes) -> int:
        self.kernels.append(name.decode())
        return _write(result, len(self.kernels))

    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int) -> int:
        self.allowed_shared[self.kernels[kernel - 1]] = value
        return 0

    def cuMemAlloc_v2(self, result: int, nbytes: int) -> int:
        memory = ctypes.create_string_buffer(nbytes + 256)
        self._alive.append(memory)
        return _write(result, -(-ctypes.addressof(memory) // 256) * 256)

    def cuMemFree_v2(self, address: int) -> int:
        return 0

    def cuMemcpyHtoD_v2(self, target: int, source: int, nbytes: int) -> int:
        ctypes.memmove(target, source, nbytes)
        return 0

    def cuMemcpyDtoHAsync_v2(self, target: int, source: int, nbytes: int, stream: int | None) -> int:
        ctypes.memmove(target, source, nbytes)
        return 0

    def cuStreamSynchronize(self, stream: int | None) -> int:
        return 0

    def cuGetErrorName(self, status: int, result: int) -> int:
        return 1

    def cuGetErrorString(self, status: int, result: int) -> int:
        return 1


def _write(result: int, value: int) -> int:
    ctypes.c_uint64.from_address(result).value = value
    return 0


def _write32(result: int, value: int) -> int:
    ctypes.c_int32.from_address(result).value = value
    return 0


_P, _I, _U = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_PROTOTYPES = {
    name: ctypes.CFUNCTYPE(_I, *arguments)
    for name, arguments in {
        "cuLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
        "cuLaunchKernelEx": (_P, _P, _P, _P),
        "cuTensorMapEncodeTiled": (_P, _I, _U, _P, _P, _P, _P, _P, _I, _I, _I, _I),
        "cuCtxGetCurrent": (_P,),
        "cuDeviceGetCount": (_P,),
        "cuDeviceGet": (_P, _I),
        "cuDeviceGetAttribute": (_P, _I, _I),
        "cuDevicePrimaryCtxRetain": (_P, _I),
        "cuCtxPushCurrent_v2": (_P,),
        "cuCtxPopCurrent_v2": (_P,),
        "cuLibraryLoadData": (_P, ctypes.c_char_p, _P, _P, _U, _P, _P, _U),
        "cuLibraryGetKernel": (_P, _P, ctypes.c_char_p),
        "cuKernelSetAttribute": (_I, _I, _P, _I),
        "cuMemAlloc_v2": (_P, ctypes.c_size_t),
        "cuMemFree_v2": (ctypes.c_uint64,),
        "cuMemcpyHtoD_v2": (ctypes.c_uint64, _P, ctypes.c_size_t),
        "cuMemcpyDtoHAsync_v2": (_P, ctypes.c_uint64, ctypes.c_size_t, _P),
        "cuStreamSynchronize": (_P,),
        "cuGetErrorName": (_I, _P),
        "cuGetErrorString": (_I, _P),
    }.items()
}
