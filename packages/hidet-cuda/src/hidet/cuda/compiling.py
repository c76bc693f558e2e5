"""Modules as machine code: kernels as CUDA C++ and cubins, host functions as objects of a CPU target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hidet.cuda.arch import capability_of
from hidet.cuda.arch_checks import check_clusters, check_shared_memory, launches_of
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.container import CompiledModule, KernelRecord, pack
from hidet.cuda.host_code import host_module
from hidet.cuda.nvrtc import COMPILER_OPTIONS, compile_cubins, compile_ptx
from hidet.target import Binary, CompileJob

if TYPE_CHECKING:
    from hidet.gpu.codegen.source import KernelSource
    from hidet.ir.func import Function, Module
    from hidet.target import Target


def compile_jobs(
    jobs: Sequence[CompileJob],
    architecture: str,
    host_target: Target,
    progress: Callable[[int, int], None] | None = None,
) -> list[Binary]:
    """As `hidet.cuda.target.CudaTarget.compile`. host_target: compiles host functions."""
    for job in jobs:
        check_clusters(job.module, architecture)
    sources = [sources_of(job.module, architecture) for job in jobs]
    flat = [source for group in sources for source in group]
    cubins = iter(list(compile_cubins(flat, architecture, progress)) if flat else [])
    host_jobs: list[CompileJob] = []
    modules: list[CompiledModule] = []
    for job, group in zip(jobs, sources, strict=True):
        made = [next(cubins) for _ in group]
        shared = _shared_bytes(group)
        for source, cubin in zip(group, made, strict=True):
            for kernel in source.kernels:
                declared = kernel.shared_bytes + cubin.usage[kernel.symbol].shared_bytes
                check_shared_memory(job.module, kernel.name, declared, architecture)
        asking = _asking_for_shared(job.module)
        records = [
            KernelRecord(
                kernel.name,
                kernel.symbol,
                number,
                kernel.shared_bytes,
                cubin.usage[kernel.symbol].registers,
                cubin.usage[kernel.symbol].spill_bytes,
                kernel.name in asking,
            )
            for number, (source, cubin) in enumerate(zip(group, made, strict=True))
            for kernel in source.kernels
        ]
        modules.append(CompiledModule(None, tuple(cubin.data for cubin in made), tuple(records)))
        host = host_module(job.module, shared)
        if host is not None:
            host_jobs.append(_host_job(job, host))
    hosts = {binary.name: binary.data for binary in (host_target.compile(host_jobs) if host_jobs else [])}
    return [
        Binary(job.name, pack(CompiledModule(hosts.get(job.name), module.cubins, module.kernels)))
        for job, module in zip(jobs, modules, strict=True)
    ]


def sources_of(module: Module, architecture: str) -> list[KernelSource]:
    """The CUDA C++ of each kernel of a module."""
    kernels = [f for f in module.functions if f.kind == "kernel"]
    others = tuple(f for f in module.functions if f.kind != "kernel")
    capability = capability_of(architecture)
    emitted = [emit_module(replace(module, functions=(*others, kernel)), capability) for kernel in kernels]
    return [replace(source, options=_compiler_options(kernel)) for source, kernel in zip(emitted, kernels, strict=True)]


def listings_of(job: CompileJob, architecture: str, host_target: Target) -> Iterator[tuple[str, str]]:
    """As `hidet.cuda.target.CudaTarget.listings`."""
    sources = sources_of(job.module, architecture)
    if sources:
        yield ".cu", "\n".join(source.text for source in sources)
        yield ".ptx", "\n".join(compile_ptx(source, architecture) for source in sources)
    host = host_module(job.module, _shared_bytes(sources))
    if host is not None:
        for ending, text in host_target.listings(_host_job(job, host)):
            yield f".host{ending}", text


def _shared_bytes(sources: Sequence[KernelSource]) -> dict[str, int]:
    """What kernels need of shared memory beyond what they declare."""
    return {kernel.name: kernel.shared_bytes for source in sources for kernel in source.kernels}


def _host_job(job: CompileJob, host: Module) -> CompileJob:
    """The host functions of a module. Launches are straight-line code that gains nothing from optimisation."""
    return CompileJob(job.name, host, effort=min(job.effort, 1))


def _compiler_options(kernel: Function) -> tuple[str, ...]:
    """What a kernel says of CUDA's compiler."""
    options: Any = dict(kernel.attributes).get(COMPILER_OPTIONS, ())
    return tuple(options)


def _asking_for_shared(module: Module) -> frozenset[str]:
    """Kernels whose launches ask for shared memory beyond what the kernels declare."""
    return frozenset(launch.kernel for launch in launches_of(module) if launch.shared_bytes is not None)
