"""Memory of a block that a launch asks for, and copies by threads in the background."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import Pointers, element_starts

Array = np.ndarray[Any, Any]
_COPIED = 16
"""Bytes of a copy in the background."""


def _dynamic_shared(site: Site, offset: Array) -> Pointers:
    # Units of 16 bytes are the widest access; narrower ones refine them.
    memory = site.wave.shared(None, site.team.geometry.shared_bytes, 16)
    return Pointers((memory,), None, site.activation.blocks(site.lanes), offset.astype(np.int64), dtypes.u8)


def start_copies(site: Site, target: Pointers, data: Array) -> None:
    """Start copying `data` to shared memory, which other threads must be done with."""
    size = data.shape[1]
    stamp = site.tick()
    for memory, rows, segment, offset in target.parts(site.count):
        starts = element_starts(memory, rows, segment, offset, 1, size, size)
        units = memory.shadow.units(starts, size)
        agents = site.agents[rows]
        conflict = memory.shadow.write(units, agents, site.wave.clocks, stamp)
        if conflict is not None:
            raise site.wave.conflict_error(memory, conflict, rows, "written")
        site.wave.note_traffic(site.activation, site.lanes, memory, rows, starts, size)
        site.wave.copies.start(agents, memory, starts[:, None] + np.arange(size), units, data[rows], stamp)


def _copy_async(site: Site, target: Pointers, source: Pointers) -> None:
    data = site.wave.load(site.activation, site.lanes, source.cast(dtypes.u8), dtypes.u8, _COPIED, vector=True)
    start_copies(site, target, data)


FINISH_COPIES = Meaning(lambda site: site.wave.copies.finish_all(site.agents, site.tick()))
"""Wait for all that the threads copy in the background."""

MEMORY: dict[str, Meaning] = {
    "gpu.dynamic_shared_memory": Meaning(_dynamic_shared),
    "gpu.copy_async": Meaning(_copy_async),
    "gpu.copy_async_finish": FINISH_COPIES,
}
