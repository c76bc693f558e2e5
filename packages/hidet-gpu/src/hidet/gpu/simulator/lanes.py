"""Sets of threads that run a statement together, and values of them.

A team is the threads of some blocks that start in lockstep; its threads are numbered from 0, block after block. A value
that a set of n threads computes is an array whose first axis has length n, or length 1 where all threads agree; SIMD
vectors have a second axis. What a variable holds has the length of the team, or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Some threads of a team: their numbers in ascending order. `whole`: all of the team."""

    index: Array
    whole: bool

    @property
    def count(self) -> int:
        """How many threads these are."""
        return len(self.index)

    def only(self, chosen: Array) -> Lanes:
        """Those for which the bool array `chosen`, one a thread, is true."""
        return Lanes(self.index[chosen], False)


def everyone(count: int) -> Lanes:
    """All threads of a team of `count`."""
    return Lanes(np.arange(count), True)


NOBODY = Lanes(np.arange(0), False)


def merge(parts: Sequence[Lanes], origin: Lanes) -> Lanes:
    """The threads of disjoint `parts` of `origin`; `origin` itself when none is missing."""
    filled = [part for part in parts if part.count]
    if sum(part.count for part in filled) == origin.count:
        return origin
    if len(filled) <= 1:
        return filled[0] if filled else NOBODY
    return Lanes(np.sort(np.concatenate([part.index for part in filled])), False)


def take(value: Array, lanes: Lanes) -> Array:
    """What a variable holds for some threads."""
    return value if lanes.whole or len(value) == 1 else value[lanes.index]


def put(old: Array | None, value: Array, lanes: Lanes, size: int) -> Array:
    """What a variable of a team of `size` holds after `lanes` got `value`; None is held where nothing was before."""
    if lanes.whole or (old is None and len(value) == 1):
        return value
    held = np.zeros((size, *value.shape[1:]), value.dtype)
    if old is not None:
        held[:] = old
    held[lanes.index] = value
    return held


def pick(value: Array, chosen: Array) -> Array:
    """The rows of a value for the threads that the bool array `chosen` names."""
    return value if len(value) == 1 and len(chosen) != 1 else value[chosen]


def spread(value: Array, count: int) -> Array:
    """A value with one row for each of `count` threads."""
    return value if len(value) == count else np.broadcast_to(value, (count, *value.shape[1:]))
