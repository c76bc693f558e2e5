"""Where a thread stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.team import WARP

Array = np.ndarray[Any, Any]

_AXES = ("x", "y", "z")


def _number(value: int, dtype: type = np.int32) -> Array:
    return np.array([value], dtype)


def _threads(site: Site) -> tuple[Array, ...]:
    return site.team.geometry.thread_of(site.team.thread[site.lanes.index])


def _blocks(site: Site) -> tuple[Array, ...]:
    numbers = site.team.block[site.lanes.index]
    return site.team.geometry.block_of(numbers[:1] if site.team.size == site.team.threads else numbers)


def _block_in_cluster(site: Site) -> tuple[Array, ...]:
    return tuple(i % n for i, n in zip(_blocks(site), site.team.geometry.cluster, strict=True))


def _clusters(site: Site) -> tuple[Array, ...]:
    return tuple(i // n for i, n in zip(_blocks(site), site.team.geometry.cluster, strict=True))


_INDICES: dict[str, Callable[[Site], tuple[Array, ...]]] = {
    "gpu.thread_idx": _threads,
    "gpu.block_idx": _blocks,
    "cuda.block_idx_in_cluster": _block_in_cluster,
    "cuda.cluster_idx": _clusters,
}

_EXTENTS: dict[str, Callable[[Site], tuple[int, int, int]]] = {
    "gpu.block_dim": lambda site: site.team.geometry.block,
    "gpu.grid_dim": lambda site: site.team.geometry.grid,
    "cuda.cluster_dim": lambda site: site.team.geometry.cluster,
    "cuda.cluster_grid_dim": lambda site: site.team.geometry.clusters,
}


def _index(part: Callable[[Site], tuple[Array, ...]], axis: int) -> Meaning:
    return Meaning(lambda site: part(site)[axis].astype(np.int32))


def _extent(part: Callable[[Site], tuple[int, int, int]], axis: int) -> Meaning:
    return Meaning(lambda site: _number(part(site)[axis]))


def _rank(site: Site) -> Array:
    ranks: Array = site.team.block[site.lanes.index] % site.team.geometry.cluster_blocks
    return ranks.astype(np.int32)


def _lane(site: Site) -> Array:
    lanes: Array = site.team.thread[site.lanes.index] % WARP
    return lanes.astype(np.int32)


def _time(site: Site) -> Array:
    return _number(site.tick(), np.uint64)


INDEX: dict[str, Meaning] = {
    **{f"{name}.{_AXES[axis]}": _index(part, axis) for name, part in _INDICES.items() for axis in range(3)},
    **{f"{name}.{_AXES[axis]}": _extent(part, axis) for name, part in _EXTENTS.items() for axis in range(3)},
    "cuda.block_rank_in_cluster": Meaning(_rank),
    "cuda.cluster_size": Meaning(lambda site: _number(site.team.geometry.cluster_blocks)),
    "gpu.lane_idx": Meaning(_lane),
    # Every block has a multiprocessor of its own here, and time counts accesses to memory.
    "cuda.sm_idx": Meaning(lambda site: site.team.block[site.lanes.index].astype(np.uint32)),
    "cuda.clock": Meaning(_time),
    "cuda.global_timer": Meaning(_time),
}
