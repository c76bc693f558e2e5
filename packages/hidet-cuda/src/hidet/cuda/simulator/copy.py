"""Reads and writes with cache hints, copies by threads in the background, and matrix fragments from shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.cuda.simulator.fragments import require_groups
from hidet.gpu.simulator.clocks import NEVER
from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site, immediate
from hidet.gpu.simulator.memory import Pointers, RowError, element_starts, pick_value
from hidet.gpu.simulator.phases import Phases
from hidet.gpu.simulator.semantics.memory import FINISH_COPIES, start_copies
from hidet.gpu.simulator.team import WARP

Array = np.ndarray[Any, Any]


def _load(site: Site, source: Pointers) -> Array:
    count = site.node.lanes
    wave, activation = site.wave, site.activation
    return wave.load(activation, site.lanes, source, source.dtype, count, vector=count > 1)


def _load_constant(site: Site, source: Pointers) -> Array:
    """As `_load`, of memory that the launch has not written."""
    size = source.dtype.nbytes * site.node.lanes
    for memory, rows, segment, offset in source.parts(site.count):
        starts = element_starts(memory, rows, segment, offset, source.dtype.nbytes, site.node.lanes, 1)
        writers, _ = memory.shadow.last_writes(memory.shadow.units(starts, size))
        written = (writers != NEVER).any(axis=1)
        if written.any():
            row = int(rows[np.flatnonzero(written)[0]])
            raise RowError(
                row,
                f"{memory.name} is read as memory that no thread writes, but this kernel wrote it",
                hint="read it with an ordinary load",
            )
    return _load(site, source)


def _store(site: Site, target: Pointers, value: Array) -> None:
    site.wave.store(site.activation, site.lanes, target, target.dtype, value)


def _copy_async(nbytes: int) -> Meaning:
    def run(site: Site, target: Pointers, source: Pointers, valid: Array) -> None:
        amounts = spread(valid, site.count)
        wrong = (amounts < 0) | (amounts > nbytes)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise RowError(row, f"{int(amounts[row])} of {nbytes} bytes are valid, expected 0 to {nbytes}")
        data = np.zeros((site.count, nbytes), np.uint8)
        for amount in np.unique(amounts):
            rows = amounts == amount
            if amount:
                part = pick_value(source, rows).cast(dtypes.u8)
                lanes = site.lanes.only(rows)
                count = int(amount)
                data[rows, :count] = site.wave.load(site.activation, lanes, part, dtypes.u8, count, vector=True)
        start_copies(site, target, data)

    return Meaning(run)


def _wait(site: Site, groups: Array) -> None:
    site.wave.copies.finish_groups(site.agents, immediate(groups), site.tick())


def _arrive(site: Site, barrier: Pointers) -> None:
    """Each thread arrives when what it has started is finished, which is when somebody asks the barrier."""
    started = site.tick()
    for row, phases in enumerate(site.wave.phases.find(site, barrier)):
        phases.landing.append(_Arrival(site, phases, row, started))


class _Arrival:
    """The arrival of one thread behind its copies."""

    def __init__(self, site: Site, phases: Phases, row: int, started: int) -> None:
        self._site = site
        self._phases = phases
        self._row = row
        self._started = started
        self._stmt = site.activation.stmt

    def __call__(self) -> None:
        wave, agent = self._site.wave, self._site.agents[self._row : self._row + 1]
        stamp = wave.timeline.tick(self._stmt)
        wave.copies.finish_started(agent, self._started, stamp)
        wave.phases.count_arrival(self._phases, wave.clocks.release(agent, stamp), self._row)


def _load_matrix(count: int, transposed: bool) -> Meaning:
    def run(site: Site, target: Pointers, row: Pointers) -> None:
        require_groups(site, WARP)
        lane = np.arange(site.count) % WARP
        asked = lane < 8 * count
        part, lanes = pick_value(row, asked).cast(dtypes.u16), site.lanes.only(asked)
        rows = site.wave.load(site.activation, lanes, part, dtypes.u16, 8, vector=True)
        matrices = spread(rows, int(asked.sum())).reshape(-1, count, 8, 8)
        if transposed:
            matrices = matrices.transpose(0, 1, 3, 2)
        words = np.ascontiguousarray(matrices).view(np.uint32).reshape(-1, count, 32)
        values = words.transpose(0, 2, 1).reshape(-1, count)
        site.wave.store(site.activation, site.lanes, target.cast(dtypes.u32), dtypes.u32, values)

    return Meaning(run)


def _store_matrix(count: int, transposed: bool) -> Meaning:
    def run(site: Site, row: Pointers, source: Pointers) -> None:
        require_groups(site, WARP)
        part = source.cast(dtypes.u32)
        words = site.wave.load(site.activation, site.lanes, part, dtypes.u32, count, vector=True)
        words = spread(words, site.count).reshape(-1, WARP, count).transpose(0, 2, 1)
        matrices = np.ascontiguousarray(words).view(np.uint16).reshape(-1, count, 8, 8)
        if transposed:
            matrices = matrices.transpose(0, 1, 3, 2)
        asked = np.arange(site.count) % WARP < 8 * count
        values = np.ascontiguousarray(matrices).reshape(-1, 8)
        target = pick_value(row, asked).cast(dtypes.u16)
        site.wave.store(site.activation, site.lanes.only(asked), target, dtypes.u16, values)

    return Meaning(run)


def map_to_block(site: Site, place: Pointers, rank: Array) -> Pointers:
    """The same place in the shared memory of the cluster's block number `rank`."""
    blocks = site.team.geometry.cluster_blocks
    ranks = np.asarray(rank, np.int64)
    wrong = (ranks < 0) | (ranks >= blocks)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise RowError(row, f"block {int(ranks[row])} of the cluster is named, which has {blocks} blocks")
    segment = site.activation.blocks(site.lanes) // blocks * blocks + ranks
    return Pointers(place.memories, place.which, segment, place.offset, place.dtype)


def _policy(site: Site) -> Array:
    return np.zeros(1, np.uint64)


COPY: dict[str, Meaning] = {
    "cuda.load_constant": Meaning(_load_constant),
    "cuda.load_constant_streaming": Meaning(_load_constant),
    "cuda.load_streaming": Meaning(_load),
    "cuda.load_l2": Meaning(_load),
    "cuda.store_streaming": Meaning(_store),
    "cuda.store_l2": Meaning(_store),
    **{f"cuda.copy_async_{nbytes}": _copy_async(nbytes) for nbytes in (4, 8, 16)},
    "cuda.copy_async_commit": Meaning(lambda site: site.wave.copies.commit(site.agents)),
    "cuda.copy_async_wait": Meaning(_wait),
    "cuda.copy_async_wait_all": FINISH_COPIES,
    "cuda.copy_async_arrive": Meaning(_arrive),
    **{
        f"cuda.{name}_matrix_x{count}{'_transposed' if transposed else ''}": make(count, transposed)
        for name, make in (("load", _load_matrix), ("store", _store_matrix))
        for count in (1, 2, 4)
        for transposed in (False, True)
    },
    "cuda.prefetch_l2": Meaning(lambda site, source: None),
    "cuda.cache_policy_evict_first": Meaning(_policy),
    "cuda.cache_policy_evict_last": Meaning(_policy),
    "cuda.shared_address": Meaning(lambda site, place: place.bits().astype(np.uint32)),
    "cuda.map_to_block": Meaning(map_to_block),
    "cuda.load_cluster": Meaning(_load),
    "cuda.store_cluster": Meaning(_store),
}
