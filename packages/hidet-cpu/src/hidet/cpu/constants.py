"""What cost models know of a CPU: published numbers of its kind, and those of this machine, measured.

Published numbers are of a kind of core under load, or of a server's core of about 3 GHz where the kind was never
measured: how many cores share a cache or the memory is not told by a name.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hidet.cpu.arch import CpuArch
from hidet.cpus import available_cpus
from hidet.dtypes import DType
from hidet.target.constants import DeviceConstants, MemoryLevel


@dataclass(frozen=True, slots=True)
class _Core:
    """A kind of core under load.

    clock: cycles a second. units: vector multiply-adds that it begins each cycle. integers: multiply-adds of i32 over
    those of f32. l1_rate, l2_rate: vectors that come from the first and the second-level cache each cycle.
    l3_bandwidth, memory_bandwidth: bytes a second that one core reads.
    """

    clock: float = 3e9
    units: float = 2
    integers: float = 0.5
    l1_rate: float = 2
    l2_rate: float = 0.5
    l3_bandwidth: float = 24e9
    memory_bandwidth: float = 12e9


_CORES: Mapping[str, _Core] = {
    # Its data paths are 256 bits wide: a vector of 512 takes two turns (AMD, Software Optimization Guide for the Zen4).
    "znver4": _Core(3.7e9, units=1, integers=0.94, l1_rate=1, l3_bandwidth=99e9, memory_bandwidth=29e9),
    "znver5": _Core(4.35e9, integers=1.0, l2_rate=0.85, l3_bandwidth=125e9, memory_bandwidth=63e9),
}
"""Kinds that were measured, by their names in LLVM."""
_LATENCY_CYCLES = 4
_L3_BYTES = 4 << 20
"""What a core may count on of the third-level cache."""
_MEMORY_CHANNELS = 8
"""Cores that fetch from memory at their full rate before it is busy."""
_LAUNCH, _ITEM, _MEMORY_LATENCY = 1e-6, 3e-9, 100e-9


def published_constants(cpu: CpuArch) -> DeviceConstants:
    """Those of a usual machine with such cores. Of this machine are its caches' sizes, which `CpuArch` has, and
    `cores`."""
    return _published(cpu, available_cpus())


@functools.cache
def _published(cpu: CpuArch, cores: int) -> DeviceConstants:
    core = _CORES.get(cpu.name, _Core())
    fma = {f"float{bits}": core.clock * core.units * cpu.vector_bits / bits for bits in (32, 64)}
    fma["int32"] = core.integers * fma["float32"]
    vectors = core.clock * cpu.vector_bits / 8
    levels = [
        MemoryLevel(f"L{number}", nbytes, vectors * rate, cores * vectors * rate)
        for number, (nbytes, rate) in enumerate(((cpu.l1_bytes, core.l1_rate), (cpu.l2_bytes, core.l2_rate)), 1)
    ]
    levels += [
        MemoryLevel("L3", max(_L3_BYTES, cpu.l2_bytes), core.l3_bandwidth, cores * core.l3_bandwidth),
        MemoryLevel("memory", 0, core.memory_bandwidth, min(cores, _MEMORY_CHANNELS) * core.memory_bandwidth),
    ]
    return DeviceConstants(
        device=cpu.name,
        cores=cores,
        launch=_LAUNCH if cores > 1 else 0.0,
        item=_ITEM,
        fma=fma,
        matrix={},
        fma_latency=_LATENCY_CYCLES / core.clock,
        memory_latency=_MEMORY_LATENCY,
        levels=tuple(levels),
    )


def fma_rate(constants: DeviceConstants, dtype: DType) -> float:
    """Multiply-adds a second of one core; of a type that is not stated, as of f32 by its width."""
    return constants.fma.get(dtype.name) or constants.fma["float32"] * 32 / dtype.bits


def processor_name() -> str:
    """This machine's processor as its vendor names it, with the number of CPUs that the process may use, which share
    what is measured of memory."""
    return f"{_model_name()}, {available_cpus()} CPUs"


@functools.cache
def _model_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def last_level_bytes(cpu: CpuArch) -> int:
    """Bytes of the last-level cache that one CPU may count on when all that the process may use work; a guess where the
    system does not tell."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache/index3")
    try:
        size = (folder / "size").read_text().strip()
        sharing = (folder / "shared_cpu_map").read_text().replace(",", "").strip()
        nbytes = int(size.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 1)
        share = nbytes // max(1, min(int(sharing, 16).bit_count(), available_cpus()))
    except (OSError, ValueError):
        share = _L3_BYTES
    return max(share, cpu.l2_bytes)
