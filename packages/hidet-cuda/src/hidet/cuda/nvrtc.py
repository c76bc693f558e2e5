"""CUDA C++ to machine code, in this process, through NVRTC.

Machine code is made for the exact architecture: PTX of a newer toolkit is refused by older drivers, cubins of the same
major version are not. NVRTC is thread-safe and its calls release the interpreter's lock.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hidet.cuda.arch import unknown_architecture
from hidet.cuda.cubin import read_resources
from hidet.errors import CompileError

if TYPE_CHECKING:
    from hidet.gpu.codegen.source import KernelSource

_OPTIONS = (
    "--std=c++17",
    # Contraction to multiply-adds only; nothing that changes infinities, NaNs or denormals.
    "--fmad=true",
    "--ptxas-options=-v",
    "--ptxas-options=--warn-on-spills",
    # NVRTC's own cache has no log; what hidet compiled before is in hidet's cache.
    "--no-cache",
)
_LEAST_RENAMED = 20
"""Characters of a kernel's name from which on nothing else in machine code is like it."""
COMPILER_OPTIONS = "compiler_options"
"""Key of an attribute of kernels: options of CUDA's compiler, beside those of all kernels."""
_ERROR = re.compile(r"^[^\n(]*\((\d+)\): (?:error|catastrophic error):? ?(.*)$", re.MULTILINE)
_ASSEMBLER_ERROR = re.compile(r"ptxas [^\n]*, line (\d+); error\s*: ([^\n]*)")
_LINE_MARK = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s")
_KERNEL = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")
"""Of a kernel that says nothing about blocks that a multiprocessor holds."""
_SERIOUS = re.compile(r"\bC75\d\d\b")


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What a compiled kernel takes: registers a thread, bytes of local memory (stack, spills) a thread, and static
    shared memory a block."""

    registers: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code, what its kernels take, and remarks of the assembler that mean lost speed (C75xx)."""

    data: bytes
    usage: dict[str, KernelUsage]
    remarks: tuple[str, ...] = ()

    @property
    def spill_bytes(self) -> int:
        """What all kernels together spill."""
        return sum(usage.spill_bytes for usage in self.usage.values())


def compile_cubin(source: KernelSource, arch: str) -> Cubin:
    """Machine code for `arch` ("sm_80", "sm_90a"). CompileError with the line and its place in the user's script,
    OptionError for an architecture that NVRTC does not know.

    The assembler spills registers of a block of 1024 threads to let a multiprocessor hold two of them; where it did,
    the kernel is compiled once more with all registers that one block may have.
    """
    made = _compile(source, arch)
    if not made.spill_bytes or _LAUNCH_BOUNDS.search(source.text) is None:
        return made
    alone = _compile(replace(source, text=_LAUNCH_BOUNDS.sub(r"__launch_bounds__(\1, 1)", source.text)), arch)
    return alone if alone.spill_bytes < made.spill_bytes else made


def _compile(source: KernelSource, arch: str) -> Cubin:
    nvrtc = _nvrtc()
    with _compiled(nvrtc, source, arch, _OPTIONS) as (program, is_accepted, log):
        if is_accepted:
            data = _read(nvrtc, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            return Cubin(data, kernel_usage(data, log), tuple(sorted(set(_SERIOUS.findall(log)))))
    unknown = unknown_architecture(arch, _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs()))
    if unknown is not None:
        raise unknown
    raise _refusal_by_assembler(nvrtc, source, arch) if "ptxas" in log else _refusal(source, arch, log)


def compile_ptx(source: KernelSource, arch: str) -> str:
    """What the assembler gets for `arch`, to be read. CompileError with the line and its place in the user's script."""
    nvrtc = _nvrtc()
    with _compiled(nvrtc, source, arch.replace("sm_", "compute_"), _OPTIONS) as (program, is_accepted, log):
        if is_accepted:
            return _text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    raise _refusal(source, arch, log)


@contextmanager
def _compiled(nvrtc: Any, source: KernelSource, arch: str, options: Sequence[str]) -> Iterator[tuple[Any, bool, str]]:
    """A program that was compiled, whether it was accepted, and the compiler's log."""
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.text.encode(), b"kernel.cu", 0, [], []))
    given = (f"--gpu-architecture={arch}", *options, *source.options)
    encoded = [option.encode() for option in given]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        yield program, status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


class CubinBatch:
    """Sources that threads compile while more come in; those that are equal but for their kernel's name are compiled
    once. A context manager: what has not begun when it is left is given up.

    arch: "sm_80", "sm_90a". progress: called in the thread of `submit` and `finish` with (different sources done,
    different sources known so far).
    """

    def __init__(self, arch: str, progress: Callable[[int, int], None] | None = None) -> None:
        self._arch = arch
        self._progress = progress
        self._threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._sources: list[tuple[object, KernelSource]] = []
        self._first: dict[object, KernelSource] = {}
        self._made: dict[object, Future[Cubin]] = {}
        self._ended: list[Cubin] = []
        self._reported = 0

    def __enter__(self) -> CubinBatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def submit(self, source: KernelSource) -> None:
        """Have a source compiled."""
        key = _content(source)
        self._sources.append((key, source))
        if key not in self._first:
            self._first[key] = source
            self._made[key] = self._threads.submit(self._compile, source)
        self._report_progress()

    def finish(self) -> list[Cubin]:
        """Machine code of all sources, in order. CompileError for the first that is refused."""
        for made in self._made.values():
            made.result()
            self._report_progress()
        return [_renamed(self._made[key].result(), self._first[key], source) for key, source in self._sources]

    def _compile(self, source: KernelSource) -> Cubin:
        """What a thread does."""
        made = compile_cubin(source, self._arch)
        self._ended.append(made)
        return made

    def _report_progress(self) -> None:
        ended = len(self._ended)
        if self._progress is not None and ended > self._reported:
            self._reported = ended
            self._progress(ended, len(self._made))


