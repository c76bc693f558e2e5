"""The CUDA driver's functions, called through ctypes.

Launches come from compiled host code, which needs the addresses of cuLaunchKernel and its kin; what Python itself calls
are a dozen functions at load time. A library of bindings for these would cost 55 ms of import and not have them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from hidet.errors import DeviceLost, HidetError, LaunchError

_LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
_MULTIPROCESSORS, _MAJOR, _MINOR, _SHARED_OPTIN = 16, 75, 76, 97
_MAX_DYNAMIC_SHARED = 8

# Results after which every call of the context fails until the process ends (CUDA driver API, CUresult).
_STICKY = frozenset({700, 702, 710, 713, 714, 715, 716, 717, 718, 719, 720})
_OUT_OF_MEMORY, _ASSERT = 2, 710

_BLOCKING = "CUDA_LAUNCH_BLOCKING=1 shows which kernel failed"

_pointer = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (_pointer,),
    "cuDeviceGetCount": (_pointer,),
    "cuDeviceGet": (_pointer, ctypes.c_int),
    "cuDeviceGetName": (_pointer, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetAttribute": (_pointer, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (_pointer, ctypes.c_int),
    "cuCtxGetCurrent": (_pointer,),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_pointer,),
    "cuLibraryLoadData": (
        _pointer,
        ctypes.c_char_p,
        _pointer,
        _pointer,
        ctypes.c_uint,
        _pointer,
        _pointer,
        ctypes.c_uint,
    ),
    "cuLibraryUnload": (_pointer,),
    "cuLibraryGetKernel": (_pointer, _pointer, ctypes.c_char_p),
    "cuKernelSetAttribute": (ctypes.c_int, ctypes.c_int, _pointer, ctypes.c_int),
    "cuMemAlloc_v2": (_pointer, ctypes.c_size_t),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemcpyHtoD_v2": (ctypes.c_uint64, _pointer, ctypes.c_size_t),
    "cuMemcpyDtoH_v2": (_pointer, ctypes.c_uint64, ctypes.c_size_t),
    "cuMemcpyDtoHAsync_v2": (_pointer, ctypes.c_uint64, ctypes.c_size_t, _pointer),
    "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, _pointer),
    "cuMemsetD32Async": (ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, _pointer),
    "cuStreamSynchronize": (_pointer,),
    "cuGetErrorString": (ctypes.c_int, _pointer),
    "cuGetErrorName": (ctypes.c_int, _pointer),
}


class Driver:
    """Functions of the driver by name, with their results checked.

    functions: gives the C function of a name; a test passes its own.
    """

    def __init__(self, functions: Callable[[str], Any]) -> None:
        self._functions = functions
        self._get_current = functions("cuCtxGetCurrent")
        self.launch_address = _address(functions("cuLaunchKernel"))
        self.launch_ex_address = _address(functions("cuLaunchKernelEx"))
        self.encode_address = _address(functions("cuTensorMapEncodeTiled"))

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call a function. LaunchError or DeviceLost says what failed, and while doing `what`."""
        function = self._functions(name)
        function.argtypes = _SIGNATURES[name]
        function.restype = ctypes.c_int
        status = function(*arguments)
        if status:
            raise self.error(status, what or name)

    def error(self, status: int, what: str) -> HidetError:
        """The exception for a result of the driver."""
        text = f"{what}: {self._text('cuGetErrorName', status)}: {self._text('cuGetErrorString', status)}"
        if status in _STICKY:
            shown = "stderr says which assertion of a kernel failed" if status == _ASSERT else _BLOCKING
            return DeviceLost(f"the CUDA device failed: {text}", hint=f"the process has to be started again; {shown}")
        return LaunchError(text, hint="free tensors, or use smaller batches" if status == _OUT_OF_MEMORY else None)

    def _text(self, name: str, status: int) -> str:
        found = ctypes.c_char_p()
        function = self._functions(name)
        function.argtypes = _SIGNATURES[name]
        function.restype = ctypes.c_int
        if function(status, ctypes.byref(found)) or found.value is None:
            return f"CUDA error {status}"
        return found.value.decode()

    def number(self, name: str, *arguments: Any) -> int:
        """The int that a function writes to its first argument."""
        result = ctypes.c_int()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value

    def current_context(self) -> int:
        """The calling thread's context; 0 for none. Quick, for it stands before every run of host code."""
        result = ctypes.c_void_p()
        self._get_current(ctypes.byref(result))
        return result.value or 0

    def handle(self, name: str, *arguments: Any, what: str = "") -> int:
        """The handle that a function writes to its first argument."""
        result = ctypes.c_void_p()
        self.call(name, ctypes.byref(result), *arguments, what=what)
        return result.value or 0

    # --- devices ---------------------------------------------------------------------------------------------------

    def capability(self, device: int) -> tuple[int, int]:
        """Compute capability."""
        return self.attribute(device, _MAJOR), self.attribute(device, _MINOR)

    def multiprocessors(self, device: int) -> int:
        """Streaming multiprocessors."""
        return self.attribute(device, _MULTIPROCESSORS)

    def shared_bytes(self, device: int) -> int:
        """Shared memory that one block can ask for."""
        return self.attribute(device, _SHARED_OPTIN)

    def attribute(self, device: int, number: int) -> int:
        """A number that describes a device (CUdevice_attribute)."""
        return self.number("cuDeviceGetAttribute", number, device)

    def load(self, cubin: bytes, what: str) -> int:
        """A handle of loaded machine code, for whatever device runs it."""
        return self.handle("cuLibraryLoadData", cubin, None, None, 0, None, None, 0, what=what)

    def kernel(self, library: int, name: str) -> int:
        """The handle of a kernel of loaded code."""
        return self.handle("cuLibraryGetKernel", library, name.encode(), what=f"kernel {name}")

    def allow_shared_memory(self, kernel: int, nbytes: int, device: int, name: str) -> None:
        """Let a kernel ask for more shared memory than it may by default."""
        what = f"kernel {name} needs {nbytes} bytes of shared memory"
        self.call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, nbytes, kernel, device, what=what)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def load_driver() -> Driver:
    """The driver of this machine, initialised. LaunchError where there is none, or no device."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise LaunchError(
            "no CUDA driver was found on this machine",
            hint="install NVIDIA's driver, or compile for target 'cpu'",
        )
    driver = Driver(functools.cache(lambda name: library[name]))
    driver.call("cuInit", 0, what="starting CUDA")
    if driver.number("cuDeviceGetCount") == 0:
        raise LaunchError("the CUDA driver finds no device", hint="CUDA_VISIBLE_DEVICES may hide them")
    return driver
