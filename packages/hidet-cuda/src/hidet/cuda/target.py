"""The CUDA target: thread IR to CUDA C++ to cubins, and launches from compiled host code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hidet.cache import source_hash
from hidet.cuda.arch import (
    BLOCK_THREADS,
    MULTIPROCESSOR_REGISTERS,
    WARP_SIZE,
    DeviceFacts,
    architecture_name,
    capability_of,
    has_feature,
    usual_facts,
)
from hidet.cuda.constants import published_constants
from hidet.cuda.container import unpack
from hidet.cuda.devices import properties
from hidet.cuda.loader import load_modules
from hidet.cuda.memory import memory_at
from hidet.cuda.nvrtc import toolchain_version
from hidet.plugins.host import load_registry
from hidet.target import Binary, CheckedModule, CompileJob, KernelUsage
from hidet.target.constants import DeviceConstants

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.context import CompileContext
    from hidet.cuda.loader import CudaCode
    from hidet.cuda.memory import CudaMemory
    from hidet.gpu.codegen.source import KernelSource
    from hidet.gpu.tile.kernel import TileKernel
    from hidet.gpu.tile.lowered import LoweredTiles
    from hidet.ir.func import Module
    from hidet.target import Target


class CudaTarget:
    """Implements hidet.target.GpuTarget for one CUDA device.

    machine: the number of the device ("1"), or the architecture to make code for ("sm_80"); None is the first device.
    With an architecture given, code can be compiled on a machine without a GPU; loading it needs one.
    """

    name = "cuda"
    vector_bits = 128
    prefers_channels_last = True
    work_item: Literal["rows", "elements"] = "elements"
    warp_size = WARP_SIZE
    block_threads = BLOCK_THREADS
    multiprocessor_registers = MULTIPROCESSOR_REGISTERS
    compiles_apart = True
    aligns_tensors = True

    def __init__(self, machine: str | None = None) -> None:
        is_number = machine is not None and machine.isdigit()
        self.index = int(machine) if machine is not None and is_number else 0
        self._arch = None if is_number else machine
        if self._arch is not None:
            capability_of(self._arch)

    def __getstate__(self) -> dict[str, object]:
        """What a process has to know that compiles for the device, which it does not open."""
        asked = {"architecture": self.architecture, "facts": self.facts}
        return {"index": self.index, "_arch": self._arch, **asked}

    @property
    def device(self) -> str:
        """The device, "cuda:0"."""
        return f"cuda:{self.index}"

    @functools.cached_property
    def architecture(self) -> str:
        """The exact architecture, "sm_90a". LaunchError where it is asked of a device that is not there."""
        if self._arch is not None:
            return self._arch
        device = self.memory.device
        name = architecture_name(*device.driver.capability(device.handle))
        capability_of(name)
        return name

    @functools.cached_property
    def facts(self) -> DeviceFacts:
        """The device's or, where code is made for an architecture, those of a usual one."""
        if self._arch is not None:
            return usual_facts(capability_of(self._arch))
        found = properties(self.index)
        return DeviceFacts(
            found.multiprocessors,
            found.block_shared_memory,
            found.multiprocessor_threads,
            found.multiprocessor_shared_memory,
        )

    @property
    def multiprocessors(self) -> int:
        """Streaming multiprocessors."""
        return self.facts.multiprocessors

    @property
    def block_shared_memory(self) -> int:
        """Bytes of shared memory that a block can ask for."""
        return self.facts.block_shared_memory

    @property
    def multiprocessor_threads(self) -> int:
        """Threads that a multiprocessor holds at once."""
        return self.facts.multiprocessor_threads

    @property
    def multiprocessor_shared_memory(self) -> int:
        """Bytes of shared memory of a multiprocessor, with what the system keeps of it for each block."""
        return self.facts.multiprocessor_shared_memory

    def has(self, feature: str) -> bool:
        """Whether code for the architecture may use a feature: "wgmma", "stmatrix", "clusters", "f8" (conversions),
        "async-copy" or "programmatic-dependent-launch". With "wgmma", which sm_90a alone has, go tensor maps and
        registers that move between warp groups: what warp-specialized kernels are made of."""
        return has_feature(self.architecture, feature)

    def lower_tiles(self, kernel: TileKernel, lowering: str | None = None) -> LoweredTiles:
        """A kernel in tiles by the lowering of this name, or by the fastest that fits; see
        `hidet.cuda.tile.lowering`."""
        from hidet.cuda.tile.lowering import lower_tiles

        return lower_tiles(kernel, self, lowering)

    @property
    def arch(self) -> str:
        """GPU architecture, and the processor that host code is for."""
        return f"{self.architecture}, host {self._host.arch}"

    def refusal(self, arch: str) -> str | None:
        """Cubins run on the architecture they were made for alone."""
        own, _, _ = self.arch.partition(", host ")
        given, _, host = arch.partition(", host ")
        if given != own:
            return f"its kernels are for {given}, this device is {own}"
        return self._host.refusal(host)

    @functools.cached_property
    def memory(self) -> CudaMemory:
        """Memory of the device. LaunchError where it is not there."""
        return memory_at(self.index)

    @functools.cached_property
    def _host(self) -> Target:
        """The target that compiles host functions: for this processor, or, where code is made for a GPU that need not
        be here, for most of its kind. They launch kernels, and lose nothing by that."""
        make_target: Any = load_registry().target("cpu").resolve()
        made: Target = make_target() if self._arch is None else make_target("common")
        return made

    def compile(self, jobs: Iterable[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        """Cubins and host objects of modules, in order; kernels are compiled by threads, each on its own,
        while later ones are written.

        CodegenError for what the architecture does not have, CompileError for what CUDA's compiler refuses.
        """
        from hidet.cuda.compiling import compile_jobs

        return compile_jobs(jobs, self.architecture, self._host, progress)

    def usage(self, binary: Binary) -> Mapping[str, KernelUsage]:
        """Registers, spills and shared memory, as the assembler counted them."""
        return {
            kernel.name: KernelUsage(kernel.registers, kernel.spill_bytes, kernel.shared_bytes)
            for kernel in unpack(binary.data).kernels
        }

    def check_bounds(self, module: Module) -> CheckedModule:
        """Kernels note their first access outside of an array, which the call raises when they have ended."""
        from hidet.gpu.check_bounds import check_bounds

        return check_bounds(module)

    def source(self, module: Module) -> str:
        """CUDA C++ of each kernel."""
        return "\n".join(source.text for source in self.sources(module))

    def listings(self, job: CompileJob) -> Iterator[tuple[str, str]]:
        """CUDA C++ (.cu) and PTX (.ptx) of kernels, LLVM IR (.host.ll) and assembly (.host.s) of host functions."""
        from hidet.cuda.compiling import listings_of

        return listings_of(job, self.architecture, self._host)

    def sources(self, module: Module) -> list[KernelSource]:
        """The CUDA C++ of each kernel of a module."""
        from hidet.cuda.compiling import sources_of

        return sources_of(module, self.architecture)

    def load(
        self,
        binaries: Sequence[Binary],
        cache: KernelCache | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> CudaCode:
        """Kernels on the device, and host functions that launch them. LaunchError where there is no device."""
        modules = [(binary.name, unpack(binary.data)) for binary in binaries]
        return load_modules(modules, self.memory.device, self._host, cache, symbols or {})

    def device_name(self) -> str:
        """The device's, "NVIDIA H200". LaunchError where it is not there."""
        return properties(self.index).name

    def published_constants(self) -> DeviceConstants:
        """Those of a usual device of the architecture, with as many multiprocessors as `multiprocessors` says."""
        capability = capability_of(self.architecture)
        return published_constants(capability, self.multiprocessors, self.multiprocessor_shared_memory)

    def measure_constants(self, ctx: CompileContext) -> DeviceConstants:
        """The device's. LaunchError where it is not there."""
        from hidet.cuda.measure import measure_gpu

        return measure_gpu(self, ctx)

    def fingerprint(self) -> Mapping[str, str]:
        """Versions that decide the machine code."""
        host = {f"host_{name}": value for name, value in self._host.fingerprint().items()}
        sources = {"gpu_sources": source_hash("hidet.gpu"), "cuda_sources": source_hash("hidet.cuda")}
        return {**host, "nvrtc": toolchain_version(), **sources}
