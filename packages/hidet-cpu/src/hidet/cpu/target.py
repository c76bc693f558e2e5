"""The CPU target: thread IR to LLVM to machine code in this process."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from hidet.cache import KernelCache, source_hash
from hidet.context import CompileContext
from hidet.cpu.arch import CpuArch, arch_from_text, host_arch
from hidet.cpu.constants import processor_name, published_constants
from hidet.cpu.failures import NOTE_FAILURE, failure_symbols, noted_failures, raise_failure
from hidet.cpu.loader import LoadedCode, load_objects
from hidet.cpu.pool import pool_symbols, shared_pool
from hidet.cpu.toolchain import compile_assembly, toolchain_version
from hidet.cpu.workers import compile_objects
from hidet.errors import CompileError
from hidet.ir.func import Module
from hidet.target import Binary, CheckedModule, CompileJob, KernelUsage
from hidet.target.constants import DeviceConstants


class CpuTarget:
    """Implements hidet.target.Target for the machine this process runs on, or for another one.

    arch: the machine, or its name for `hidet.cpu.arch.arch_from_text` (OptionError if unknown); None is this one.
    """

    name = "cpu"
    device = "cpu"
    prefers_channels_last = True
    work_item: Literal["rows", "elements"] = "rows"
    memory = None

    def __init__(self, arch: CpuArch | str | None = None) -> None:
        self.cpu = arch_from_text(arch) if isinstance(arch, str) else arch or host_arch()

    @property
    def arch(self) -> str:
        """Triple, processor and features: code runs only where all of them are the same."""
        return f"{self.cpu.triple} {self.cpu.name} {self.cpu.features}"

    def refusal(self, arch: str) -> str | None:
        """Why code for the `arch` of a CPU target cannot run on this machine: system, or features that it lacks."""
        triple, name, features = [*arch.split(" "), "", ""][:3]
        host = host_arch()
        if triple != host.triple:
            return f"it is code for {triple}, this machine is {host.triple}"
        lacking = [part[1:] for part in features.split(",") if part.startswith("+") and not host.has(part[1:])]
        return f"it is code for {name}, and this {host.name} lacks {', '.join(lacking)}" if lacking else None

    @property
    def vector_bits(self) -> int:
        """Widest SIMD register worth using."""
        return self.cpu.vector_bits

    def compile(self, jobs: Iterable[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        """Machine code of each module, in order; modules are printed while earlier ones are compiled."""
        from hidet.cpu.codegen import emit_module

        names: list[str] = []

        def texts() -> Iterator[tuple[str, int]]:
            for job in jobs:
                names.append(job.name)
                yield emit_module(job.module, self.cpu), job.effort

        objects = compile_objects(texts(), self.cpu, progress)
        return [Binary(name, data) for name, data in zip(names, objects, strict=True)]

    def usage(self, binary: Binary) -> Mapping[str, KernelUsage]:
        """Nothing: registers of a CPU are no resource that threads share."""
        return {}

    def check_bounds(self, module: Module) -> CheckedModule:
        """Assertions before each access: the call ends there."""
        from hidet.passes.program.assert_bounds import assert_bounds

        return CheckedModule(replace(module, functions=tuple(map(assert_bounds, module.functions))))

    def source(self, module: Module) -> str:
        """LLVM IR before optimisation."""
        from hidet.cpu.codegen import emit_module

        return emit_module(module, self.cpu)

    def listings(self, job: CompileJob) -> Iterator[tuple[str, str]]:
        """LLVM IR before optimisation (.ll), and the machine's assembly (.s)."""
        text = self.source(job.module)
        yield ".ll", text
        yield ".s", compile_assembly(text, self.cpu, job.effort)

    def load(
        self,
        binaries: Sequence[Binary],
        cache: KernelCache | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> CpuCode:
        """Link binaries with the thread pool, whose machine code is kept in `cache`, and with `symbols`.

        CompileError when they are for a machine whose code cannot run on this one.
        """
        refusal = None if self.cpu == host_arch() else self.refusal(self.arch)
        if refusal is not None:
            raise CompileError(
                f"the compiled graph cannot run here: {refusal}", hint='target="cpu" compiles for this machine'
            )
        return CpuCode(
            load_objects([b.data for b in binaries], {**pool_symbols(cache), **failure_symbols(), **(symbols or {})})
        )

    def device_name(self) -> str:
        """This machine's processor."""
        return processor_name()

    def published_constants(self) -> DeviceConstants:
        """Those of a usual machine with such a processor."""
        return published_constants(self.cpu)

    def measure_constants(self, ctx: CompileContext) -> DeviceConstants:
        """This machine's."""
        from hidet.cpu.measure import measure_cpu

        return measure_cpu(self.cpu, ctx)

    def fingerprint(self) -> Mapping[str, str]:
        """Versions that decide the machine code."""
        return {
            "llvm": toolchain_version(),
            "core_sources": source_hash("hidet"),
            "cpu_sources": source_hash("hidet.cpu"),
        }


def cpu_target(ctx: CompileContext) -> CpuTarget:
    """The target of a compilation as what the rules of this pack know it to be."""
    assert isinstance(ctx.target, CpuTarget)
    return ctx.target


class CpuCode:
    """Loaded machine code; functions are bound to the thread pool they run on."""

    def __init__(self, code: LoadedCode) -> None:
        self._code = code

    def address(self, name: str) -> int:
        """Address of a global function."""
        return self._code.address(name)

    @property
    def raise_failure(self) -> Callable[[], None] | None:
        """Raises LaunchError for an assertion that failed in this thread's last call of the code; None where the code
        has no assertions. Callers of addresses call it after each call."""
        return raise_failure if NOTE_FAILURE in self._code.imported else None

    def function(self, name: str, threads: int | None) -> Callable[[int], object]:
        """`void name(pool, table)` as a callable of the table's address. `threads` None uses the affinity mask."""
        pool = shared_pool(threads)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        call = functools.partial(prototype(self._code.address(name)), pool.address)
        if self.raise_failure is None:
            return call

        noted = noted_failures()

        def checked(table: int) -> None:
            call(table)
            if noted.failure is not None:
                raise_failure()

        return checked
