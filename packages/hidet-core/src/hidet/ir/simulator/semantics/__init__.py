"""What every intrinsic does, in numpy: one table a family, as in `hidet.ir.intrinsics`."""

from __future__ import annotations

from hidet.ir.simulator.meaning import Meaning
from hidet.ir.simulator.semantics.atomic import ATOMIC
from hidet.ir.simulator.semantics.barrier import BARRIER
from hidet.ir.simulator.semantics.bits import BITS
from hidet.ir.simulator.semantics.convert import CONVERT
from hidet.ir.simulator.semantics.copy import COPY
from hidet.ir.simulator.semantics.index import INDEX
from hidet.ir.simulator.semantics.math import MATH
from hidet.ir.simulator.semantics.mma import MMA
from hidet.ir.simulator.semantics.sync import SYNC
from hidet.ir.simulator.semantics.tma import TMA
from hidet.ir.simulator.semantics.warp import WARP_MEANINGS
from hidet.ir.simulator.semantics.wgmma import WGMMA

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
"""Meanings by the names of the rows of `hidet.ir.intrinsics`."""
