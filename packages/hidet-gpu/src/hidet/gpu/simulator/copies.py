"""Work in the background: copies by threads, copies by an engine of the multiprocessor, and matrix products.

What is on its way is marked in memory until it is waited for. Sources in shared memory must not be written before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.errors import DataRace, LaunchError
from hidet.gpu.simulator.memory import Memory, RowError
from hidet.gpu.simulator.report import statement_text

if TYPE_CHECKING:
    from hidet.gpu.simulator.wave import Wave
    from hidet.ir.stmt import Stmt

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class ThreadCopies:
    """Copies that threads started in one statement, at `stamp`: bytes `data`, [rows, bytes], on their way to `index`
    of memory.

    group: the number of the group they belong to, by thread.
    """

    agents: Array
    group: Array
    memory: Memory
    index: Array
    units: Array
    data: Array
    stamp: int

    def part(self, rows: Array) -> ThreadCopies:
        """Those of some rows."""
        return ThreadCopies(
            self.agents[rows],
            self.group[rows],
            self.memory,
            self.index[rows],
            self.units[rows],
            self.data[rows],
            self.stamp,
        )


@dataclass(slots=True)
class Reading:
    """Shared memory that is read in the background since `stamp`: it must not be written until then."""

    memory: Memory
    units: Array
    stamp: int


@dataclass(slots=True)
class Background:
    """One operation of an engine: what it reads, what finishing it does, who started it.

    target: memory and units that count as on their way until all operations on them are finished.
    """

    reading: list[Reading]
    finish: Callable[[], None]
    stmt: Stmt | None
    target: tuple[Memory, Array] | None = None


@dataclass(slots=True)
class Queue:
    """Groups of background operations of one thread or warp group, the open one last."""

    groups: list[list[Background]] = field(default_factory=list)
    open: list[Background] = field(default_factory=list)

    def commit(self) -> None:
        """The open operations become a group."""
        self.groups.append(self.open)
        self.open = []


class Copies:
    """What is on its way in the blocks of a wave."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._started: list[ThreadCopies] = []
        first = wave.first * wave.clocks.agents_per_block
        self._first_agent = first
        self._committed = np.zeros(wave.blocks * wave.clocks.agents_per_block, np.int64)
        self.bulk: dict[int, Queue] = {}
        self.products: dict[int, Queue] = {}
        self.fenced: dict[int, int] = {}
        self.registers_fenced: dict[int, int] = {}

    # --- copies by threads -------------------------------------------------------------------------------------------

    def start(self, agents: Array, memory: Memory, index: Array, units: Array, data: Array, stamp: int) -> None:
        """Threads start copies; their target is not to be touched until they are waited for."""
        memory.shadow.expect(units)
        group = self._committed[agents - self._first_agent].copy()
        self._started.append(ThreadCopies(agents, group, memory, index, units, data, stamp))

    def commit(self, agents: Array) -> None:
        """What each thread started since its last commit becomes a group."""
        self._committed[agents - self._first_agent] += 1

    def finish_groups(self, agents: Array, unfinished: int, stamp: int) -> None:
        """Finish all but the latest `unfinished` groups of each of the threads."""
        self._finish(agents, self._committed[agents - self._first_agent] - unfinished, stamp, stamp)

    def finish_all(self, agents: Array, stamp: int) -> None:
        """Finish all that the threads started."""
        self.finish_started(agents, stamp, stamp)

    def finish_started(self, agents: Array, started: int, stamp: int) -> None:
        """Finish what the threads started until `started`."""
        self._finish(agents, self._committed[agents - self._first_agent] + 1, started, stamp)

    def _finish(self, agents: Array, before: Array, started: int, stamp: int) -> None:
        """Finish copies of groups with a number below `before` that were started until `started`."""
        if not self._started:
            return
        limit = np.full(len(self._committed), -1, np.int64)
        limit[agents - self._first_agent] = before
        kept = []
        for copies in self._started:
            over = (copies.group < limit[copies.agents - self._first_agent]) & (copies.stamp <= started)
            if over.any():
                self._land(copies if over.all() else copies.part(over), stamp)
                if over.all():
                    continue
                copies = copies.part(~over)
            kept.append(copies)
        self._started = kept

    def _land(self, copies: ThreadCopies, stamp: int) -> None:
        copies.memory.data[copies.index] = copies.data
        copies.memory.shadow.land(copies.units)
        copies.memory.shadow.note_write(copies.units, copies.agents, stamp)
        self._wave.scheduler.progress += 1

    # --- engines: copies and products ------------------------------------------------------------------------------

    def finish_queue(self, queue: Queue, unfinished: int) -> None:
        """Finish all but the latest `unfinished` groups."""
        over, queue.groups = (
            queue.groups[: len(queue.groups) - unfinished],
            queue.groups[max(0, len(queue.groups) - unfinished) :],
        )
        for group in over:
            for operation in group:
                self._check_reading(operation)
                operation.finish()
        for operation in [*queue.open, *(operation for group in queue.groups for operation in group)]:
            if operation.target is not None:
                memory, units = operation.target
                memory.shadow.expect(units)
        if over:
            self._wave.scheduler.progress += 1

    def _check_reading(self, operation: Background) -> None:
        for reading in operation.reading:
            late = reading.memory.shadow.written_after(reading.units, reading.stamp)
            if late.any():
                units = reading.units[late]
                others, stamps = reading.memory.shadow.last_writes(units)
                byte = int(units.flat[0]) * reading.memory.shadow.unit % max(reading.memory.stride, 1)
                raise RowError(
                    0,
                    f"data race: {reading.memory.name}, byte {byte}, was written by "
                    f"{self._wave.geometry.describe(int(others.flat[0]))} in "
                    f"{statement_text(self._wave.timeline.statement(int(stamps.flat[0])))} while "
                    f"{statement_text(operation.stmt)} read it in the background",
                    DataRace,
                    hint="wait for the operation before the memory is written again",
                )

    def fence(self, agents: Array, stamp: int) -> None:
        """Threads order their ordinary accesses before those of engines."""
        self.fenced.update(dict.fromkeys(map(int, agents), stamp))

    def require_fence(self, memory: Memory, units: Array, fence: str) -> None:
        """What threads wrote, and an engine reads, needs a fence in between, called `fence`. RowError without."""
        others, stamps = memory.shadow.last_writes(units)
        pairs, where = np.unique(np.stack([others.ravel(), stamps.ravel()]), axis=1, return_index=True)
        engine = self._wave.geometry.threads
        for (agent, stamp), place in zip(pairs.T, where, strict=True):
            by_thread = agent >= 0 and agent % self._wave.clocks.agents_per_block != engine
            if by_thread and self.fenced.get(int(agent), -1) < stamp:
                byte = int(units.ravel()[place]) * memory.shadow.unit % max(memory.stride, 1)
                raise RowError(
                    0,
                    f"{memory.name}, byte {byte}, is read by an asynchronous operation, but "
                    f"{self._wave.geometry.describe(int(agent))}, which wrote it in "
                    f"{statement_text(self._wave.timeline.statement(int(stamp)))}, has passed no {fence} since",
                    hint=f"call {fence} after the writes, before the barrier",
                )

    def check_finished(self) -> None:
        """At the end of the kernel nothing may still read or write shared memory."""
        for what, queues in (("bulk copy", self.bulk), ("matrix product", self.products)):
            for agent, queue in queues.items():
                operations = [*queue.open, *(operation for group in queue.groups for operation in group)]
                if operations:
                    raise LaunchError(
                        f"{self._wave.geometry.describe(agent)} ends with a {what} on its way, started in "
                        f"{statement_text(operations[0].stmt)}",
                        loc=getattr(operations[0].stmt, "loc", None),
                        hint="commit and wait for it before the kernel ends",
                    )
