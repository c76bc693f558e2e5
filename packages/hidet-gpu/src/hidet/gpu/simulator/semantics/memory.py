"""Memory of a block that a launch asks for, and memory that is going to be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import Pointers

Array = np.ndarray[Any, Any]


def _dynamic_shared(site: Site, offset: Array) -> Pointers:
    # Units of 16 bytes are the widest access; narrower ones refine them.
    memory = site.wave.shared(None, site.team.geometry.shared_bytes, 16)
    return Pointers((memory,), None, site.activation.blocks(site.lanes), offset.astype(np.int64), dtypes.u8)


MEMORY: dict[str, Meaning] = {
    "gpu.dynamic_shared_memory": Meaning(_dynamic_shared),
    "gpu.prefetch": Meaning(lambda site, *arguments: None),
}
