"""Exchange between the threads of a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site, immediate
from hidet.gpu.simulator.memory import RowError
from hidet.gpu.simulator.team import WARP

Array = np.ndarray[Any, Any]


class Warps:
    """The callers of a site by warp and lane. `row`: of lane j of warp i, or -1. `warp`, `lane`: of each caller."""

    def __init__(self, site: Site) -> None:
        numbers = site.team.warp[site.lanes.index]
        self.lane = site.team.thread[site.lanes.index] % WARP
        found, self.warp = np.unique(numbers, return_inverse=True)
        self.row = np.full((len(found), WARP), -1)
        self.row[self.warp, self.lane] = np.arange(site.count)
        first = site.team.thread[site.lanes.index] - self.lane
        self._exists = first[:, None] + np.arange(WARP) < site.team.threads

    def members(self, mask: Array, count: int) -> Array:
        """Which lanes each caller's mask names, [count, 32]. RowError unless all of them call, the caller included."""
        named = (spread(mask, count).astype(np.int64)[:, None] >> np.arange(WARP)) & 1 != 0
        called = self.row[self.warp] >= 0
        absent = named & self._exists & ~called
        if absent.any():
            row, lane = (int(i) for i in np.argwhere(absent)[0])
            raise RowError(
                row,
                f"the mask names lane {lane} of the warp, which does not come here",
                hint="call it where all threads of the mask do, outside of the branch",
            )
        own = named[np.arange(count), self.lane]
        if not own.all():
            row = int(np.flatnonzero(~own)[0])
            raise RowError(row, f"the mask does not name lane {int(self.lane[row])}, which is the caller")
        return np.asarray(named & called)

    def values(self, value: Array, count: int) -> Array:
        """The values of all lanes of each caller's warp, [count, 32]; of lanes that do not call, anything."""
        return np.asarray(spread(value, count)[self.row[self.warp]])


def _shuffle(source: Callable[[Array, Array, int], tuple[Array, Array]]) -> Meaning:
    """source(lane, argument, width) gives the lane to read and whether it lies in the part; else a thread keeps its
    own value."""

    def run(site: Site, mask: Array, value: Array, argument: Array, width: Array) -> Array:
        parts = immediate(width)
        if parts & (parts - 1):
            raise RowError(0, f"lanes are exchanged in parts of {parts}, expected a power of two")
        warps = Warps(site)
        members = warps.members(mask, site.count)
        lane, inside = source(warps.lane, spread(argument, site.count).astype(np.int64), parts)
        lane = np.where(inside, lane, warps.lane)
        rows = np.arange(site.count)
        silent = ~members[rows, lane]
        if silent.any():
            row = int(np.flatnonzero(silent)[0])
            raise RowError(row, f"the value of lane {int(lane[row])} is read, which the mask does not name")
        return np.asarray(warps.values(value, site.count)[rows, lane])

    return Meaning(run)


def _indexed(lane: Array, argument: Array, width: int) -> tuple[Array, Array]:
    return lane // width * width + argument % width, np.ones(len(lane), np.bool_)


def _up(lane: Array, delta: Array, width: int) -> tuple[Array, Array]:
    return lane - delta, lane % width >= delta


def _down(lane: Array, delta: Array, width: int) -> tuple[Array, Array]:
    return lane + delta, lane % width + delta < width


def _xor(lane: Array, bits: Array, width: int) -> tuple[Array, Array]:
    """A lane beyond the part of `width` lanes is not read, but one below is (PTX ISA, shfl.sync.bfly)."""
    return lane ^ bits, (lane ^ bits) < (lane // width + 1) * width


def over_members(combine: Callable[[Array, Array], Any]) -> Meaning:
    """combine(values, members) of all lanes, both [count, 32], gives one value a caller."""

    def run(site: Site, mask: Array, value: Array) -> Array:
        warps = Warps(site)
        members = warps.members(mask, site.count)
        return np.asarray(combine(warps.values(value, site.count), members))

    return Meaning(run)


def as_bits(lanes: Array) -> Array:
    """[count, 32] truths as a word a caller."""
    bits: Array = (lanes.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1)
    return bits.astype(np.uint32)


def _active(site: Site) -> Array:
    warps = Warps(site)
    return as_bits(warps.row[warps.warp] >= 0)


WARP_MEANINGS: dict[str, Meaning] = {
    "gpu.shuffle": _shuffle(_indexed),
    "gpu.shuffle_up": _shuffle(_up),
    "gpu.shuffle_down": _shuffle(_down),
    "gpu.shuffle_xor": _shuffle(_xor),
    "gpu.vote_all": over_members(lambda values, members: (values | ~members).all(axis=1)),
    "gpu.vote_any": over_members(lambda values, members: (values & members).any(axis=1)),
    "gpu.vote_uniform": over_members(
        lambda values, members: (values | ~members).all(axis=1) | ~(values & members).any(axis=1)
    ),
    "gpu.vote_ballot": over_members(lambda values, members: as_bits(values & members)),
    "gpu.active_mask": Meaning(_active),
}
