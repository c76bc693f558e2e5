"""Functions of OpenCL that hidet calls through ctypes, which lets other threads run meanwhile.

pyopencl finds platforms and devices and opens contexts. Launches come from compiled host code, which needs addresses
of functions, and compiling is done by threads.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

from hidet.errors import DeviceOutOfMemory, HidetError, LaunchError
from hidet.opencl.devices import library, load_opencl

_P, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "clCreateProgramWithSource": (_P, [_P, ctypes.c_uint, _P, _P, _P]),
    "clCreateProgramWithBinary": (_P, [_P, ctypes.c_uint, _P, _P, _P, _P, _P]),
    "clBuildProgram": (_INT, [_P, ctypes.c_uint, _P, ctypes.c_char_p, _P, _P]),
    "clGetProgramBuildInfo": (_INT, [_P, _P, ctypes.c_uint, _SIZE, _P, _P]),
    "clGetProgramInfo": (_INT, [_P, ctypes.c_uint, _SIZE, _P, _P]),
    "clReleaseProgram": (_INT, [_P]),
    "clCreateKernel": (_P, [_P, ctypes.c_char_p, _P]),
    "clReleaseKernel": (_INT, [_P]),
    "clSetKernelExecInfo": (_INT, [_P, ctypes.c_uint, _SIZE, _P]),
    "clFinish": (_INT, [_P]),
    "clSVMAlloc": (_P, [_P, ctypes.c_uint64, _SIZE, ctypes.c_uint]),
    "clSVMFree": (None, [_P, _P]),
    "clEnqueueSVMMemcpy": (_INT, [_P, ctypes.c_uint, _P, _P, _SIZE, ctypes.c_uint, _P, _P]),
    "clEnqueueSVMMemFill": (_INT, [_P, _P, _P, _SIZE, _SIZE, ctypes.c_uint, _P, _P]),
    "clGetDeviceInfo": (_INT, [_P, ctypes.c_uint, _SIZE, _P, _P]),
}
_BUILD_LOG = 0x1183
_BINARY_SIZES, _BINARIES = 0x1165, 0x1166
_FINE_GRAIN_SYSTEM = 0x11B7
_OUT_OF_MEMORY = (-4, -5, -6)


@functools.cache
def function(name: str) -> Any:
    """A function of OpenCL with its types."""
    found = library()[name]
    found.restype, found.argtypes = _SIGNATURES[name]
    return found


def address(name: str) -> int:
    """Where a function lies, for compiled code that calls it."""
    return ctypes.cast(library()[name], _P).value or 0


def error(status: int, what: str) -> HidetError:
    """The exception for a result of OpenCL."""
    text = f"{what}: {status_name(status)}"
    if status in _OUT_OF_MEMORY:
        return DeviceOutOfMemory(text, hint="use smaller batches, or smaller tiles")
    return LaunchError(text)


def status_name(status: int) -> str:
    """A result as the standard calls it: "INVALID_WORK_GROUP_SIZE"."""
    codes = load_opencl().status_code
    return str(codes.to_string(status, "OpenCL error %d"))


def check(status: int, what: str) -> None:
    """Raise the exception for a result that is an error."""
    if status:
        raise error(status, what)


def _release_with(owner: object, name: str, handle: int) -> None:
    """Release a handle with its owner. At the end of the process the driver may be gone already, and frees all."""
    weakref.finalize(owner, function(name), handle).atexit = False


class Program:
    """A program of one device; released with this object."""

    def __init__(self, handle: int, device: int) -> None:
        self.handle = handle
        self._device = device
        _release_with(self, "clReleaseProgram", handle)

    @classmethod
    def from_source(cls, text: str, context: int, device: int) -> Program:
        """Of OpenCL C."""
        given, status = ctypes.c_char_p(text.encode()), ctypes.c_int()
        create = function("clCreateProgramWithSource")
        handle = create(context, 1, ctypes.byref(given), None, ctypes.byref(status))
        check(status.value, "making a program")
        return cls(handle, device)

    @classmethod
    def from_binary(cls, binary: bytes, context: int, device: int) -> Program:
        """Of what `binary` gave."""
        devices, length, status = ctypes.c_void_p(device), ctypes.c_size_t(len(binary)), ctypes.c_int()
        given = ctypes.c_char_p(binary)
        create = function("clCreateProgramWithBinary")
        places = [ctypes.byref(cell) for cell in (devices, length, given)]
        handle = create(context, 1, *places, None, ctypes.byref(status))
        check(status.value, "loading a program")
        return cls(handle, device)

    def build(self, options: str) -> bool:
        """Whether the compiler takes it; `log` says what not."""
        devices = ctypes.c_void_p(self._device)
        return not function("clBuildProgram")(self.handle, 1, ctypes.byref(devices), options.encode(), None, None)

    def log(self) -> str:
        """What the compiler wrote."""
        ask, size = function("clGetProgramBuildInfo"), ctypes.c_size_t()
        ask(self.handle, self._device, _BUILD_LOG, 0, None, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        ask(self.handle, self._device, _BUILD_LOG, size.value, text, None)
        return text.value.decode(errors="replace").strip()

    def binary(self) -> bytes:
        """The program as the driver loads it again."""
        size, ask = ctypes.c_size_t(), function("clGetProgramInfo")
        check(ask(self.handle, _BINARY_SIZES, ctypes.sizeof(size), ctypes.byref(size), None), "reading a program")
        data = ctypes.create_string_buffer(size.value)
        place = ctypes.c_void_p(ctypes.addressof(data))
        check(ask(self.handle, _BINARIES, ctypes.sizeof(place), ctypes.byref(place), None), "reading a program")
        return data.raw

    def kernel(self, name: str) -> Kernel:
        """A kernel of a program that was built."""
        status = ctypes.c_int()
        handle = function("clCreateKernel")(self.handle, name.encode(), ctypes.byref(status))
        check(status.value, f"kernel {name}")
        return Kernel(handle)


class Kernel:
    """A kernel; released with this object."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        _release_with(self, "clReleaseKernel", handle)

    def read_host(self) -> None:
        """Say that it reads the host's memory, on a device whose kernels do."""
        allowed = ctypes.c_uint(1)
        set_info = function("clSetKernelExecInfo")
        set_info(self.handle, _FINE_GRAIN_SYSTEM, ctypes.sizeof(allowed), ctypes.byref(allowed))
