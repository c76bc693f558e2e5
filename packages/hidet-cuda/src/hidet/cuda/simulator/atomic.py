"""Additions of several neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import Pointers
from hidet.gpu.simulator.semantics.atomic import ATOMIC as ATOMIC_OF_EVERY_GPU

Array = np.ndarray[Any, Any]


def _add_vector(lanes: int) -> Meaning:
    add = ATOMIC_OF_EVERY_GPU["gpu.reduce_add_at"].function

    def run(site: Site, place: Pointers, value: Array) -> None:
        values = spread(value, site.count)
        for lane in range(lanes):
            add(site, place.moved(np.array([lane])), np.ascontiguousarray(values[:, lane]))

    return Meaning(run)


ATOMIC: dict[str, Meaning] = {f"cuda.reduce_add_x{lanes}_at": _add_vector(lanes) for lanes in (2, 4)}
