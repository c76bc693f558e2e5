"""What cost models know of a CPU: published numbers of its kind, and those of this machine, measured.

Published numbers are of a server's core of about 3 GHz: what differs between processors with equally wide vectors is
mostly how many cores share a cache or the memory, which a name does not tell.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path

from hidet.cpu.arch import CpuArch, available_cpus
from hidet.target.constants import DeviceConstants, MemoryLevel

_CLOCK = 3e9
_UNITS = {512: 2, 256: 2, 128: 2}
"""Vector multiply-adds that a core begins each cycle, by the width of vectors."""
_LATENCY_CYCLES = 4
_L1_BYTES_PER_CYCLE, _L2_BYTES_PER_CYCLE = 2, 0.5
"""Of a vector register's width: two loads from the first-level cache, half a line from the second."""
_L3_BYTES, _L3_BANDWIDTH, _MEMORY_BANDWIDTH = 4 << 20, 24e9, 12e9
"""What a core may count on of the third-level cache, and bytes a second of one core."""
_MEMORY_CHANNELS = 8
"""Cores that fetch from memory at their full rate before it is busy."""
_LAUNCH, _ITEM, _MEMORY_LATENCY = 1e-6, 3e-9, 100e-9


def published_constants(cpu: CpuArch) -> DeviceConstants:
    """Those of a usual machine with such cores. Of this machine are its caches' sizes, which `CpuArch` has, and
    `cores`."""
    return _published(cpu, available_cpus())


@functools.cache
def _published(cpu: CpuArch, cores: int) -> DeviceConstants:
    width = cpu.vector_bits // 8
    fma = {
        name: _CLOCK * _UNITS[cpu.vector_bits] * cpu.vector_bits / bits
        for name, bits in {"float32": 32, "float64": 64}.items()
    }
    # Integers are multiplied at half the rate of floats at best.
    fma["int32"] = fma["float32"] / 2
    own = ((cpu.l1_bytes, _L1_BYTES_PER_CYCLE), (cpu.l2_bytes, _L2_BYTES_PER_CYCLE))
    levels = [
        MemoryLevel(f"L{number}", nbytes, _CLOCK * width * rate, cores * _CLOCK * width * rate)
        for number, (nbytes, rate) in enumerate(own, 1)
    ]
    levels += [
        MemoryLevel("L3", max(_L3_BYTES, cpu.l2_bytes), _L3_BANDWIDTH, cores * _L3_BANDWIDTH),
        MemoryLevel("memory", 0, _MEMORY_BANDWIDTH, min(cores, _MEMORY_CHANNELS) * _MEMORY_BANDWIDTH),
    ]
    return DeviceConstants(
        device=cpu.name,
        cores=cores,
        launch=_LAUNCH if cores > 1 else 0.0,
        item=_ITEM,
        fma=fma,
        matrix={},
        fma_latency=_LATENCY_CYCLES / _CLOCK,
        memory_latency=_MEMORY_LATENCY,
        levels=tuple(levels),
    )


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
