"""Arithmetic on packed pairs and quarters of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.simulator.bits import bitcast
from hidet.gpu.simulator.meaning import Meaning, simple
from hidet.gpu.simulator.semantics.math import fma

Array = np.ndarray[Any, Any]


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
    **{
        f"cuda.{name}_{dtype.short}x2": _pairs(dtype, function)
        for dtype in dtypes.FLOATS_OF_16_BITS
        for name, function in _PAIRS.items()
    },
    "cuda.dot_4": _dot(dtypes.i8, dtypes.i32),
    "cuda.dot_4_unsigned": _dot(dtypes.u8, dtypes.u32),
}
