"""Loading cubins and host code, and calling host functions in a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.cuda.container import CompiledModule
from hidet.cuda.host_code import CELL, CONTEXT_WORDS, ERROR, FAILED, LAUNCH, LAUNCH_EX, STREAM
from hidet.cuda.host_map import ENCODE
from hidet.cuda.memory import Device
from hidet.errors import LaunchError
from hidet.target import Binary

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.target import LoadedCode, Target

_DEFAULT_SHARED = 48 * 1024
"""Dynamic shared memory that a kernel may ask for without being allowed more."""


def load_modules(
    modules: Sequence[tuple[str, CompiledModule]],
    device: Device,
    host: Target,
    cache: KernelCache | None,
    symbols: Mapping[str, int],
) -> CudaCode:
    """Load kernels on the device and link host code to them and to the driver."""
    driver = device.driver
    cells: dict[str, Any] = {}
    libraries: list[int] = []
    with device.current():
        for _, module in modules:
            loaded = [
                driver.load(cubin, f"loading {', '.join(k.name for k in module.kernels if k.cubin == number)}")
                for number, cubin in enumerate(module.cubins)
            ]
            libraries += loaded
            for kernel in module.kernels:
                handle = driver.kernel(loaded[kernel.cubin], kernel.name)
                if kernel.shared_bytes > _DEFAULT_SHARED:
                    _allow(device, handle, kernel.shared_bytes, kernel.name)
                cells[kernel.name] = ctypes.c_int64(handle)
    given = {
        **symbols,
        LAUNCH: driver.launch_address,
        LAUNCH_EX: driver.launch_ex_address,
        ENCODE: driver.encode_address,
        **{CELL + name: ctypes.addressof(cell) for name, cell in cells.items()},
    }
    objects = [Binary(name, module.host) for name, module in modules if module.host is not None]
    return CudaCode(host.load(objects, cache, given), device, cells, libraries)


def _allow(device: Device, handle: int, nbytes: int, name: str) -> None:
    most = device.driver.shared_bytes(device.handle)
    if nbytes > most:
        raise LaunchError(
            f"kernel {name} needs {nbytes} bytes of shared memory, this device has {most} for a block",
            hint="use smaller tiles or fewer stages",
        )
    device.driver.allow_shared_memory(handle, nbytes, device.handle, name)


class CudaCode:
    """Loaded kernels and the host functions that launch them."""

    def __init__(self, code: LoadedCode, device: Device, cells: Mapping[str, Any], libraries: Sequence[int]) -> None:
        self._code = code
        self._device = device
        self._cells = cells
        self._libraries = libraries
        self._names = {ctypes.addressof(cell): name for name, cell in cells.items()}

    def address(self, name: str) -> int:
        """Address of a host function, which takes a launch context before its parameters."""
        return self._code.address(name)

    def kernel(self, name: str) -> int:
        """The driver's handle of a kernel. KeyError when the code has none of that name."""
        handle: int = self._cells[name].value
        return handle

    def function(self, name: str, threads: int | None) -> Callable[..., object]:
        """A host function of one pointer as a callable of its address and a stream."""
        # Host code is `void name(pool, context, pointer)`; it launches kernels and needs no pool of threads.
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        entry = prototype(self._code.address(name))
        make_context = ctypes.c_int64 * CONTEXT_WORDS
        device = self._device
        current = device.driver.current_context

        def run(address: int, stream: int) -> None:
            context = make_context()
            context[STREAM] = stream
            if current() == device.context:
                entry(None, context, address)
            else:
                with device.current():
                    entry(None, context, address)
            if context[ERROR]:
                raise self.failure(context[ERROR], context[FAILED])

        return run

    def failure(self, status: int, cell: int) -> Exception:
        """The exception for a launch that the driver refused. cell: what the launch context names as failed."""
        return self._device.driver.error(status, f"launching kernel {self._names.get(cell, 'of unknown name')}")
