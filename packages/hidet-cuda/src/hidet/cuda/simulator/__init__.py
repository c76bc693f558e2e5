"""What the intrinsics of NVIDIA's GPUs do, in numpy: one table a group, as in `hidet.cuda.intrinsics`.

They run in `hidet.gpu.simulator`, which `hidet.cuda.intrinsic_families` names.
"""

from __future__ import annotations

from hidet.cuda.simulator.atomic import ATOMIC
from hidet.cuda.simulator.barrier import BARRIER
from hidet.cuda.simulator.bits import BITS
from hidet.cuda.simulator.convert import CONVERT
from hidet.cuda.simulator.copy import COPY
from hidet.cuda.simulator.index import INDEX
from hidet.cuda.simulator.math import MATH
from hidet.cuda.simulator.mma import MMA
from hidet.cuda.simulator.sync import SYNC
from hidet.cuda.simulator.tma import TMA
from hidet.cuda.simulator.warp import WARP_MEANINGS
from hidet.cuda.simulator.wgmma import WGMMA
from hidet.gpu.simulator.meaning import Meaning

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
"""Meanings by the names of the rows of `hidet.cuda.intrinsics`."""