def _content(source: KernelSource) -> object:
    """What sources of equal machine code have in common: all but a kernel's name, if that is like no other text, and as
    long, so that one takes the other's place."""
    symbols = [kernel.symbol for kernel in source.kernels]
    if len(symbols) != 1 or len(symbols[0]) < _LEAST_RENAMED:
        return source.text, source.options
    return source.text.replace(symbols[0], "\0" * len(symbols[0])), source.options


def _renamed(cubin: Cubin, of: KernelSource, to: KernelSource) -> Cubin:
    """Machine code of a source, as another one with the same `_content` has it."""
    (old, *_), (new, *_) = ([kernel.symbol for kernel in source.kernels] for source in (of, to))
    if old == new:
        return cubin
    usage = {new if name == old else name: taken for name, taken in cubin.usage.items()}
    return Cubin(cubin.data.replace(old.encode(), new.encode()), usage, cubin.remarks)


def kernel_usage(cubin: bytes, log: str) -> dict[str, KernelUsage]:
    """What each kernel takes, from its machine code; the bytes of its spills stand in the assembler's log alone.

    Of a kernel that the log does not mention, all local memory counts as spilled.
    """
    spills: dict[str, int] = {}
    name = ""
    for line in log.splitlines():
        if match := _KERNEL.search(line):
            name = match[1]
        elif match := _SPILLS.search(line):
            spills[name] = int(match[1]) + int(match[2])
    return {
        name: KernelUsage(taken.registers, taken.stack_bytes, spills.get(name, taken.stack_bytes), taken.shared_bytes)
        for name, taken in read_resources(cubin).items()
    }


@functools.cache
def toolchain_version() -> str:
    """The version of NVRTC: part of every kernel's cache key."""
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    return f"NVRTC {major}.{minor}" if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else "NVRTC"


@functools.cache
def _nvrtc() -> Any:
    """The bindings. CompileError when the library is missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:
        raise CompileError(
            f"CUDA's run-time compiler cannot be loaded: {error}",
            hint="install the packages nvidia-cuda-nvrtc and cuda-bindings of one CUDA major version",
        ) from error
    return nvrtc


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"CUDA's run-time compiler failed: {status.name}")
    return values[0] if values else None


def _text(nvrtc: Any, program: Any, size_of: Any, read: Any) -> str:
    return _read(nvrtc, program, size_of, read).rstrip(b"\x00").decode(errors="replace")


def _read(nvrtc: Any, program: Any, size_of: Any, read: Any) -> bytes:
    """Bytes that NVRTC writes into memory of ours: a bytearray, because Python shares objects that cannot change."""
    buffer = bytearray(_checked(nvrtc, size_of(program)))
    _checked(nvrtc, read(program, buffer))
    return bytes(buffer)


def _refusal_by_assembler(nvrtc: Any, source: KernelSource, arch: str) -> CompileError:
    """The assembler counts lines of PTX. With line information each of them follows the mark of its line here."""
    options = (*_OPTIONS, "--generate-line-info")
    with _compiled(nvrtc, source, arch, options) as (_, _, log):
        pass
    with _compiled(nvrtc, source, arch.replace("sm_", "compute_"), options) as (program, is_accepted, _):
        ptx = _text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if is_accepted else ""
    return _refusal(source, arch, with_source_line(log, ptx))


def with_source_line(log: str, ptx: str) -> str:
    """The assembler's log with its first error as an error of the CUDA C++ that it comes from; the log as it is where
    PTX does not tell."""
    found = _ASSEMBLER_ERROR.search(log)
    if found is None:
        return log
    marks = [match for line in ptx.splitlines()[: int(found[1])] if (match := _LINE_MARK.search(line))]
    return f"kernel.cu({marks[-1][1]}): error: {found[2].strip()}\n{log}" if marks else log


def _refusal(source: KernelSource, arch: str, log: str) -> CompileError:
    names = [kernel.name for kernel in source.kernels]
    kernels = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    hint = "this is a bug of the kernel's script, of the schedule or of the code generator; HIDET_DUMP keeps the text"
    found = _ERROR.search(log)
    if found is None:
        return CompileError(f"CUDA's compiler refused {kernels} for {arch}: {log.strip()[-2000:]}", hint=hint)
    number, problem = int(found[1]), found[2]
    lines = source.text.split("\n")
    line = lines[number - 1].strip() if number <= len(lines) else ""
    return CompileError(
        f"CUDA's compiler refused {kernels} for {arch}, line {number}: {problem}\n  {line}",
        loc=source.locs.get(number),
        hint=hint,
    )
