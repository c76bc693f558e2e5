"""Products of matrices as the matrix units compute them, as far as that is documented.

Sums are exact here and rounded once; the hardware's order of additions and its rounding inside are not documented.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.simulator.bits import from_bytes

Array = np.ndarray[Any, Any]


def operand_values(data: Array, dtype: DType) -> Array:
    """Rows of bytes as values of an operand; of tf32 the low 13 bits of a word do not count."""
    if dtype is dtypes.tf32:
        words = np.ascontiguousarray(data).view(np.uint32) & np.uint32(0xFFFFE000)
        return words.view(np.float32)
    return from_bytes(data, dtype)


def multiply_add(a: Array, b: Array, c: Array, accumulator: DType) -> Array:
    """a b + c: [..., m, k] times [..., k, n]. Integer sums wrap around at 32 bits."""
    wide = np.int64 if accumulator.is_int else np.float64
    total = a.astype(wide) @ b.astype(wide) + c.astype(wide)
    return np.asarray(total.astype(accumulator.numpy()))
