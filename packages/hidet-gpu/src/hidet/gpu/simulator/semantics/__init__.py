"""What the intrinsics of every GPU do, in numpy: one table a group, as in `hidet.gpu.intrinsics`."""

from __future__ import annotations

from hidet.gpu.simulator.meaning import Meaning
from hidet.gpu.simulator.semantics.atomic import ATOMIC
from hidet.gpu.simulator.semantics.bits import BITS
from hidet.gpu.simulator.semantics.index import INDEX
from hidet.gpu.simulator.semantics.math import MATH
from hidet.gpu.simulator.semantics.memory import MEMORY
from hidet.gpu.simulator.semantics.sync import SYNC
from hidet.gpu.simulator.semantics.warp import WARP_MEANINGS

MEANINGS: dict[str, Meaning] = {**INDEX, **SYNC, **WARP_MEANINGS, **ATOMIC, **MEMORY, **MATH, **BITS}
"""Meanings by the names of the rows of `hidet.gpu.intrinsics`."""
