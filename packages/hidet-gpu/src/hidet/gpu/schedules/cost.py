"""How long kernels of a GPU take, in seconds: models that schedules of all GPU targets share.

A kernel that streams is as fast as memory, or as the reads that its threads have on their way allow: so many bytes are
waited for at once, each for the latency of memory (Little's law). Blocks come in waves of as many as the device holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.dtypes import DType
from hidet.gpu.schedules.tiling import Extents, Tiling, simt_cycles
from hidet.target.constants import DeviceConstants

if TYPE_CHECKING:
    from hidet.target import GpuTarget

_PRODUCTS = 128
"""Multiplications of f32 a cycle of a multiprocessor of the H100 that `simt_cycles` is for."""


def simt_seconds(
    extents: Extents, tiling: Tiling, target: GpuTarget, constants: DeviceConstants, total: DType
) -> float:
    """Of a product without matrix units. total: the type that it is summed in."""
    rate = constants.fma.get(total.name, constants.fma["float32"] * 32 / total.bits)
    speed = rate * constants.cycle / (_PRODUCTS * 32 / total.bits)
    return constants.launch + simt_cycles(extents, tiling, target, speed) * constants.cycle


def streaming_seconds(
    nbytes: float, blocks: int, threads: int, in_flight: float, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Of a kernel that moves `nbytes` between memory and registers.

    blocks, threads: of the launch, and of a block. in_flight: bytes that a thread waits for at once.
    """
    resident = max(1, target.multiprocessor_threads // threads)
    busy = min(blocks, constants.cores * resident)
    level = constants.level("L2") if nbytes <= constants.level("L2").nbytes / 2 else constants.memory
    alone = min(busy, constants.cores) * level.core_bandwidth
    waiting = busy * threads * in_flight / constants.memory_latency
    waves = -(-blocks // (constants.cores * resident))
    return constants.launch + nbytes / min(level.device_bandwidth, alone, waiting) + waves * constants.item
