"""Loading programs and host code, and calling host functions."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from hidet.errors import LaunchError
from hidet.ir.stmt import fill_in
from hidet.opencl.codegen.assertions import FAILURE_WORDS, Assertion
from hidet.opencl.compiler import load_program
from hidet.opencl.container import CompiledModule
from hidet.opencl.devices import Device
from hidet.opencl.driver import Kernel, address, check, error, function
from hidet.opencl.host_code import ASKED, CELL, CONTEXT_WORDS, ERROR, FAILED, FAILURE, FUNCTIONS, QUEUE
from hidet.opencl.memory import SvmMemory
from hidet.target import Binary

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.target import LoadedCode, Target


def load_modules(
    modules: Sequence[tuple[str, CompiledModule]],
    device: Device,
    host: Target,
    cache: KernelCache | None,
    symbols: Mapping[str, int],
) -> OpenCLCode:
    """Load kernels on the device and link host code to them and to OpenCL."""
    cells: dict[str, Any] = {}
    kernels: list[Kernel] = []
    assertions: list[Assertion] = []
    for _, module in modules:
        programs = [load_program(binary, device) for binary in module.programs]
        for name, (number, symbol) in module.kernels.items():
            kernels.append(programs[number].kernel(symbol))
            if device.has_system_svm:
                kernels[-1].read_host()
            cells[name] = (ctypes.c_int64 * 2)(kernels[-1].handle, len(assertions))
        assertions += module.assertions
    given = {
        **symbols,
        **{name: address(name) for name in FUNCTIONS},
        **{CELL + name: ctypes.addressof(cell) for name, cell in cells.items()},
    }
    objects = [Binary(name, module.host) for name, module in modules if module.host is not None]
    return OpenCLCode(host.load(objects, cache, given), device, cells, assertions, kernels)


class OpenCLCode:
    """Loaded kernels and the host functions that launch them.

    A kernel keeps its arguments until it is launched, so that one call at a time gives and launches them; calls wait
    for the device side by side.
    """

    def __init__(
        self,
        code: LoadedCode,
        device: Device,
        cells: Mapping[str, Any],
        assertions: Sequence[Assertion],
        kernels: Sequence[Kernel],
    ) -> None:
        self._code = code
        self._device = device
        self._cells = cells
        self._assertions = assertions
        self._kernels = kernels
        self._names = {ctypes.addressof(cell): name for name, cell in cells.items()}
        self._launching = threading.Lock()

    @property
    def raise_failure(self) -> Callable[[], None] | None:
        """As of the host code."""
        return self._code.raise_failure

    def address(self, name: str) -> int:
        """Address of a host function, which takes a launch context before its parameters."""
        return self._code.address(name)

    def function(self, name: str, threads: int | None) -> Callable[..., object]:
        """A host function of one pointer as a callable of a table, and of a stream where the device has memory of its
        own, which returns when its kernels have ended."""
        # Host code is `void name(pool, context, pointer)`; it launches kernels and needs no pool of threads.
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        entry = prototype(self._code.address(name))
        raise_failure = self._code.raise_failure
        words, noted = ctypes.c_int64 * CONTEXT_WORDS, ctypes.c_int32 * FAILURE_WORDS
        finish, queue = function("clFinish"), self._device.queue.int_ptr

        # Words that kernels note in are theirs to write: in memory of the device, where it has its own.
        own = SvmMemory(self._device) if self._assertions and not self._device.has_system_svm else None

        def run(table: int | bytes, stream: int = 0) -> None:
            context, failure = words(), noted()
            # `held` keeps the words alive until they are read.
            held, place = (None, ctypes.addressof(failure)) if own is None else own.upload(numpy.zeros_like(failure))
            context[QUEUE], context[FAILURE] = queue, place
            with self._launching:
                entry(None, context, table)
            check(finish(queue), f"waiting for {name}")
            if own is not None:
                own.in_stream(stream).to_host(ctypes.addressof(failure), place, ctypes.sizeof(failure))
                del held
            if raise_failure is not None:
                raise_failure()
            if context[ERROR]:
                raise self._refused(context)
            if failure[0]:
                raise self._failed(failure)

        return run

    def _refused(self, context: Any) -> Exception:
        """The exception for the launch context of a call in which OpenCL refused something."""
        name = self._names.get(context[FAILED], "a kernel")
        grid, block = tuple(context[ASKED : ASKED + 3]), tuple(context[ASKED + 3 : ASKED + 6])
        return error(context[ERROR], f"launching kernel {name} with grid {grid} and block {block}")

    def _failed(self, failure: Any) -> LaunchError:
        """The exception for what a kernel noted."""
        found = self._assertions[failure[0] - 1]
        halves = [half & 0xFFFFFFFF for half in failure[1:]]
        numbers = [low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True)]
        values = [number - (1 << 64) if number >> 63 else number for number in numbers[: found.values]]
        return LaunchError(f"in {found.function}: {fill_in(found.message, values)}", loc=found.loc)
