"""What a target must provide: an architecture, compilation of modules, and loading of what was compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from hidet.errors import PluginError

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.errors import LaunchError
    from hidet.ir.func import Module


@dataclass(frozen=True, slots=True)
class Binary:
    """Compiled code of one module, under the name of its job."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class CompileJob:
    """A module to compile under a name; `effort` is an optimisation level, 0 for code that costs nothing to run."""

    name: str
    module: Module
    effort: int = 3


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What a kernel takes: registers a thread, bytes a thread that did not fit into registers, and shared memory a
    block beyond what it declares, which the launch asks for."""

    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class CheckedModule:
    """A module that checks its indices.

    words: how many i32 words, all zero, its host functions take in memory of the device, by a pointer behind their own
    parameters; 0 where calls end by themselves. error: what such words of a finished call tell of, None for nothing.
    """

    module: Module
    words: int = 0
    error: Callable[[Sequence[int]], LaunchError | None] = lambda words: None


class DeviceWork(Protocol):
    """Recorded work of a device that is put into a stream as one launch."""

    @property
    def kernels(self) -> int:
        """How many launches were recorded."""

    def launch(self, stream: int) -> None:
        """Put the work into a stream once."""


class DeviceMemory(Protocol):
    """Memory of a device that the host cannot read or write."""

    @property
    def name(self) -> str:
        """Name of the device, as torch has it: "cuda:0"."""

    @property
    def description(self) -> str:
        """The device's model and the clocks that are known of it, for people: "NVIDIA H200, at most 1980 MHz"."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of the largest cache between memory and processors, which repeated calls on the same tensors read."""

    @property
    def can_capture(self) -> bool:
        """Whether work can be recorded, to be launched again: `capture` is called for no other device."""

    def upload(self, array: Any) -> tuple[object, int]:
        """A copy of a numpy array: its owner, which keeps it alive, and its address."""

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Let memory at an address hold the same byte everywhere, before what is put into the default stream from now
        on reads it."""

    def adapter(self) -> Any:
        """A `hidet.runtime.adapter.CheckedAdapter` for arrays in memory of its own, and those of other libraries that
        share theirs. Such an array has a method `numpy`, which gives a copy on the host."""

    def place(self, array: Any) -> Any:
        """A copy of a numpy array as an array of that adapter, strides and all."""

    def download(self, array: Any) -> Any:
        """The elements of an array of that adapter as a flat numpy array, in the order in which they lie in memory."""

    def in_stream(self, stream: int) -> Any:
        """A `hidet.runtime.memory.Memory` whose operations wait for the work put into a stream before."""

    def is_capturing(self, stream: int) -> bool:
        """Whether work put into a stream is recorded by somebody else now."""

    def keep_for_graph(self, stream: int, owner: object) -> None:
        """Keep an object as long as the graph that a stream is recorded into by somebody else can be replayed."""

    def capture(self, run: Callable[[int], None]) -> DeviceWork:
        """What `run` puts into the stream it is given, recorded instead of done."""

    def time(self, run: Callable[[int], object]) -> float:
        """Seconds by the device's own clock that it takes for what `run` puts into the stream it is given; waits for
        it."""

    def finish(self, stream: int) -> None:
        """Wait until the work in a stream is done. The error of the kernel that failed, where one did."""

    def synchronize(self) -> None:
        """Wait until all work on the device is done, in whatever streams."""


class LoadedCode(Protocol):
    """Code in memory, ready to be called; it stays valid while this object lives."""

    @property
    def raise_failure(self) -> Callable[[], None] | None:
        """For callers of addresses, after each call: raises LaunchError where an assertion has failed in it.

        None where the code has no assertions that the host learns of. Callables of `function` do this themselves.
        """

    def address(self, name: str) -> int:
        """Address of a host function."""

    def function(self, name: str, threads: int | None) -> Callable[..., object]:
        """A segment as a callable of the slot table; `threads` None uses every CPU allowed.

        The table is given by its address, as a ctypes array, or as bytes where the code only reads it. Of a target with
        memory of its own it takes the handle of a stream besides, and returns once the work is in it.
        """


class Target(Protocol):
    """A kind of device and how to make code for it.

    A target that goes through pickle, and compiles as before in another process on this machine, may have an attribute
    `compiles_apart = True`: child processes compile modules of large graphs then (`hidet.compiler.workers`).

    One with memory of its own may have an attribute `aligns_tensors = True`, where kernels read several elements at
    once: inputs of a call that nothing overwrites are copied where they do not begin at a multiple of 16 bytes, so that
    kernels for tensors that begin anywhere are not needed.
    """

    @property
    def name(self) -> str:
        """Registered name: "cpu", "cuda"."""

    @property
    def device(self) -> str:
        """The device that tensors of compiled graphs lie on, as frameworks spell it: "cpu", "cuda:0"."""

    @property
    def arch(self) -> str:
        """What decides whether compiled code runs: part of every cache key and of saved artifacts."""

    def refusal(self, arch: str) -> str | None:
        """Why code made for another `arch` cannot run on this machine, in a few words; None if it can."""

    @property
    def vector_bits(self) -> int:
        """Widest SIMD register in bits; 0 where that has no meaning."""

    @property
    def prefers_channels_last(self) -> bool:
        """Whether convolutions want the channels of a pixel next to each other in memory."""

    def check_bounds(self, module: Module) -> CheckedModule:
        """The module with every index of an array checked before it is used. ScheduleError where that cannot be."""

    def compile(self, jobs: Iterable[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        """Compile modules, in order.

        jobs: may be a generator, which lowers each module when it is asked for: what threads or processes compile
        goes on meanwhile. progress: called in this thread with (done, known so far), in modules or kernels.
        """

    def source(self, module: Module) -> str:
        """A lowered module as readable text: what this target's compiler gets."""

    def listings(self, job: CompileJob) -> Iterator[tuple[str, str]]:
        """The texts of a lowered module between thread IR and machine code, for dumps: what the compiler gets, then the
        assembly where that can be had.

        Each with the ending of its file (".ll", ".ptx"), made when it is asked for: one that is refused raises after
        those before it have been given.
        """

    @property
    def work_item(self) -> Literal["rows", "elements"]:
        """What an index of a launch without threads should compute: many elements on a CPU, one on a GPU."""

    @property
    def memory(self) -> DeviceMemory | None:
        """Memory of the device; None where code runs on the host's."""

    def usage(self, binary: Binary) -> Mapping[str, KernelUsage]:
        """What each kernel of a module takes of the device, by name; empty where there is nothing to tell."""

    def load(
        self,
        binaries: Sequence[Binary],
        cache: KernelCache | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> LoadedCode:
        """Link binaries together and make them callable.

        cache: where the target keeps code of its own that every process needs (a thread pool); None keeps it nowhere.
        symbols: addresses of functions and variables that the code uses and no binary defines.
        """

    def fingerprint(self) -> Mapping[str, str]:
        """Versions of the tools that make code: part of the cache key."""


class GpuTarget(Target, Protocol):
    """A target whose kernels are run by blocks of threads: what schedules for GPUs read of their device.

    Rules and passes for GPUs take such a target, and hold no number of one device. Where code is made for a device that
    is not there, these are numbers of a usual device of its architecture.
    """

    @property
    def warp_size(self) -> int:
        """Threads that execute together and exchange registers: a warp, a wavefront, a sub-group."""

    @property
    def multiprocessors(self) -> int:
        """What blocks are distributed over, each of which shares one: streaming multiprocessors, compute units."""

    @property
    def block_threads(self) -> int:
        """Threads that a block can have."""

    @property
    def block_shared_memory(self) -> int:
        """Bytes of shared memory that a block can ask for."""

    @property
    def multiprocessor_threads(self) -> int:
        """Threads that a multiprocessor holds at once."""

    @property
    def multiprocessor_shared_memory(self) -> int:
        """Bytes of shared memory of a multiprocessor, with what the system keeps of it for each block."""

    @property
    def multiprocessor_registers(self) -> int:
        """Registers of 32 bits of a multiprocessor."""

    def has(self, feature: str) -> bool:
        """Whether kernels may use a feature, by the name that its vendor's documentation has: "wgmma", "stmatrix".

        False for names that the target has never heard of: they are of other vendors.
        """


_GPU_FACTS = (
    *("warp_size", "multiprocessors", "block_threads", "block_shared_memory", "multiprocessor_threads"),
    *("multiprocessor_shared_memory", "multiprocessor_registers", "has"),
)


@cache
def _unstated(kind: type) -> tuple[str, ...]:
    """The facts that a class does not state. An instance is not asked, because some look at their device for a fact."""
    return tuple(name for name in _GPU_FACTS if not hasattr(kind, name))


def overlaps_launches(target: Target) -> bool:
    """Whether kernels of a target run beside each other where they are told that they may (`Invoke.is_independent`)."""
    own = getattr(target, "__dict__", {})
    is_gpu = all(name in own for name in _unstated(type(target)))
    return is_gpu and cast(GpuTarget, target).has("programmatic-dependent-launch")


def gpu_target(target: Target) -> GpuTarget:
    """The target, of which a GPU's facts are going to be read. PluginError names those that it does not state."""
    own = getattr(target, "__dict__", {})
    missing = [name for name in _unstated(type(target)) if name not in own]
    if missing:
        raise PluginError(
            f"target {target.name!r} does not state {', '.join(missing)}, which passes and schedules for GPUs read",
            hint="implement hidet.target.GpuTarget, or do not name the target in their specs",
        )
    return cast(GpuTarget, target)
