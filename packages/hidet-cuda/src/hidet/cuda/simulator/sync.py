"""Barriers of parts of a block and of clusters, and fences of asynchronous work."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, Site, immediate
from hidet.gpu.simulator.strand import POLL, Steps

Array = np.ndarray[Any, Any]

ASYNC_FENCE = "cuda.fence_async_shared"
"""Orders what threads wrote before what TMA and the matrix unit read."""


def _named(waits: bool) -> Meaning:
    def run(site: Site, barrier: Array, threads: Array) -> Steps:
        yield from site.wave.barriers.numbered(site, immediate(barrier), immediate(threads), waits)

    return Meaning(run, waits=True, lets_go=not waits)


def _cluster_wait(site: Site) -> Steps:
    yield from site.wave.barriers.cluster_wait(site)


def _fence_async(site: Site) -> None:
    site.wave.copies.fence(site.agents, site.tick())


def _sleep(site: Site, nanoseconds: Array) -> Steps:
    yield POLL


def _nothing(site: Site, *arguments: Array) -> None:
    """Without meaning where every access is visible at once and kernels run one after the other."""


SYNC: dict[str, Meaning] = {
    "cuda.barrier_sync": _named(True),
    "cuda.barrier_arrive": _named(False),
    "cuda.cluster_arrive": Meaning(lambda site: site.wave.barriers.cluster_arrive(site)),
    "cuda.cluster_arrive_relaxed": Meaning(lambda site: site.wave.barriers.cluster_arrive(site, relaxed=True)),
    "cuda.cluster_wait": Meaning(_cluster_wait, waits=True),
    ASYNC_FENCE: Meaning(_fence_async),
    "cuda.fence_async": Meaning(_fence_async),
    "cuda.fence_barrier_init": Meaning(_nothing),
    "cuda.grid_dependency_wait": Meaning(_nothing),
    "cuda.grid_dependency_launch": Meaning(_nothing),
    "cuda.grid_dependency_end": Meaning(_nothing),
    "cuda.nanosleep": Meaning(_sleep, waits=True),
    "cuda.register_increase": Meaning(_nothing),
    "cuda.register_decrease": Meaning(_nothing),
}
