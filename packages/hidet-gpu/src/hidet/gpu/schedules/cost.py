"""How long kernels of a GPU take, in seconds: models that schedules of all GPU targets share.

A kernel that streams is as fast as memory, or as its threads wait for it: a thread goes through its steps one after the
other, each as long as the latency of memory, and blocks come in waves of as many as the device holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet.dtypes import DType
from hidet.gpu.schedules.exchange import WARP
from hidet.gpu.schedules.tiling import Extents, Tiling, simt_cycles
from hidet.target.constants import DeviceConstants

if TYPE_CHECKING:
    from hidet.target import GpuTarget

_SHUFFLE, _BARRIER, _WARP = 30, 80, 10
"""Cycles of a shuffle and what follows, of a barrier, and of what each warp leaves in shared memory."""
_PRODUCTS = 128
"""Multiplications of f32 a cycle of a multiprocessor of the H100 that `simt_cycles` is for."""


def simt_seconds(
    extents: Extents, tiling: Tiling, target: GpuTarget, constants: DeviceConstants, total: DType
) -> float:
    """Of a product without matrix units. total: the type that it is summed in."""
    rate = constants.fma.get(total.name, constants.fma["float32"] * 32 / total.bits)
    speed = rate * constants.cycle / (_PRODUCTS * 32 / total.bits)
    return constants.launch + simt_cycles(extents, tiling, target, speed) * constants.cycle


@dataclass(frozen=True, slots=True)
class Teams:
    """A kernel as its threads see it.

    items: what teams of `team` threads work on, a block of `block` threads having one or several teams. steps: reads of
    a thread of which each waits for the one before, or for its registers. instructions: of a thread, about. nbytes:
    moved between memory and the device, once; again: bytes that are read once more, while a cache has them.
    """

    items: int
    team: int
    block: int
    steps: float
    nbytes: float
    again: float = 0.0
    instructions: float = 0.0


def teams_seconds(teams: Teams, target: GpuTarget, constants: DeviceConstants) -> float:
    """Seconds of a kernel."""
    block = max(teams.block, teams.team)
    blocks = max(1, -(-teams.items * teams.team // block))
    resident = max(1, target.multiprocessor_threads // block)
    waves = -(-blocks // (constants.cores * resident))
    busy = min(blocks, constants.cores)
    cache = constants.level("L2")
    level = cache if teams.nbytes <= cache.nbytes / 2 else constants.memory
    streamed = teams.nbytes / min(busy * level.core_bandwidth, level.device_bandwidth)
    streamed += teams.again / min(busy * cache.core_bandwidth, cache.device_bandwidth)
    waited = waves * (teams.steps * constants.memory_latency + _exchange(teams.team) * constants.cycle)
    # Threads of 32 bits are issued at the rate of multiply-adds of f32.
    issued = teams.items * teams.team * teams.instructions / (busy * constants.fma["float32"])
    return constants.launch + max(streamed, waited, issued) + blocks * constants.item / constants.cores


def _exchange(team: int) -> float:
    """Cycles in which a team reduces what its threads have: by shuffles, then through shared memory."""
    lanes, warps = min(team, WARP), team // WARP
    return _SHUFFLE * math.log2(max(1, lanes)) + (0 if warps <= 1 else _BARRIER + _WARP * warps)
