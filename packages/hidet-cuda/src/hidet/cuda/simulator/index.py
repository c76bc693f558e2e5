"""Where a block stands in its cluster, where a thread runs, and clocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.semantics.index import blocks, extents, indices, number

Array = np.ndarray[Any, Any]


def _block_in_cluster(site: Site) -> tuple[Array, ...]:
    return tuple(i % n for i, n in zip(blocks(site), site.team.geometry.cluster, strict=True))


def _clusters(site: Site) -> tuple[Array, ...]:
    return tuple(i // n for i, n in zip(blocks(site), site.team.geometry.cluster, strict=True))


def _rank(site: Site) -> Array:
    ranks: Array = site.team.block[site.lanes.index] % site.team.geometry.cluster_blocks
    return ranks.astype(np.int32)


def _time(site: Site) -> Array:
    return number(site.tick(), np.uint64)


INDEX: dict[str, Meaning] = {
    **indices({"cuda.block_idx_in_cluster": _block_in_cluster, "cuda.cluster_idx": _clusters}),
    **extents(
        {
            "cuda.cluster_dim": lambda site: site.team.geometry.cluster,
            "cuda.cluster_grid_dim": lambda site: site.team.geometry.clusters,
        }
    ),
    "cuda.block_rank_in_cluster": Meaning(_rank),
    "cuda.cluster_size": Meaning(lambda site: number(site.team.geometry.cluster_blocks)),
    # Every block has a multiprocessor of its own here, and time counts accesses to memory.
    "cuda.sm_idx": Meaning(lambda site: site.team.block[site.lanes.index].astype(np.uint32)),
    "cuda.clock": Meaning(_time),
    "cuda.global_timer": Meaning(_time),
}
