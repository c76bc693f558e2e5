"""Loading cubins and host code, and calling host functions in a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.cuda.container import CompiledModule, KernelRecord
from hidet.cuda.devices import Device
from hidet.cuda.failures import AskedLaunch, launch_hint, launches_block
from hidet.cuda.launch_context import (
    ASKED,
    CELL,
    CONTEXT_WORDS,
    DEVICE,
    ENCODERS,
    ERROR,
    FAILED,
    FUNCTIONS,
    STREAM,
)
from hidet.errors import LaunchError
from hidet.target import Binary

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.target import LoadedCode, Target

_DEFAULT_SHARED = 48 * 1024
"""Dynamic shared memory that a kernel may ask for without being allowed more."""

_LISTED = 3
"""Kernels of a host function that an error lists."""


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
    records: dict[str, KernelRecord] = {}
    libraries: list[int] = []
    with device.current():
        for _, module in modules:
            loaded = [
                driver.load(cubin, f"loading {', '.join(k.name for k in module.kernels if k.cubin == number)}")
                for number, cubin in enumerate(module.cubins)
            ]
            libraries += loaded
            for kernel in module.kernels:
                handle = driver.kernel(loaded[kernel.cubin], kernel.symbol)
                _allow(device, handle, kernel)
                cells[kernel.name] = ctypes.c_int64(handle)
                records[kernel.name] = kernel
    given = {
        **symbols,
        **{name: driver.address(name) for name in (*FUNCTIONS, *ENCODERS)},
        **{CELL + name: ctypes.addressof(cell) for name, cell in cells.items()},
    }
    objects = [Binary(name, module.host) for name, module in modules if module.host is not None]
    return CudaCode(host.load(objects, cache, given), device, cells, records, libraries)


def _allow(device: Device, handle: int, kernel: KernelRecord) -> None:
    """Let a kernel have what it asks for at launch beyond 48 KB, all there is where only its launches know how much."""
    if kernel.shared_bytes <= _DEFAULT_SHARED and not kernel.asks_for_shared:
        return
    driver, most = device.driver, device.shared_limit
    if kernel.shared_bytes > most:
        raise LaunchError(
            f"kernel {kernel.name} needs {kernel.shared_bytes} bytes of shared memory, this device has {most} for a "
            "block",
            hint="use smaller tiles or fewer stages",
        )
    wanted = kernel.shared_bytes
    if kernel.asks_for_shared:
        wanted = most - driver.static_shared(handle, device.handle, kernel.name)
    driver.allow_shared_memory(handle, wanted, device.handle, kernel.name)


class CudaCode:
    """Loaded kernels and the host functions that launch them."""

    def __init__(
        self,
        code: LoadedCode,
        device: Device,
        cells: Mapping[str, Any],
        records: Mapping[str, KernelRecord],
        libraries: Sequence[int],
    ) -> None:
        self._code = code
        self._device = device
        self._cells = cells
        self._records = records
        self._libraries = libraries
        self._names = {ctypes.addressof(cell): name for name, cell in cells.items()}

    @property
    def raise_failure(self) -> Callable[[], None] | None:
        """As of the host code."""
        return self._code.raise_failure

    def address(self, name: str) -> int:
        """Address of a host function, which takes a launch context before its parameters."""
        return self._code.address(name)

    def kernel(self, name: str) -> int:
        """The driver's handle of a kernel. KeyError when the code has none of that name."""
        handle: int = self._cells[name].value
        return handle

    def function(self, name: str, threads: int | None) -> Callable[..., object]:
        """A host function of one pointer as a callable of a table and a stream."""
        # Host code is `void name(pool, context, pointer)`; it launches kernels and needs no pool of threads.
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        entry = prototype(self._code.address(name))
        raise_failure = self._code.raise_failure
        words = ctypes.c_int64 * CONTEXT_WORDS
        device = self._device
        label = self._label(name)
        note = device.driver.recent.append
        # Launch contexts that no call uses now. Each has its device, and no error.
        free: list[Any] = []

        def run(table: int | bytes, stream: int) -> None:
            try:
                context = free.pop()
            except IndexError:
                context = words()
                context[DEVICE] = device.context
            context[STREAM] = stream
            entry(None, context, table)
            if raise_failure is not None:
                raise_failure()
            if context[ERROR]:
                raise self.failure(context)
            free.append(context)
            note(label)

        return run

    def _label(self, name: str) -> str:
        """How errors call what a host function launches."""
        kernels = list(self._records)
        if len(kernels) == 1:
            return f"kernel {kernels[0]}"
        listed = ", ".join(kernels[:_LISTED]) + (", ..." if len(kernels) > _LISTED else "")
        return f"{name} ({len(kernels)} kernels: {listed})"

    def failure(self, context: Sequence[int]) -> Exception:
        """The exception for the launch context of a call in which the driver refused something."""
        driver = self._device.driver
        name = self._names.get(context[FAILED])
        if name is None:
            return driver.error(context[ERROR], f"making {self._device.name} current")
        gx, gy, gz, bx, by, bz, shared = context[ASKED : ASKED + 7]
        if gx == 0:
            # Nothing is launched over an empty grid: it was what comes before a launch.
            return driver.error(context[ERROR], f"encoding a tensor map for launching kernel {name}")
        asked = AskedLaunch(name, (gx, gy, gz), (bx, by, bz), shared, self._records[name].registers)
        hint = launch_hint(asked, self._device.shared_limit)
        if launches_block():
            suspects = [f"kernel {name}"]
        else:
            earlier = [f"kernel {other}" for other in self._records if other != name]
            suspects = [*earlier[:_LISTED], *reversed(driver.recent)]
        return driver.error(context[ERROR], str(asked), hint=hint, suspects=suspects)
