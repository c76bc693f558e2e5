"""Whether two programs of a task have computed the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hidet import dtypes

Array = np.ndarray[Any, Any]


_AT_ONCE = 1 << 20
"""Elements that are compared at once: few enough for a core's cache, many enough that Python costs nothing."""


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
        # The difference of two numbers of a narrow type has few digits.
        wide: Any = np.float64 if dtype.nbytes > 4 else np.float32
        scale, worst = 0.0, 0.0
        for start in range(0, right.size, _AT_ONCE):
            wanted = right[start : start + _AT_ONCE].astype(wide, copy=False)
            got = other[start : start + _AT_ONCE].astype(wide, copy=False)
            with np.errstate(invalid="ignore", over="ignore"):
                apart = np.abs(wanted - got)
            if not np.isfinite(apart).all():
                is_finite = np.isfinite(wanted)
                if not np.array_equal(wanted[~is_finite], got[~is_finite], equal_nan=True):
                    return f"wrong results: output {number} differs in infinities or NaN"
                if not is_finite.any():
                    continue
                wanted, apart = wanted[is_finite], apart[is_finite]
            scale = max(scale, float(np.abs(wanted).max()))
            # A maximum that meets NaN is NaN, which is not at most anything.
            worst = float(np.maximum(worst, apart.max()))
        summed = dtypes.f64 if dtype == dtypes.f64 else dtypes.f32
        limit = 4 * dtype.unit_roundoff + 8 * math.sqrt(terms) * summed.unit_roundoff
        if not worst <= limit * scale:
            return (
                f"wrong results: output {number} differs by {worst / (scale or 1.0):.1e}, expected {limit:.1e} at most"
            )
    return ""
