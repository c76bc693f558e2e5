"""Order between blocks through global memory: fences, atomics, acquiring loads and releasing stores.

A fence before an atomic or store releases what the thread knows to who reads that place and passes a fence after, or
reads it acquiring (PTX ISA, "Memory Consistency Model": release and acquire patterns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.gpu.simulator.memory import Memory, Pointers
from hidet.gpu.simulator.phases import places

if TYPE_CHECKING:
    from hidet.gpu.simulator.wave import Wave

Array = np.ndarray[Any, Any]


class Flags:
    """Places that were released, what threads released last, and what they may learn at their next fence."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._places: dict[tuple[Memory, int, int], Array] = {}
        self._fenced: dict[int, Array] = {}
        self._read: dict[int, Array] = {}

    def fence(self, agents: Array, now: int) -> None:
        """Threads pass a fence for the whole device."""
        clocks = self._wave.clocks
        for agent in agents:
            learnt = self._read.pop(int(agent), None)
            one = np.array([agent])
            if learnt is not None:
                clocks.acquire(one, learnt)
            self._fenced[int(agent)] = clocks.release(one, now)

    def touch(self, agents: Array, pointers: Pointers, writes: bool) -> None:
        """Threads access places as one step: atomics, and loads and stores that synchronise."""
        if not self._fenced and not self._places:
            return
        for agent, place in zip(agents, places(pointers, len(agents)), strict=True):
            found = self._places.get(place)
            if found is not None:
                before = self._read.get(int(agent))
                self._read[int(agent)] = found if before is None else np.maximum(before, found)
            if writes and int(agent) in self._fenced:
                said = self._fenced[int(agent)]
                self._places[place] = said if found is None else np.maximum(found, said)

    def acquire(self, agents: Array) -> None:
        """Threads learn what they read, as a load that acquires does."""
        for agent in agents:
            learnt = self._read.pop(int(agent), None)
            if learnt is not None:
                self._wave.clocks.acquire(np.array([agent]), learnt)
