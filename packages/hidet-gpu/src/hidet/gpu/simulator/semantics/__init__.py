"""What every intrinsic does, in numpy: one table a family, as in `hidet.gpu.intrinsics`."""

from __future__ import annotations

from hidet.gpu.simulator.meaning import Meaning
from hidet.gpu.simulator.semantics.atomic import ATOMIC
from hidet.gpu.simulator.semantics.barrier import BARRIER
from hidet.gpu.simulator.semantics.bits import BITS
from hidet.gpu.simulator.semantics.convert import CONVERT
from hidet.gpu.simulator.semantics.copy import COPY
from hidet.gpu.simulator.semantics.index import INDEX
from hidet.gpu.simulator.semantics.math import MATH
from hidet.gpu.simulator.semantics.mma import MMA
from hidet.gpu.simulator.semantics.sync import SYNC
from hidet.gpu.simulator.semantics.tma import TMA
from hidet.gpu.simulator.semantics.warp import WARP_MEANINGS
from hidet.gpu.simulator.semantics.wgmma import WGMMA

MEANINGS: dict[str, Meaning] = {
    **INDEX,
    **SYNC,
    **WARP_MEANINGS,
    **ATOMIC,
    **COPY,
    **MMA,
    **WGMMA,
    **BARRIER,
    **TMA,
    **CONVERT,
    **MATH,
    **BITS,
}
"""Meanings by the names of the rows of `hidet.gpu.intrinsics`."""
