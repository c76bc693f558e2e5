"""Fast functions, computed exactly and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, simple

Array = np.ndarray[Any, Any]


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f64, then rounded."""
    wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return np.asarray(wide.astype(a.dtype))


def _exact(function: Callable[[Array], Array], flushes: bool = False) -> Meaning:
    """`function` in f64 of an f32; `flushes`: results below the smallest normal number become zero."""

    def run(a: Array) -> Array:
        result = function(a.astype(np.float64)).astype(np.float32)
        tiny = np.abs(result) < np.finfo(np.float32).tiny
        return np.where(tiny, np.copysign(np.float32(0), result), result) if flushes else result

    return simple(run)


MATH: dict[str, Meaning] = {
    "gpu.fma": simple(fma),
    "gpu.exp2_approx": _exact(np.exp2, flushes=True),
    "gpu.log2_approx": _exact(np.log2),
    "gpu.reciprocal_approx": _exact(np.reciprocal, flushes=True),
    "gpu.rsqrt_approx": _exact(lambda a: np.reciprocal(np.sqrt(a))),
    "gpu.sqrt_approx": _exact(np.sqrt),
    "gpu.sin_approx": _exact(np.sin),
    "gpu.cos_approx": _exact(np.cos),
    "gpu.tanh_approx": _exact(np.tanh),
}
