"""Fast functions, computed exactly and rounded once, and arithmetic on packed pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.simulator.bits import bitcast
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


def _pairs(dtype: DType, function: Callable[..., Array]) -> Meaning:
    def run(*words: Array) -> Array:
        result = function(*(bitcast(word, dtypes.u32, dtype, True) for word in words))
        return bitcast(np.asarray(result).astype(dtype.numpy()), dtype, dtypes.u32, False)

    return simple(run)


_PAIRS: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": fma,
    "min": np.minimum,
    "max": np.maximum,
}


def _dot(part: DType, word: DType) -> Meaning:
    def run(a: Array, b: Array, c: Array) -> Array:
        x, y = (bitcast(value, word, part, True).astype(np.int64) for value in (a, b))
        return np.asarray(((x * y).sum(axis=1) + c).astype(word.numpy()))

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
    **{
        f"cuda.{name}_{dtype.short}x2": _pairs(dtype, function)
        for dtype in (dtypes.f16, dtypes.bf16)
        for name, function in _PAIRS.items()
    },
    "cuda.dot_4": _dot(dtypes.i8, dtypes.i32),
    "cuda.dot_4_unsigned": _dot(dtypes.u8, dtypes.u32),
}
