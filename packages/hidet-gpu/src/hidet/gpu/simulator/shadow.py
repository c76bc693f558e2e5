"""What is remembered of every element of memory: who wrote it, who read it, and whether it may be read yet.

An element here is a unit of bytes: the declared element of the memory, or less once somebody accesses less. Of its
readers the last one in each of four groups of warps is remembered, so a race with a reader may be missed; what is
reported is a race. Writes of equal values by several threads in one statement are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.gpu.simulator.clocks import NEVER

if TYPE_CHECKING:
    from hidet.gpu.simulator.clocks import Clocks

Array = np.ndarray[Any, Any]

_READER_SLOTS = 4
_WARP = 32


@dataclass(frozen=True, slots=True)
class Conflict:
    """An access that breaks a rule: by the thread in row `row` of the access, at byte `byte` of the memory.

    kind: "unwritten", "pending" (a copy that nobody waited for is on its way there), or "race" with what agent `other`
    did at `stamp`, which was a write if `other_wrote`.
    """

    kind: str
    row: int
    byte: int
    other: int = NEVER
    stamp: int = NEVER
    other_wrote: bool = False


class Shadow:
    """The state of `count` units of `unit` bytes. `written`: whether memory has contents from before.

    `shared`: whether several threads see it, so that races exist.
    """

    def __init__(self, nbytes: int, unit: int, written: bool, shared: bool) -> None:
        self.unit = unit
        count = -(-nbytes // unit)
        self._written = np.full(count, written)
        self._pending = np.zeros(count, np.bool_)
        self._any_pending = False
        self._all_written = written
        self._shared = shared
        self._writer: Array | None = None
        self._write_stamp = np.empty(0, np.int64)
        self._atomic = np.empty(0, np.bool_)
        self._reader = np.empty((0, _READER_SLOTS), np.int64)
        self._read_stamp = np.empty((0, _READER_SLOTS), np.int64)
        self._read_log: list[tuple[Array, Array, int]] = []

    def units(self, starts: Array, nbytes: int) -> Array:
        """The units of accesses of `nbytes` at each of `starts`, one row an access."""
        if nbytes % self.unit or (starts % self.unit).any():
            self._refine(gcd(self.unit, nbytes, *(int(start) for start in np.unique(starts % self.unit))))
        first = starts // self.unit
        return first[:, None] + np.arange(nbytes // self.unit)

    def _refine(self, unit: int) -> None:
        """Keep the state of smaller units."""
        times = self.unit // unit
        if self._read_log:
            self._log_to_table()
        for name in ("_written", "_pending", "_writer", "_write_stamp", "_atomic", "_reader", "_read_stamp"):
            held = getattr(self, name)
            if held is not None:
                setattr(self, name, np.repeat(held, times, axis=0))
        self.unit = unit

    # --- reads -------------------------------------------------------------------------------------------------------

    def read(self, units: Array, agents: Array, clocks: Clocks, stamp: int, atomic: bool = False) -> Conflict | None:
        """Note reads of `units`, a row for each of `agents`; the first one that is wrong, if any."""
        if not self._all_written:
            bad = ~self._written[units]
            if bad.any():
                return self._conflict("unwritten", units, bad)
        if self._any_pending:
            bad = self._pending[units]
            if bad.any():
                return self._conflict("pending", units, bad)
        if not self._shared:
            return None
        if self._writer is None:
            if not atomic:
                self._read_log.append((units, agents, stamp))
            return None
        race = self._race_with_writer(units, agents, clocks, atomic)
        if race is None and not atomic:
            self._note_read(units, agents, stamp)
        return race

    def _note_read(self, units: Array, agents: Array, stamp: int) -> None:
        slots = np.broadcast_to(agents[:, None] // _WARP % _READER_SLOTS, units.shape)
        self._reader[units, slots] = agents[:, None]
        self._read_stamp[units, slots] = stamp

    def _log_to_table(self) -> None:
        """Memory that is only read needs no table; the first write makes one of the reads before it."""
        count = len(self._written)
        self._writer = np.full(count, NEVER, np.int64)
        self._write_stamp = np.full(count, NEVER, np.int64)
        self._atomic = np.zeros(count, np.bool_)
        self._reader = np.full((count, _READER_SLOTS), NEVER, np.int64)
        self._read_stamp = np.full((count, _READER_SLOTS), NEVER, np.int64)
        for units, agents, stamp in self._read_log:
            self._note_read(units, agents, stamp)
        self._read_log.clear()

    # --- writes ------------------------------------------------------------------------------------------------------

    def write(self, units: Array, agents: Array, clocks: Clocks, stamp: int, atomic: bool = False) -> Conflict | None:
        """Note writes of `units`, a row for each of `agents`; the first one that is wrong, if any."""
        if self._any_pending:
            bad = self._pending[units]
            if bad.any():
                return self._conflict("pending", units, bad)
        if not self._shared:
            self.note_write(units, agents, stamp)
            return None
        if self._writer is None:
            self._log_to_table()
        race = self._race_with_writer(units, agents, clocks, atomic)
        race = race or self._race_with_readers(units, agents, clocks)
        self.note_write(units, agents, stamp)
        self._atomic[units] = atomic
        return race

    def _race_with_writer(self, units: Array, agents: Array, clocks: Clocks, atomic: bool) -> Conflict | None:
        assert self._writer is not None
        others, stamps = self._writer[units], self._write_stamp[units]
        fine = clocks.ordered(np.broadcast_to(agents[:, None], units.shape), others, stamps)
        if atomic:
            fine |= self._atomic[units]
        if fine.all():
            return None
        return self._conflict("race", units, ~fine, others, stamps, True)

    def _race_with_readers(self, units: Array, agents: Array, clocks: Clocks) -> Conflict | None:
        others, stamps = self._reader[units], self._read_stamp[units]
        known = clocks.ordered(np.broadcast_to(agents[:, None, None], others.shape), others, stamps)
        if known.all():
            return None
        bad = ~known.all(axis=2)
        row, column = (int(i) for i in np.argwhere(bad)[0])
        slot = int(np.flatnonzero(~known[row, column])[0])
        byte = int(units[row, column]) * self.unit
        return Conflict("race", row, byte, int(others[row, column, slot]), int(stamps[row, column, slot]))

    # --- copies on their way -----------------------------------------------------------------------------------------

    def expect(self, units: Array) -> None:
        """A copy to `units` is under way: they are not to be touched until it lands."""
        self._pending[units] = True
        self._any_pending = True
        self._written[units] = True

    def land(self, units: Array) -> None:
        """A copy arrived."""
        self._pending[units] = False
        self._any_pending = bool(self._pending.any())

    def note_write(self, units: Array, agents: Array, stamp: int) -> None:
        """Somebody wrote `units`, a row for each of `agents`, in an order that was checked before."""
        if not self._all_written:
            self._written[units] = True
        if not self._shared:
            return
        if self._writer is None:
            self._log_to_table()
        assert self._writer is not None
        self._writer[units] = agents[:, None]
        self._write_stamp[units] = stamp
        self._atomic[units] = False

    def written(self, units: Array) -> Array:
        """Which of `units` have been written."""
        return self._written[units]

    def is_written(self, units: Array) -> bool:
        """Whether all `units` have been written."""
        return self._all_written or bool(self._written[units].all())

    def written_after(self, units: Array, stamp: int) -> Array:
        """Which of `units` were written after `stamp`."""
        if self._writer is None:
            return np.zeros(units.shape, np.bool_)
        return np.asarray(self._write_stamp[units] > stamp)

    def last_writes(self, units: Array) -> tuple[Array, Array]:
        """Who wrote `units` last, and when."""
        if self._writer is None:
            return np.full(units.shape, NEVER), np.full(units.shape, NEVER)
        return self._writer[units], self._write_stamp[units]

    def _conflict(
        self,
        kind: str,
        units: Array,
        bad: Array,
        others: Array | None = None,
        stamps: Array | None = None,
        wrote: bool = False,
    ) -> Conflict:
        row, column = (int(i) for i in np.argwhere(bad)[0])
        byte = int(units[row, column]) * self.unit
        if others is None or stamps is None:
            return Conflict(kind, row, byte)
        return Conflict(kind, row, byte, int(others[row, column]), int(stamps[row, column]), wrote)
