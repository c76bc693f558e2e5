"""What a target must provide: an architecture, compilation of modules, and loading of what was compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hidet.cache import KernelCache
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


class LoadedCode(Protocol):
    """Code in memory, ready to be called; it stays valid while this object lives."""

    def address(self, name: str) -> int:
        """Address of a host function."""

    def function(self, name: str, threads: int | None) -> Callable[[int], object]:
        """A segment as a callable of the slot table's address; `threads` None uses every CPU allowed."""


class Target(Protocol):
    """A kind of device and how to make code for it."""

    @property
    def name(self) -> str:
        """Registered name: "cpu", "cuda"."""

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

    def compile(self, jobs: Sequence[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        """Compile modules, in order. `progress` is called with (modules done, modules in all)."""

    def source(self, module: Module) -> str:
        """A lowered module as readable text: what this target's compiler gets."""

    def load(self, binaries: Sequence[Binary], cache: KernelCache | None = None) -> LoadedCode:
        """Link binaries together and make them callable.

        cache: where the target keeps code of its own that every process needs (a thread pool); None keeps it nowhere.
        """

    def fingerprint(self) -> Mapping[str, str]:
        """Versions of the tools that make code: part of the cache key."""
