"""Modules as machine code: kernels as CUDA C++ and cubins, host functions as objects of a CPU target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hidet.cuda.arch import capability_of
from hidet.cuda.arch_checks import check_clusters, check_shared_memory, launches_of
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.container import CompiledModule, KernelRecord, pack
from hidet.cuda.host_code import host_module
from hidet.cuda.nvrtc import COMPILER_OPTIONS, CubinBatch, compile_ptx
from hidet.target import Binary, CompileJob

if TYPE_CHECKING:
    from hidet.cuda.nvrtc import Cubin
    from hidet.gpu.codegen.source import KernelSource
    from hidet.ir.func import Function, Module
    from hidet.target import Target


@dataclass(frozen=True, slots=True)
class _Written:
    """A job and its kernels as CUDA C++."""

    job: CompileJob
    sources: tuple[KernelSource, ...]


def compile_jobs(
    jobs: Iterable[CompileJob],
    architecture: str,
    host_target: Target,
    progress: Callable[[int, int], None] | None = None,
) -> list[Binary]:
    """As `hidet.cuda.target.CudaTarget.compile`. host_target: compiles host functions."""
    written: list[_Written] = []
    with CubinBatch(architecture, progress) as batch:
        # Kernels go to threads as they are written; LLVM gets host functions meanwhile.
        host_jobs = _written_jobs(jobs, architecture, batch, written)
        hosts = {binary.name: binary.data for binary in host_target.compile(host_jobs)}
        cubins = iter(batch.finish())
    binaries = []
    for entry in written:
        own = tuple(next(cubins) for _ in entry.sources)
        records = _records(entry, own, architecture)
        compiled = CompiledModule(hosts.get(entry.job.name), tuple(cubin.data for cubin in own), records)
        binaries.append(Binary(entry.job.name, pack(compiled)))
    return binaries


def _written_jobs(
    jobs: Iterable[CompileJob], architecture: str, batch: CubinBatch, written: list[_Written]
) -> Iterator[CompileJob]:
    """The host functions of each job, once its kernels are on their way through `batch`; adds to `written`."""
    for job in jobs:
        check_clusters(job.module, architecture)
        sources = sources_of(job.module, architecture)
        for source in sources:
            batch.submit(source)
        written.append(_Written(job, tuple(sources)))
        host = host_module(job.module, _shared_bytes(sources))
        if host is not None:
            yield _host_job(job, host)


def _records(entry: _Written, cubins: Sequence[Cubin], architecture: str) -> tuple[KernelRecord, ...]:
    """What is known of a job's kernels. CodegenError for one with more shared memory than a block can have."""
    module = entry.job.module
    asking = _asking_for_shared(module)
    records = []
    for number, (source, cubin) in enumerate(zip(entry.sources, cubins, strict=True)):
        for kernel in source.kernels:
            usage = cubin.usage[kernel.symbol]
            check_shared_memory(module, kernel.name, kernel.shared_bytes + usage.shared_bytes, architecture)
            records.append(
                KernelRecord(
                    kernel.name,
                    kernel.symbol,
                    number,
                    kernel.shared_bytes,
                    usage.registers,
                    usage.spill_bytes,
                    kernel.name in asking,
                )
            )
    return tuple(records)


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
    """The host functions of a module. Launches are straight-line code: to optimise it takes ten times as long as to
    translate it, and saves nothing that counts beside the launches."""
    return CompileJob(job.name, host, effort=0)


def _compiler_options(kernel: Function) -> tuple[str, ...]:
    """What a kernel says of CUDA's compiler."""
    options: Any = dict(kernel.attributes).get(COMPILER_OPTIONS, ())
    return tuple(options)


def _asking_for_shared(module: Module) -> frozenset[str]:
    """Kernels whose launches ask for shared memory beyond what the kernels declare."""
    return frozenset(launch.kernel for launch in launches_of(module) if launch.shared_bytes is not None)
