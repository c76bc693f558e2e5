"""Barriers that threads of a block, a warp or a cluster come to (PTX ISA: bar, bar.warp, barrier.cluster)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.gpu.simulator.memory import RowError
from hidet.gpu.simulator.strand import Steps, Wait
from hidet.gpu.simulator.team import WARP

if TYPE_CHECKING:
    from hidet.gpu.simulator.lanes import Lanes
    from hidet.gpu.simulator.meaning import Site
    from hidet.gpu.simulator.team import Team
    from hidet.gpu.simulator.wave import Wave

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Arrivals:
    """One barrier: who came since it last completed, who of them tells what it wrote, and who waits.

    generation: how often it completed. known: what completing it last time made known.
    """

    expected: int
    agents: list[Array] = field(default_factory=list)
    said: list[Array] = field(default_factory=list)
    waiting: list[Array] = field(default_factory=list)
    generation: int = 0
    known: Array | None = None

    @property
    def count(self) -> int:
        """How many came."""
        return sum(len(part) for part in self.agents)


_OF_BLOCK = 0
"""The number of the barrier of a whole block."""


class Barriers:
    """The barriers of the blocks of a wave. Keys: ("block", slot, number), ("warp", warp, mask), ("cluster", rank)."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._arrivals: dict[tuple[str, int, int], Arrivals] = {}
        self._cluster_targets: dict[int, int] = {}
        self._ended_of_slot: Counter[int] = Counter()
        self._ended_of_warp: Counter[int] = Counter()

    def whole_block(self, site: Site) -> Steps:
        """All threads of each block meet."""
        if site.lanes.whole:
            self._wave.clocks.join_blocks(site.team.block_numbers, site.tick())
            self._wave.scheduler.progress += 1
            return
        yield from self.numbered(site, _OF_BLOCK, None, True)

    def ended(self, team: Team, lanes: Lanes) -> None:
        """Threads leave the kernel: barriers of their block wait for the others alone, since sm_70."""
        self._ended_of_warp.update(map(int, team.warp[lanes.index]))
        for slot, count in Counter(map(int, team.slot[lanes.index])).items():
            self._ended_of_slot[slot] += count
            state = self._arrivals.get(("block", slot, _OF_BLOCK))
            if state is not None and state.count:
                state.expected -= count
                if state.count == state.expected:
                    self._complete(state, self._wave.timeline.now)

    def numbered(self, site: Site, number: int, threads: int | None, waits: bool) -> Steps:
        """Whole warps come to barrier `number` of their block, which `threads` threads come to; None: all that are left
        of the block."""
        self._require_whole_warps(site, f"barrier {number}")
        slots = site.team.slot[site.lanes.index]
        targets = []
        for slot in map(int, np.unique(slots)):
            expected = site.team.threads - self._ended_of_slot[slot] if threads is None else threads
            state = self._arrive(site, ("block", slot, number), site.agents[slots == slot], expected, waits)
            targets.append(state)
        if waits:
            yield from self._wait(targets, f"barrier {number}")

    def warp(self, site: Site, masks: Array) -> Steps:
        """The threads of a warp whose bits are set in `masks` meet."""
        masks = np.broadcast_to(masks, (site.count,))
        warps, lane = site.team.warp[site.lanes.index], site.team.thread[site.lanes.index] % WARP
        outside = (masks >> lane.astype(masks.dtype)) & 1 == 0
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise RowError(row, f"the thread is lane {lane[row]}, whose bit is not set in mask {int(masks[row]):#x}")
        if site.lanes.whole and (masks == 0xFFFFFFFF).all() and site.team.threads % WARP == 0:
            self._wave.clocks.join_rows(site.agents.reshape(-1, WARP), site.tick())
            return
        targets = []
        pairs = np.unique(np.stack([warps, masks.astype(np.int64)]), axis=1)
        for warp, mask in ((int(warp), int(mask)) for warp, mask in pairs.T):
            members = (warps == warp) & (masks == mask)
            block_warps = -(-site.team.threads // WARP)
            present = min(WARP, site.team.threads - warp % block_warps * WARP)
            expected = (mask & ((1 << present) - 1)).bit_count()
            targets.append(self._arrive(site, ("warp", warp, mask), site.agents[members], expected, True))
        yield from self._wait(targets, "its warp")

    def _arrive(
        self,
        site: Site,
        key: tuple[str, int, int],
        agents: Array,
        expected: int,
        waits: bool,
        relaxed: bool = False,
    ) -> tuple[Arrivals, int]:
        """Count arrivals; the barrier, and the generation that says it is complete."""
        state = self._arrivals.setdefault(key, Arrivals(expected))
        if state.count and state.expected != expected:
            raise RowError(
                0,
                f"barrier {key[2]} is come to by threads that expect {state.expected} and {expected} threads there",
            )
        state.expected = expected
        if state.count + len(agents) > expected:
            raise RowError(
                0,
                f"{state.count + len(agents)} threads come to barrier {key[2]}, which {expected} are to come to",
            )
        target = state.generation + 1
        state.agents.append(agents)
        if not relaxed:
            state.said.append(agents)
        if waits:
            state.waiting.append(agents)
        if state.count == expected:
            self._complete(state, site.tick())
        return state, target

    def _complete(self, state: Arrivals, now: int) -> None:
        clocks = self._wave.clocks
        state.known = clocks.release(np.concatenate(state.said), now) if state.said else clocks.nothing()
        if state.waiting:
            clocks.acquire(np.concatenate(state.waiting), state.known)
        state.agents, state.said, state.waiting = [], [], []
        state.generation += 1
        self._wave.scheduler.progress += 1

    def _wait(self, targets: list[tuple[Arrivals, int]], name: str) -> Steps:
        def what() -> str:
            state = next(state for state, target in targets if state.generation < target)
            return f"at {name}, which {state.count} of {state.expected} threads have come to"

        def ready() -> bool:
            return all(state.generation >= target for state, target in targets)

        if not ready():
            yield Wait(what, ready)

    # --- clusters ----------------------------------------------------------------------------------------------------

    def cluster_arrive(self, site: Site, relaxed: bool = False) -> None:
        """Threads come to the barrier of their cluster; `relaxed`: without telling what they wrote."""
        blocks = site.team.geometry.cluster_blocks
        clusters = site.team.block[site.lanes.index] // blocks
        for cluster in np.unique(clusters):
            agents = site.agents[clusters == cluster]
            for agent in agents:
                if int(agent) in self._cluster_targets:
                    raise RowError(0, "a thread comes to the barrier of its cluster twice without waiting there")
            expected = blocks * site.team.threads
            _, target = self._arrive(site, ("cluster", int(cluster), 0), agents, expected, False, relaxed)
            self._cluster_targets.update(dict.fromkeys(map(int, agents), target))

    def cluster_wait(self, site: Site) -> Steps:
        """Wait for all threads of the cluster."""
        blocks = site.team.geometry.cluster_blocks
        clusters = site.team.block[site.lanes.index] // blocks
        targets = []
        for cluster in np.unique(clusters):
            agents = site.agents[clusters == cluster]
            if any(int(agent) not in self._cluster_targets for agent in agents):
                raise RowError(0, "a thread waits at the barrier of its cluster without having come to it")
            target = max([self._cluster_targets.pop(int(agent)) for agent in agents])
            targets.append((self._arrivals[("cluster", int(cluster), 0)], target))
        yield from self._wait(targets, "the barrier of its cluster")
        for (state, _), cluster in zip(targets, np.unique(clusters), strict=True):
            assert state.known is not None
            self._wave.clocks.acquire(site.agents[clusters == cluster], state.known)

    def _require_whole_warps(self, site: Site, what: str) -> None:
        """Barriers count warps: all threads that are left of a warp come to them together."""
        threads = site.team.threads
        warps, counts = np.unique(site.team.warp[site.lanes.index], return_counts=True)
        block_warps = -(-threads // WARP)
        full = np.minimum(WARP, threads - warps % block_warps * WARP)
        full -= np.array([self._ended_of_warp[int(warp)] for warp in warps])
        partial = counts != full
        if partial.any():
            which = int(np.flatnonzero(partial)[0])
            row = int(np.flatnonzero(site.team.warp[site.lanes.index] == warps[which])[0])
            raise RowError(
                row,
                f"only {counts[which]} of the {full[which]} threads of a warp come to {what}",
                hint="move the barrier out of the branch, or let whole warps take it",
            )
