"""OpenCL C to programs of a device, by the compiler in its driver."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hidet.errors import CompileError
from hidet.opencl.devices import Device
from hidet.opencl.driver import Program

if TYPE_CHECKING:
    from hidet.gpu.codegen.source import KernelSource

_ERROR = re.compile(r"^[^\n]*?:(\d+):\d+: (?:fatal )?error: (.*)$", re.MULTILINE)
_VERSION = re.compile(r"OpenCL (?:C )?(\d)\.(\d)")
_CORRECTLY_ROUNDED = 1 << 7
"""CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT"""


def compiler_options(device: Device) -> str:
    """What the driver's compiler is told: the newest language that it has, and exact quotients where it can."""
    found = _VERSION.match(device.handle.opencl_c_version)
    newest = (1, 2) if found is None else (int(found[1]), int(found[2]))
    language = next((name for least, name in (((3, 0), "CL3.0"), ((2, 0), "CL2.0")) if newest >= least), "CL1.2")
    exact = device.facts["single_fp_config"] & _CORRECTLY_ROUNDED
    return f"-cl-std={language}{' -cl-fp32-correctly-rounded-divide-sqrt' if exact else ''}"


def compile_program(source: KernelSource, device: Device) -> bytes:
    """The device's program. CompileError with the line, and its place in the user's script."""
    program = Program.from_source(source.text, device.context.int_ptr, device.handle.int_ptr)
    if not program.build(compiler_options(device)):
        raise _refusal(source, program.log())
    return program.binary()


def load_program(binary: bytes, device: Device) -> Program:
    """A program ready for its kernels to be taken. CompileError where the driver does not take it any more."""
    program = Program.from_binary(binary, device.context.int_ptr, device.handle.int_ptr)
    if not program.build(""):
        raise CompileError(
            f"the driver of {device.name} refuses a program that it made: {program.log()[:1000]}",
            hint="`hidet cache clear` removes what another driver made; compile saved models again",
        )
    return program


def compile_programs(
    sources: Sequence[KernelSource], device: Device, progress: Callable[[int, int], None] | None = None
) -> list[bytes]:
    """The programs of many sources, in order, compiled by threads.

    progress: called with (sources done, sources in all).
    """
    done: list[bytes] = []
    with ThreadPoolExecutor(max(1, min(len(sources), len(os.sched_getaffinity(0))))) as threads:
        for binary in threads.map(lambda source: compile_program(source, device), sources):
            done.append(binary)
            if progress is not None:
                progress(len(done), len(sources))
    return done


def _refusal(source: KernelSource, log: str) -> CompileError:
    names = ", ".join(kernel.name for kernel in source.kernels)
    found = _ERROR.search(log)
    if found is None:
        return CompileError(f"the OpenCL driver refuses {names}: {log[:2000]}")
    row, lines = int(found[1]), source.text.splitlines()
    text = lines[row - 1].strip() if 0 < row <= len(lines) else ""
    return CompileError(f"the OpenCL driver refuses {names}: {found[2]}, in `{text}`", loc=source.locs.get(row))
