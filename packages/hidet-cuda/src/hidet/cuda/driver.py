"""The CUDA driver's functions, called through ctypes.

Launches come from compiled host code, which needs the addresses of cuLaunchKernel and its kin; what Python itself calls
are a few dozen functions, most of them at load time. A library of bindings for these would cost 55 ms of import and not
have them.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hidet.cuda.failures import hint_for, is_out_of_memory, is_sticky, lost_device
from hidet.cuda.signatures import SIGNATURES
from hidet.errors import DeviceLost, DeviceOutOfMemory, HidetError, LaunchError

_LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")

OLDEST_VERSION = 13000
"""CUDA 13.0, whose major version NVRTC's machine code needs."""

MULTIPROCESSORS, MAJOR, MINOR, SHARED_OPTIN = 16, 75, 76, 97
"""Numbers of CUdevice_attribute that the compiler itself asks for."""
_MAX_DYNAMIC_SHARED = 8
_STATIC_SHARED = 1

RECENT = 8
"""Calls of compiled code that are remembered, to be named when the device fails."""


class Driver:
    """Functions of the driver by name, with their results checked.

    functions: gives the C function of a name; a test passes its own. recent: what was launched last, newest at the end.
    """

    def __init__(self, functions: Callable[[str], Any]) -> None:
        self._functions = functions
        self._prepared: dict[str, Any] = {}
        self._lost: DeviceLost | None = None
        self.recent: deque[str] = deque(maxlen=RECENT)

    def function(self, name: str) -> Any:
        """The C function of a name with its types set. LaunchError where the driver has none."""
        found = self._prepared.get(name)
        if found is None:
            try:
                found = self._functions(name)
            except AttributeError:
                raise LaunchError(
                    f"the CUDA driver has no function {name}", hint="update NVIDIA's driver to CUDA 13.0 or newer"
                ) from None
            found.argtypes = SIGNATURES[name]
            found.restype = ctypes.c_int
            self._prepared[name] = found
        return found

    def address(self, name: str) -> int:
        """Where a function of the driver lies, for compiled code that calls it."""
        address = ctypes.cast(self._functions(name), ctypes.c_void_p).value
        assert address is not None
        return address

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call a function. LaunchError, DeviceOutOfMemory or DeviceLost says what failed, and while doing `what`."""
        status = self.function(name)(*arguments)
        if status:
            raise self.error(status, what or name)

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function whose failure has a meaning of its own."""
        status: int = self.function(name)(*arguments)
        return status

    def error(
        self, status: int, what: str, *, hint: str | None = None, suspects: Sequence[str] | None = None
    ) -> HidetError:
        """The exception for a result of the driver.

        hint: advice for this call; None gives that for the result. suspects: the kernels that may have failed; None is
        what was launched last. What failed first is what every later DeviceLost tells.
        """
        text = f"{what}: {self.text(status)}"
        if is_sticky(status):
            if self._lost is None:
                suspects = tuple(reversed(self.recent)) if suspects is None else suspects
                self._lost = lost_device(status, text, suspects)
            return DeviceLost(self._lost.message, hint=self._lost.hint)
        if is_out_of_memory(status):
            return DeviceOutOfMemory(text, hint=hint or hint_for(status))
        return LaunchError(text, hint=hint or hint_for(status))

    def text(self, status: int) -> str:
        """Name and meaning of a result."""
        return f"{self._text('cuGetErrorName', status)}: {self._text('cuGetErrorString', status)}"

    def _text(self, name: str, status: int) -> str:
        found = ctypes.c_char_p()
        if self.function(name)(status, ctypes.byref(found)) or found.value is None:
            return f"CUDA error {status}"
        return found.value.decode(errors="replace")

    def number(self, name: str, *arguments: Any, what: str = "") -> int:
        """The int that a function writes to its first argument."""
        result = ctypes.c_int()
        self.call(name, ctypes.byref(result), *arguments, what=what)
        return result.value

    def handle(self, name: str, *arguments: Any, what: str = "") -> int:
        """The handle, or the 64-bit number, that a function writes to its first argument."""
        result = ctypes.c_void_p()
        self.call(name, ctypes.byref(result), *arguments, what=what)
        return result.value or 0

    # --- devices ---------------------------------------------------------------------------------------------------

    def current_context(self) -> int:
        """The calling thread's context; 0 for none."""
        result = ctypes.c_void_p()
        self.function("cuCtxGetCurrent")(ctypes.byref(result))
        return result.value or 0

    def capability(self, device: int) -> tuple[int, int]:
        """Compute capability."""
        return self.attribute(device, MAJOR), self.attribute(device, MINOR)

    def shared_bytes(self, device: int) -> int:
        """Shared memory that one block can ask for."""
        return self.attribute(device, SHARED_OPTIN)

    def attribute(self, device: int, number: int) -> int:
        """A number that describes a device (CUdevice_attribute)."""
        return self.number("cuDeviceGetAttribute", number, device)

    # --- code ------------------------------------------------------------------------------------------------------

    def load(self, cubin: bytes, what: str) -> int:
        """A handle of loaded machine code, for whatever device runs it."""
        return self.handle("cuLibraryLoadData", cubin, None, None, 0, None, None, 0, what=what)

    def kernel(self, library: int, name: str) -> int:
        """The handle of a kernel of loaded code."""
        return self.handle("cuLibraryGetKernel", library, name.encode(), what=f"kernel {name}")

    def static_shared(self, kernel: int, device: int, name: str) -> int:
        """Shared memory that a kernel declares."""
        return self.number("cuKernelGetAttribute", _STATIC_SHARED, kernel, device, what=f"kernel {name}")

    def allow_shared_memory(self, kernel: int, nbytes: int, device: int, name: str) -> None:
        """Let a kernel ask for more shared memory than it may by default."""
        what = f"kernel {name} needs {nbytes} bytes of shared memory"
        self.call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, nbytes, kernel, device, what=what)


def driver_library() -> Any | None:
    """The library of NVIDIA's driver; None where it is not installed."""
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def driver_version_of(library: Any) -> int:
    """The CUDA version that a driver supports, as it says: 13000 for 13.0. It needs no device."""
    return Driver(lambda name: library[name]).number("cuDriverGetVersion")


@functools.cache
def load_driver() -> Driver:
    """The driver of this machine, initialised. LaunchError where there is none, an old one, or no device."""
    library = driver_library()
    if library is None:
        raise LaunchError(
            "no CUDA driver was found on this machine",
            hint="install NVIDIA's driver, or compile for target 'cpu'; target 'cuda:sm_90a' compiles without a GPU "
            "what is saved and then loaded where one is",
        )
    return started(Driver(functools.cache(lambda name: library[name])))


def started(driver: Driver) -> Driver:
    """The driver, ready to be used. LaunchError for an old one, or where it finds no device."""
    version = driver.number("cuDriverGetVersion")
    if version < OLDEST_VERSION:
        raise LaunchError(
            f"NVIDIA's driver supports CUDA {version_text(version)}, expected {version_text(OLDEST_VERSION)} or newer",
            hint="update the driver (580 or newer), or compile for target 'cpu'",
        )
    driver.call("cuInit", 0, what="starting CUDA")
    if driver.number("cuDeviceGetCount") == 0:
        raise LaunchError("the CUDA driver finds no device", hint="CUDA_VISIBLE_DEVICES may hide them")
    return driver


def version_text(version: int) -> str:
    """ "13.0" for 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"
