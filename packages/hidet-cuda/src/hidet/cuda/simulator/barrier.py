"""Barriers in shared memory (PTX ISA: mbarrier)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.cuda.simulator.copy import map_to_block
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import Pointers
from hidet.gpu.simulator.strand import Steps

Array = np.ndarray[Any, Any]


def _wait(site: Site, barrier: Pointers, parity: Array) -> Steps:
    yield from site.wave.phases.wait(site, barrier, parity)


def _arrive_remote(site: Site, barrier: Pointers, rank: Array) -> None:
    site.wave.phases.arrive(site, map_to_block(site, barrier, rank))


BARRIER: dict[str, Meaning] = {
    "cuda.barrier_init": Meaning(lambda site, barrier, count: site.wave.phases.make(site, barrier, count)),
    "cuda.barrier_invalidate": Meaning(lambda site, barrier: site.wave.phases.end(site, barrier)),
    "cuda.barrier_arrive_at": Meaning(lambda site, barrier: site.wave.phases.arrive(site, barrier)),
    "cuda.barrier_arrive_expect": Meaning(lambda site, barrier, n: site.wave.phases.arrive(site, barrier, n)),
    "cuda.barrier_expect": Meaning(lambda site, barrier, n: site.wave.phases.expect(site, barrier, n, 1)),
    "cuda.barrier_complete": Meaning(lambda site, barrier, n: site.wave.phases.expect(site, barrier, n, -1)),
    "cuda.barrier_try_wait": Meaning(lambda site, barrier, parity: site.wave.phases.test(site, barrier, parity)),
    "cuda.barrier_wait": Meaning(_wait, waits=True),
    "cuda.barrier_arrive_remote": Meaning(_arrive_remote),
    "cuda.barrier_arrive_remote_relaxed": Meaning(_arrive_remote),
}
