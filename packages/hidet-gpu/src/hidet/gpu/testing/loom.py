"""A target of the kind "gpu" that compiles nothing: tests run its programs in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from hidet.plugins.specs import TargetSpec


class Loom:
    """The facts of `hidet.target.GpuTarget`, of a GPU that nobody sells: "loom", or "loom:64" for warps of 64."""

    name = arch = "loom"
    device = "cpu"
    memory: ClassVar[None] = None
    vector_bits = 128
    prefers_channels_last = True
    work_item: Literal["elements"] = "elements"
    multiprocessors = 16
    block_threads = 1024
    block_shared_memory = 64 << 10
    multiprocessor_threads = 2048
    multiprocessor_shared_memory = 64 << 10
    multiprocessor_registers = 1 << 16

    def __init__(self, machine: str | None = None) -> None:
        """machine: threads of a warp, 32 where it is None."""
        self.warp_size = int(machine or 32)

    def has(self, feature: str) -> bool:
        """It has nothing besides."""
        return False

    def fingerprint(self) -> Mapping[str, str]:
        """There is no compiler."""
        return {}


class Plugin:
    """Offers it, for `hidet.plugins.use`."""

    HIDET_API = 1

    def hidet_targets(self) -> list[TargetSpec]:
        """The target "loom"."""
        return [TargetSpec(name="loom", kind="gpu", load="hidet.gpu.testing.loom:Loom")]
