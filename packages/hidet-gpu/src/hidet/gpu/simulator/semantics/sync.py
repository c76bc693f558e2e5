"""Waiting for other threads, and fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import RowError
from hidet.gpu.simulator.strand import Steps

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


def _syncwarp(site: Site, mask: Array) -> Steps:
    yield from site.wave.barriers.warp(site, mask)


def _device_fence(site: Site) -> None:
    site.wave.flags.fence(site.agents, site.tick())


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
    "gpu.threadfence_block": Meaning(_nothing),
    "gpu.threadfence": Meaning(_device_fence),
    "gpu.threadfence_system": Meaning(_device_fence),
    "gpu.trap": Meaning(_trap),
}
