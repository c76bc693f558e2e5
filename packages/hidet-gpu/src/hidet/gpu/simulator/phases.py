"""Barriers in shared memory that count arrivals and bytes by phases (PTX ISA: mbarrier).

Copies to shared memory that report to a barrier land when somebody asks it, not before: a kernel that does not ask
reads memory that is still marked as on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet import dtypes
from hidet.gpu.simulator.memory import Memory, Pointers, RowError
from hidet.gpu.simulator.strand import Steps, Wait

if TYPE_CHECKING:
    from hidet.gpu.simulator.meaning import Site
    from hidet.gpu.simulator.wave import Wave

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Phases:
    """One barrier. `pending`: arrivals its phase still expects. `nbytes`: bytes it still expects, negative when copies
    came first. `phase`: how many are over. `known`, `completed`: what arrivals of this phase and of those over said."""

    name: str
    expected: int
    pending: int
    known: Array
    completed: Array
    nbytes: int = 0
    phase: int = 0
    landing: list[Callable[[], None]] = field(default_factory=list)


class PhaseBarriers:
    """All such barriers of a wave, by memory, segment and offset."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._made: dict[tuple[Memory, int, int], Phases] = {}

    def make(self, site: Site, pointers: Pointers, counts: Array) -> None:
        """Threads make one barrier each."""
        self._wave.store(site.activation, site.lanes, pointers, dtypes.u64, np.zeros(1, np.uint64))
        counts = np.broadcast_to(counts, (site.count,))
        for row, (memory, segment, offset) in enumerate(places(pointers, site.count)):
            nothing = self._wave.clocks.nothing()
            count = int(counts[row])
            if count < 1:
                raise RowError(row, f"a barrier is made that expects {count} arrivals, expected at least 1")
            name = f"{memory.name}, byte {offset}"
            self._made[(memory, segment, offset)] = Phases(name, count, count, nothing, nothing)

    def end(self, site: Site, pointers: Pointers) -> None:
        """End the use of barriers."""
        for barrier, key in zip(self.find(site, pointers), places(pointers, site.count), strict=True):
            if barrier.landing:
                raise RowError(0, f"the barrier at {barrier.name} ends while copies report to it")
            self._made.pop(key, None)

    def find(self, site: Site, pointers: Pointers) -> list[Phases]:
        """The barrier of each thread, which must know that it was made."""
        found = []
        for row, (memory, segment, offset) in enumerate(places(pointers, site.count)):
            found.append(self.at(memory, segment, offset, row))
        self._wave.load(site.activation, site.lanes, pointers, dtypes.u64, 1, atomic=True)
        return found

    def at(self, memory: Memory, segment: int, offset: int, row: int) -> Phases:
        """The barrier at one place. RowError when there is none."""
        found = self._made.get((memory, segment, offset))
        if found is None:
            raise RowError(row, f"there is no barrier at {memory.name}, byte {offset}; it has to be initialised")
        return found

    def arrive(self, site: Site, pointers: Pointers, expect: Array | None = None) -> None:
        """Each thread arrives once, after it said how many more bytes this phase expects."""
        more = np.zeros(1, np.int64) if expect is None else expect
        more = np.broadcast_to(more, (site.count,))
        for row, barrier in enumerate(self.find(site, pointers)):
            barrier.nbytes += int(more[row])
            self.count_arrival(barrier, self._wave.clocks.release(site.agents[row : row + 1], site.tick()), row)

    def count_arrival(self, barrier: Phases, known: Array, row: int = 0) -> None:
        """Somebody arrives and says what it knows."""
        if barrier.pending == 0:
            raise RowError(
                row, f"more threads arrive at the barrier at {barrier.name} than the {barrier.expected} it expects"
            )
        barrier.pending -= 1
        barrier.known = np.maximum(barrier.known, known)
        self._complete(barrier)

    def expect(self, site: Site, pointers: Pointers, nbytes: Array, sign: int) -> None:
        """Count bytes as expected (`sign` 1) or as copied (-1)."""
        amounts = np.broadcast_to(nbytes, (site.count,))
        for row, barrier in enumerate(self.find(site, pointers)):
            barrier.nbytes += sign * int(amounts[row])
            self._complete(barrier)

    def count_bytes(self, barrier: Phases, nbytes: int, known: Array) -> None:
        """A copy of `nbytes` landed, which makes `known` what its sender knew and the copy itself."""
        barrier.nbytes -= nbytes
        barrier.known = np.maximum(barrier.known, known)
        self._complete(barrier)

    def _complete(self, barrier: Phases) -> None:
        if barrier.pending == 0 and barrier.nbytes == 0:
            barrier.completed = np.maximum(barrier.completed, barrier.known)
            barrier.known = self._wave.clocks.nothing()
            barrier.pending = barrier.expected
            barrier.phase += 1
            self._wave.scheduler.progress += 1

    def is_over(self, barrier: Phases, parity: int) -> bool:
        """Whether the phase of `parity` is over; copies that report to the barrier land first."""
        landing, barrier.landing = barrier.landing, []
        for land in landing:
            land()
        return barrier.phase % 2 != parity

    def test(self, site: Site, pointers: Pointers, parities: Array) -> Array:
        """Whether the phase of `parities` is over, a thread each, which then knows what its arrivals said."""
        wanted = np.broadcast_to(parities, (site.count,))
        barriers = self.find(site, pointers)
        over = np.array([self.is_over(b, int(p)) for b, p in zip(barriers, wanted, strict=True)])
        for row in np.flatnonzero(over):
            self._wave.clocks.acquire(site.agents[row : row + 1], barriers[row].completed)
        return over

    def wait(self, site: Site, pointers: Pointers, parities: Array) -> Steps:
        """Wait until the phases are over."""
        wanted = np.broadcast_to(parities, (site.count,))
        pairs = {(id(b), int(p)): (b, int(p)) for b, p in zip(self.find(site, pointers), wanted, strict=True)}
        barriers = self.find(site, pointers)

        def ready() -> bool:
            over = [self.is_over(barrier, parity) for barrier, parity in pairs.values()]
            return all(over)

        def what() -> str:
            barrier, parity = next((b, p) for b, p in pairs.values() if b.phase % 2 == p)
            return (
                f"for the phase of parity {parity} of the barrier at {barrier.name}, which is in phase {barrier.phase} "
                f"and expects {barrier.pending} of {barrier.expected} arrivals and {barrier.nbytes} bytes"
            )

        if not ready():
            yield Wait(what, ready)
        for known, rows in _grouped(barriers):
            self._wave.clocks.acquire(site.agents[rows], known.completed)

    def unfinished(self) -> str | None:
        """The name of a barrier that copies were still to report to; None for none."""
        return next((barrier.name for barrier in self._made.values() if barrier.landing), None)


def places(pointers: Pointers, count: int) -> list[tuple[Memory, int, int]]:
    """Memory, segment and offset of each of `count` threads."""
    found: list[tuple[Memory, int, int] | None] = [None] * count
    for memory, rows, segment, offset in pointers.parts(count):
        for row, part, byte in zip(rows, segment, offset, strict=True):
            found[row] = (memory, int(part), int(byte))
    return [place for place in found if place is not None]


def _grouped(barriers: list[Phases]) -> list[tuple[Phases, Array]]:
    """The rows of each distinct barrier."""
    distinct = {id(barrier): barrier for barrier in barriers}
    names = np.array([id(barrier) for barrier in barriers])
    return [(barrier, np.flatnonzero(names == key)) for key, barrier in distinct.items()]
