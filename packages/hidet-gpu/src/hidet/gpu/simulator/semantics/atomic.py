"""Reading and writing memory in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import Pointers

Array = np.ndarray[Any, Any]
Combine = Callable[[Array, Array], Array]

_OPERATIONS: dict[str, Combine] = {
    "add": lambda old, value: old + value,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exchange": lambda old, value: value,
    "increment": lambda old, value: np.where(old >= value, 0, old + 1),
    "decrement": lambda old, value: np.where((old == 0) | (old > value), value, old - 1),
}


def _atomic(combine: Combine) -> Meaning:
    def run(site: Site, place: Pointers, value: Array) -> Array:
        values = spread(value, site.count)
        wave, activation, lanes = site.wave, site.activation, site.lanes
        return wave.change(activation, lanes, place, place.dtype, lambda old, rows: combine(old, values[rows]))

    return Meaning(run)


def _compare_exchange(site: Site, place: Pointers, expected: Array, value: Array) -> Array:
    wanted, values = spread(expected, site.count), spread(value, site.count)

    def combine(old: Array, rows: Array) -> Array:
        return np.where(old == wanted[rows], values[rows], old)

    return site.wave.change(site.activation, site.lanes, place, place.dtype, combine)


def _add_release(site: Site, place: Pointers, value: Array) -> Array:
    site.wave.flags.fence(site.agents, site.tick())
    result: Array = _atomic(_OPERATIONS["add"]).function(site, place, value)
    return result


def _load_acquire(site: Site, place: Pointers) -> Array:
    lanes = 1 if site.node.lanes == 1 else site.node.lanes
    value = site.wave.load(site.activation, site.lanes, place, place.dtype, lanes, vector=lanes > 1, atomic=True)
    site.wave.flags.touch(site.agents, place, writes=False)
    site.wave.flags.acquire(site.agents)
    return value


def _store_release(site: Site, place: Pointers, value: Array) -> None:
    site.wave.flags.fence(site.agents, site.tick())
    site.wave.store(site.activation, site.lanes, place, place.dtype, value, atomic=True)
    site.wave.flags.touch(site.agents, place, writes=True)


def _without_result(meaning: Meaning) -> Meaning:
    def run(site: Site, *arguments: Any) -> None:
        meaning.function(site, *arguments)

    return Meaning(run)


ATOMIC: dict[str, Meaning] = {
    **{f"gpu.atomic_{name}": _atomic(combine) for name, combine in _OPERATIONS.items()},
    **{
        f"gpu.reduce_{name}_at": _without_result(_atomic(_OPERATIONS[name]))
        for name in ("add", "min", "max", "and", "or", "xor")
    },
    "gpu.atomic_compare_exchange": Meaning(_compare_exchange),
    "gpu.atomic_add_release": Meaning(_add_release),
    "gpu.load_acquire": Meaning(_load_acquire),
    "gpu.store_release": Meaning(_store_release),
}
