"""What every intrinsic does, in numpy: one table a family, as in `hidet.ir.intrinsics`."""

from __future__ import annotations

from hidet.ir.simulator.meaning import Meaning
from hidet.ir.simulator.semantics.atomic import ATOMIC
from hidet.ir.simulator.semantics.bits import BITS
from hidet.ir.simulator.semantics.convert import CONVERT
from hidet.ir.simulator.semantics.index import INDEX
from hidet.ir.simulator.semantics.math import MATH
from hidet.ir.simulator.semantics.sync import SYNC
from hidet.ir.simulator.semantics.warp import WARP_MEANINGS

MEANINGS: dict[str, Meaning] = {**INDEX, **SYNC, **WARP_MEANINGS, **ATOMIC, **CONVERT, **MATH, **BITS}
"""Meanings by the names of the rows of `hidet.ir.intrinsics`."""
