"""The OpenCL target: thread IR to OpenCL C to programs of a driver, and launches from compiled host code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hidet.cache import source_hash
from hidet.errors import LaunchError
from hidet.opencl.codegen.assertions import Assertion, note_assertions, pass_bytes
from hidet.opencl.codegen.module import emit_module
from hidet.opencl.codegen.warps import LANES, NONE
from hidet.opencl.compiler import compile_programs, compiler_options
from hidet.opencl.container import CompiledModule, pack, unpack
from hidet.opencl.devices import Device, find_device
from hidet.opencl.host_code import host_module
from hidet.opencl.loader import load_modules
from hidet.opencl.memory import SvmMemory
from hidet.passes.program.assert_bounds import assert_bounds
from hidet.plugins.host import load_registry
from hidet.target import Binary, CheckedModule, CompileJob, KernelUsage

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.gpu.codegen.source import KernelSource
    from hidet.ir.func import Module
    from hidet.opencl.loader import OpenCLCode
    from hidet.target import Target

_MOST_THREADS = 1024
"""Of a block: kernels that order records are written for as many, and hardware of GPUs has no more."""
_GPU_THREADS = 2048
"""Threads that a compute unit of a GPU holds at once, which OpenCL does not tell."""


class OpenCLTarget:
    """Implements hidet.target.GpuTarget for one device: in the host's memory where kernels read that, else in its own.

    machine: the device's number ("1"), or a part of its name or its platform's ("intel"); None is the first GPU, or the
    first device. Without a device LaunchError is raised, by what asks for it.
    """

    name = "opencl"
    vector_bits = 128
    prefers_channels_last = True
    work_item: Literal["rows", "elements"] = "elements"
    multiprocessor_registers = 1 << 16

    def __init__(self, machine: str | None = None) -> None:
        self._machine = machine

    @functools.cached_property
    def opened(self) -> Device:
        """The device. LaunchError where there is none, or one without memory that has addresses."""
        device = find_device(self._machine)
        if not device.has_svm:
            raise LaunchError(
                f"{device} has no shared virtual memory (SVM of OpenCL 2.0)",
                hint="opencl:NUMBER names another device; `hidet doctor` lists them",
            )
        return device

    @property
    def device(self) -> str:
        """The host, or the device where it has memory of its own: "opencl:0"."""
        return "cpu" if self.memory is None else self.memory.name

    @functools.cached_property
    def memory(self) -> SvmMemory | None:
        """The device's own; None where its kernels read the host's."""
        return None if self.opened.has_system_svm else SvmMemory(self.opened)

    @property
    def warp_size(self) -> int:
        """Lanes that exchange values; 1 where the device has no 32 that do."""
        return 1 if self.opened.warps is NONE else LANES

    @property
    def multiprocessors(self) -> int:
        """Compute units."""
        return self.opened.facts["max_compute_units"]

    @property
    def block_threads(self) -> int:
        """Work-items of a work-group."""
        return min(self.opened.facts["max_work_group_size"], _MOST_THREADS)

    @property
    def block_shared_memory(self) -> int:
        """Bytes of local memory of a work-group."""
        return self.opened.facts["local_mem_size"]

    @property
    def multiprocessor_threads(self) -> int:
        """Work-items that a compute unit holds at once: of a processor, one work-group's."""
        return max(_GPU_THREADS, self.block_threads) if self.opened.is_gpu else self.block_threads

    @property
    def multiprocessor_shared_memory(self) -> int:
        """As much as one work-group may have, which is all that OpenCL tells."""
        return self.block_shared_memory

    def has(self, feature: str) -> bool:
        """Whether the device's compiler takes an extension: "cl_khr_fp16"."""
        return feature in self.opened.extensions

    @property
    def arch(self) -> str:
        """Platform, device and driver, and the processor that host code is for."""
        device = self.opened
        return f"{device.platform}, {device.name}, {device.driver}, host {self._host.arch}"

    def refusal(self, arch: str) -> str | None:
        """Programs run on the device, and with the driver, that they were made by."""
        own, _, _ = self.arch.partition(", host ")
        given, _, host = arch.partition(", host ")
        if given != own:
            return f"its kernels are for {given}, this device is {own}"
        return self._host.refusal(host)

    @functools.cached_property
    def _host(self) -> Target:
        """The target that compiles host functions."""
        make_target: Any = load_registry().target("cpu").resolve()
        made: Target = make_target()
        return made

    def compile(self, jobs: Iterable[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        """Programs and host objects of modules, in order; programs are compiled by threads, each on its own.

        CodegenError for what OpenCL does not have, CompileError for what the driver refuses.
        """
        jobs = tuple(jobs)
        lowered = [self._lower(job.module) for job in jobs]
        sources = [source for module in lowered for source in module.sources]
        programs = iter(compile_programs(sources, self.opened, progress) if sources else [])
        host_jobs = [
            CompileJob(job.name, module.host, effort=min(job.effort, 1))
            for job, module in zip(jobs, lowered, strict=True)
            if module.host is not None
        ]
        hosts = {binary.name: binary.data for binary in (self._host.compile(host_jobs) if host_jobs else [])}
        binaries = []
        for job, module in zip(jobs, lowered, strict=True):
            made = tuple(next(programs) for _ in module.sources)
            kernels = {
                fact.name: (n, fact.symbol) for n, source in enumerate(module.sources) for fact in source.kernels
            }
            compiled = CompiledModule(hosts.get(job.name), made, kernels, module.assertions)
            binaries.append(Binary(job.name, pack(compiled)))
        return binaries

    def usage(self, binary: Binary) -> Mapping[str, KernelUsage]:
        """Nothing: OpenCL does not tell of registers."""
        return {}

    def check_bounds(self, module: Module) -> CheckedModule:
        """Assertions before each access, which the call raises when its kernels have ended."""
        return CheckedModule(replace(module, functions=tuple(map(assert_bounds, module.functions))))

    def source(self, module: Module) -> str:
        """OpenCL C of each kernel."""
        return "\n".join(source.text for source in self._lower(module).sources)

    def listings(self, job: CompileJob) -> Iterator[tuple[str, str]]:
        """OpenCL C (.cl) of kernels, LLVM IR (.host.ll) and assembly (.host.s) of host functions."""
        lowered = self._lower(job.module)
        if lowered.sources:
            yield ".cl", "\n".join(source.text for source in lowered.sources)
        if lowered.host is not None:
            for ending, text in self._host.listings(CompileJob(job.name, lowered.host, effort=min(job.effort, 1))):
                yield f".host{ending}", text

    def _lower(self, module: Module) -> _Lowered:
        noting, assertions, asserting = note_assertions(module)
        kernels = [pass_bytes(f) for f in noting.functions if f.kind == "kernel"]
        others = tuple(f for f in noting.functions if f.kind != "kernel")
        # One source a kernel: threads compile them side by side, and no compiler can mistake one for another.
        # (Intel's runtime 2026.2 guards the next kernel of a source wrongly after one that has one item.)
        sources = tuple(
            emit_module(replace(noting, functions=(*others, kernel)), self.opened.warps) for kernel in kernels
        )
        return _Lowered(sources, assertions, host_module(module, asserting))

    def load(
        self,
        binaries: Sequence[Binary],
        cache: KernelCache | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> OpenCLCode:
        """Kernels on the device, and host functions that launch them. LaunchError where there is no device."""
        modules = [(binary.name, unpack(binary.data)) for binary in binaries]
        return load_modules(modules, self.opened, self._host, cache, symbols or {})

    def device_name(self) -> str:
        """The device's. LaunchError where there is none."""
        return self.opened.name

    def fingerprint(self) -> Mapping[str, str]:
        """What decides the machine code besides `arch`."""
        host = {f"host_{name}": value for name, value in self._host.fingerprint().items()}
        sources = {"gpu_sources": source_hash("hidet.gpu"), "opencl_sources": source_hash("hidet.opencl")}
        return {**host, **sources, "opencl_options": compiler_options(self.opened)}


@dataclass(frozen=True, slots=True, eq=False)
class _Lowered:
    """A module in the languages of its compilers: each kernel in OpenCL C, and host functions."""

    sources: tuple[KernelSource, ...]
    assertions: tuple[Assertion, ...]
    host: Module | None
