"""Products of a warp (PTX ISA: mma.sync)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.cuda.intrinsics.mma import MMA as ROWS
from hidet.cuda.simulator.fragments import (
    accumulator,
    gathered,
    operand_a,
    operand_b,
    require_groups,
    scattered,
)
from hidet.cuda.simulator.product import multiply_add, operand_values
from hidet.dtypes import DType
from hidet.gpu.simulator.bits import to_bytes
from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site
from hidet.gpu.simulator.memory import Pointers
from hidet.gpu.simulator.team import WARP
from hidet.ir.intrinsic import MatrixShape

Array = np.ndarray[Any, Any]


def registers(site: Site, place: Pointers, dtype: DType, elements: int) -> Array:
    """What each caller holds in an array in registers, [callers, elements]."""
    nbytes = elements * dtype.nbytes
    found = site.wave.load(site.activation, site.lanes, place.cast(dtypes.u8), dtypes.u8, nbytes, vector=True)
    return operand_values(spread(found, site.count), dtype)


def _product(shape: MatrixShape) -> Meaning:
    m, n, k = shape.m, shape.n, shape.k

    def run(site: Site, d: Pointers, a: Pointers, b: Pointers) -> None:
        require_groups(site, WARP)
        of_a, of_b = operand_a(m, k, shape.a.nbytes), operand_b(k, shape.b.nbytes)
        of_d = accumulator(m, n)
        left = gathered(registers(site, a, shape.a, m * k // WARP), of_a, (m, k))
        right = gathered(registers(site, b, shape.b, k * n // WARP), of_b, (k, n))
        before = gathered(registers(site, d, shape.accumulator, m * n // WARP), of_d, (m, n))
        result = scattered(multiply_add(left, right, before, shape.accumulator), of_d)
        data = to_bytes(result, shape.accumulator)
        site.wave.store(site.activation, site.lanes, d.cast(dtypes.u8), dtypes.u8, data)

    return Meaning(run)


MMA: dict[str, Meaning] = {name: _product(row.matrix) for name, row in ROWS.items() if row.matrix is not None}
