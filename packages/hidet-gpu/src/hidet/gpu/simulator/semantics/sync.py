"""Waiting for other threads, and fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site, immediate
from hidet.gpu.simulator.memory import RowError
from hidet.gpu.simulator.strand import POLL, Steps

Array = np.ndarray[Any, Any]


def _syncthreads(site: Site) -> Steps:
    yield from site.wave.barriers.whole_block(site)


def _counting(combine: Callable[[Array], int]) -> Meaning:
    """As syncthreads; gives what `combine` makes of the predicates of a block's threads."""

    def run(site: Site, predicate: Array) -> Steps:
        values = spread(predicate, site.count)
        slots = site.team.slot[site.lanes.index]
        if not site.lanes.whole:
            raise RowError(0, "not all threads of the block come to a barrier that counts predicates")
        result = np.empty(site.count, np.int32)
        for slot in np.unique(slots):
            result[slots == slot] = combine(values[slots == slot])
        yield from site.wave.barriers.whole_block(site)
        return result

    return Meaning(run, waits=True)


def _named(waits: bool) -> Meaning:
    def run(site: Site, barrier: Array, threads: Array) -> Steps:
        yield from site.wave.barriers.numbered(site, immediate(barrier), immediate(threads), waits)

    return Meaning(run, waits=True)


def _syncwarp(site: Site, mask: Array) -> Steps:
    yield from site.wave.barriers.warp(site, mask)


def _cluster_wait(site: Site) -> Steps:
    yield from site.wave.barriers.cluster_wait(site)


def _fence_async(site: Site) -> None:
    site.wave.copies.fence(site.agents, site.tick())


def _device_fence(site: Site) -> None:
    site.wave.flags.fence(site.agents, site.tick())


def _sleep(site: Site, nanoseconds: Array) -> Steps:
    yield POLL


def _trap(site: Site) -> None:
    raise RowError(0, "the kernel traps")


def _nothing(site: Site, *arguments: Array) -> None:
    """Without meaning where every access is visible at once and kernels run one after the other."""


SYNC: dict[str, Meaning] = {
    "gpu.syncthreads": Meaning(_syncthreads, waits=True),
    "gpu.syncthreads_count": _counting(lambda values: int(values.sum())),
    "gpu.syncthreads_and": _counting(lambda values: int(values.all())),
    "gpu.syncthreads_or": _counting(lambda values: int(values.any())),
    "gpu.syncwarp": Meaning(_syncwarp, waits=True),
    "cuda.barrier_sync": _named(True),
    "cuda.barrier_arrive": _named(False),
    "gpu.threadfence_block": Meaning(_nothing),
    "gpu.threadfence": Meaning(_device_fence),
    "gpu.threadfence_system": Meaning(_device_fence),
    "cuda.cluster_arrive": Meaning(lambda site: site.wave.barriers.cluster_arrive(site)),
    "cuda.cluster_arrive_relaxed": Meaning(lambda site: site.wave.barriers.cluster_arrive(site, relaxed=True)),
    "cuda.cluster_wait": Meaning(_cluster_wait, waits=True),
    "cuda.fence_async_shared": Meaning(_fence_async),
    "cuda.fence_async": Meaning(_fence_async),
    "cuda.fence_barrier_init": Meaning(_nothing),
    "cuda.grid_dependency_wait": Meaning(_nothing),
    "cuda.grid_dependency_launch": Meaning(_nothing),
    "cuda.nanosleep": Meaning(_sleep, waits=True),
    "gpu.trap": Meaning(_trap),
    "cuda.register_increase": Meaning(_nothing),
    "cuda.register_decrease": Meaning(_nothing),
}
