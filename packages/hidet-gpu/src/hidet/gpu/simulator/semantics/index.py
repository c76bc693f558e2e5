"""Where a thread stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.team import WARP

Array = np.ndarray[Any, Any]

_AXES = ("x", "y", "z")


def number(value: int, dtype: type = np.int32) -> Array:
    """The same for all callers."""
    return np.array([value], dtype)


def _threads(site: Site) -> tuple[Array, ...]:
    return site.team.geometry.thread_of(site.team.thread[site.lanes.index])


def blocks(site: Site) -> tuple[Array, ...]:
    """The x, y and z of the callers' blocks: one where all are of the same."""
    numbers = site.team.block[site.lanes.index]
    return site.team.geometry.block_of(numbers[:1] if site.team.size == site.team.threads else numbers)


def indices(parts: Mapping[str, Callable[[Site], tuple[Array, ...]]]) -> dict[str, Meaning]:
    """A row for each axis of indices, by the name without the axis."""

    def meaning(part: Callable[[Site], tuple[Array, ...]], axis: int) -> Meaning:
        return Meaning(lambda site: part(site)[axis].astype(np.int32))

    return {f"{name}.{_AXES[axis]}": meaning(part, axis) for name, part in parts.items() for axis in range(3)}


def extents(parts: Mapping[str, Callable[[Site], tuple[int, int, int]]]) -> dict[str, Meaning]:
    """A row for each axis of extents, by the name without the axis."""

    def meaning(part: Callable[[Site], tuple[int, int, int]], axis: int) -> Meaning:
        return Meaning(lambda site: number(part(site)[axis]))

    return {f"{name}.{_AXES[axis]}": meaning(part, axis) for name, part in parts.items() for axis in range(3)}


def _lane(site: Site) -> Array:
    lanes: Array = site.team.thread[site.lanes.index] % WARP
    return lanes.astype(np.int32)


INDEX: dict[str, Meaning] = {
    **indices({"gpu.thread_idx": _threads, "gpu.block_idx": blocks}),
    **extents(
        {
            "gpu.block_dim": lambda site: site.team.geometry.block,
            "gpu.grid_dim": lambda site: site.team.geometry.grid,
        }
    ),
    "gpu.lane_idx": Meaning(_lane),
}
