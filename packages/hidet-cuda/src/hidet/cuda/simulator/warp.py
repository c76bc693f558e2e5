"""Matches, reductions and an election in a warp (PTX ISA: match.sync, redux.sync, elect.sync)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.semantics.warp import Warps, as_bits, over_members

Array = np.ndarray[Any, Any]


def _match_any(site: Site, mask: Array, value: Array) -> Array:
    warps = Warps(site)
    members = warps.members(mask, site.count)
    same = warps.values(value, site.count) == spread(value, site.count)[:, None]
    return as_bits(same & members)


def _elect(site: Site, mask: Array) -> Array:
    warps = Warps(site)
    members = warps.members(mask, site.count)
    return np.asarray(members.argmax(axis=1) == warps.lane)


def _reduction_by(ufunc: np.ufunc, identity: Callable[[np.dtype[Any]], Any]) -> Callable[[Array, Array], Array]:
    def reduce(values: Array, members: Array) -> Array:
        kept = np.where(members, values, np.asarray(identity(values.dtype)).astype(values.dtype))
        return np.asarray(ufunc.reduce(kept, axis=1, dtype=values.dtype))

    return reduce


WARP_MEANINGS: dict[str, Meaning] = {
    "cuda.match_any": Meaning(_match_any),
    "cuda.reduce_add": over_members(_reduction_by(np.add, lambda dtype: 0)),
    "cuda.reduce_min": over_members(_reduction_by(np.minimum, lambda dtype: np.iinfo(dtype).max)),
    "cuda.reduce_max": over_members(_reduction_by(np.maximum, lambda dtype: np.iinfo(dtype).min)),
    "cuda.reduce_and": over_members(_reduction_by(np.bitwise_and, lambda dtype: np.iinfo(dtype).max)),
    "cuda.reduce_or": over_members(_reduction_by(np.bitwise_or, lambda dtype: 0)),
    "cuda.reduce_xor": over_members(_reduction_by(np.bitwise_xor, lambda dtype: 0)),
    "cuda.elect": Meaning(_elect),
}
