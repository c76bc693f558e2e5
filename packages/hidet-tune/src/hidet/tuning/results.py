"""Whether two programs of a task have computed the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hidet import dtypes

Array = np.ndarray[Any, Any]


def difference(expected: Sequence[Array], found: Sequence[Array], terms: int) -> str:
    """How results differ from those expected by more than the order of sums explains; "" for not.

    terms: of the longest sum.
    """
    for number, (right, other) in enumerate(zip(expected, found, strict=True)):
        dtype = dtypes.from_numpy(right.dtype)
        if not dtype.is_float:
            if not np.array_equal(right, other):
                return f"wrong results: output {number} differs"
            continue
        wanted, got = right.astype(np.float64), other.astype(np.float64)
        is_finite = np.isfinite(wanted)
        if not np.array_equal(wanted[~is_finite], got[~is_finite], equal_nan=True):
            return f"wrong results: output {number} differs in infinities or NaN"
        if not is_finite.any():
            continue
        summed = dtypes.f64 if dtype == dtypes.f64 else dtypes.f32
        limit = 4 * dtype.unit_roundoff + 8 * math.sqrt(terms) * summed.unit_roundoff
        scale = float(np.abs(wanted[is_finite]).max())
        worst = float(np.abs(wanted - got)[is_finite].max())
        if not worst <= limit * scale:
            return (
                f"wrong results: output {number} differs by {worst / (scale or 1.0):.1e}, expected {limit:.1e} at most"
            )
    return ""
