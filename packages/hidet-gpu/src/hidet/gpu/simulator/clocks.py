"""Which accesses to memory are ordered, by vector clocks over threads and barriers.

Time is one counter of the launch; every access is stamped with it. An agent is a thread, or the copy engine of a block.
Agent t is ordered after what agent u did at stamp s when t knows u up to s. Knowledge is kept for the blocks of one
domain: a cluster, or all blocks that are run at once when the kernel synchronises over global memory. A barrier of a
whole block, the common case, is remembered as one number: everything in the block up to then is known to all of it.

After Fidge (1988) and Mattern (1989), and FastTrack (Flanagan and Freund 2009) for keeping only last accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hidet.ir.stmt import Stmt

Array = np.ndarray[Any, Any]

NEVER = -1
"""Stamp of what did not happen, and agent of what nobody did."""


class Clocks:
    """Knowledge of the agents of the blocks `first` to `first + blocks` of a launch.

    threads: of one block. domain: how many neighbouring blocks may know of each other.
    """

    def __init__(self, threads: int, first: int, blocks: int, domain: int) -> None:
        self.agents_per_block = threads + 1
        self.domain_agents = self.agents_per_block * domain
        self._first_agent = first * self.agents_per_block
        self._agents = blocks * self.agents_per_block
        self._first_block = first
        self._floor = np.full(blocks, NEVER, np.int64)
        self._table: Array | None = None

    def ordered(self, agents: Array, others: Array, stamps: Array) -> Array:
        """Whether each of `agents` is ordered after what the agent beside it in `others` did at its stamp."""
        result = (others == agents) | (others == NEVER)
        if result.all():
            return np.asarray(result)
        block = agents // self.agents_per_block
        same_block = others // self.agents_per_block == block
        result = result | (same_block & (stamps <= self._floor[block - self._first_block]))
        if self._table is not None:
            domain = agents // self.domain_agents
            near = others // self.domain_agents == domain
            column = np.where(near, others - domain * self.domain_agents, 0)
            result = result | (near & (stamps <= self._table[agents - self._first_agent, column]))
        return np.asarray(result)

    def join_blocks(self, blocks: Sequence[int] | Array, now: int) -> None:
        """All threads of each of `blocks` meet: what any of them did, all know."""
        if self.domain_agents > self.agents_per_block:
            for block in blocks:
                start = int(block) * self.agents_per_block
                self.join(np.arange(start, start + self.agents_per_block - 1), now)
        self._floor[np.asarray(blocks) - self._first_block] = now

    def join(self, agents: Array, now: int) -> None:
        """Agents of one domain meet."""
        self.acquire(agents, self.release(agents, now))

    def join_rows(self, agents: Array, now: int) -> None:
        """Every row of the matrix `agents` is a group that meets, as the warps of a block do."""
        table = self._knowledge()
        rows = agents - self._first_agent
        known = table[rows].max(axis=1)
        columns = agents - agents[:, :1] // self.domain_agents * self.domain_agents
        np.put_along_axis(known, columns, now, axis=1)
        table[rows] = known[:, None, :]

    def release(self, agents: Array, now: int) -> Array:
        """What `agents` of one domain know and did together, for somebody who waits for them."""
        known: Array = self._knowledge()[agents - self._first_agent].max(axis=0)
        known[agents % self.domain_agents] = now
        for block in np.unique(agents // self.agents_per_block):
            self._spread_floor(known, int(block))
        return known

    def _spread_floor(self, known: Array, block: int) -> None:
        """What a barrier of a whole block made known stands in the floor, not in the table."""
        floor = self._floor[block - self._first_block]
        if floor != NEVER:
            start = block * self.agents_per_block % self.domain_agents
            part = known[start : start + self.agents_per_block]
            np.maximum(part, floor, out=part)

    def acquire(self, agents: Array, known: Array) -> None:
        """`agents` learn what a release said."""
        table = self._knowledge()
        rows = agents - self._first_agent
        table[rows] = np.maximum(table[rows], known)

    def note(self, known: Array, agent: int, stamp: int) -> None:
        """Add to a release what one agent of the domain did up to `stamp`."""
        column = agent % self.domain_agents
        known[column] = max(int(known[column]), stamp)

    def nothing(self) -> Array:
        """A release that says nothing."""
        return np.full(self.domain_agents, NEVER, np.int32)

    def _knowledge(self) -> Array:
        if self._table is None:
            self._table = np.full((self._agents, self.domain_agents), NEVER, np.int32)
        return self._table


class Timeline:
    """The time of a launch, and which statement ran when."""

    def __init__(self) -> None:
        self._statements: list[Stmt | None] = [None]

    @property
    def now(self) -> int:
        """The stamp of the last access."""
        return len(self._statements) - 1

    def tick(self, stmt: Stmt | None) -> int:
        """The stamp of an access that `stmt` makes."""
        self._statements.append(stmt)
        return len(self._statements) - 1

    def statement(self, stamp: int) -> Stmt | None:
        """The statement that made the access with this stamp; None for none."""
        return self._statements[stamp] if stamp >= 0 else None
