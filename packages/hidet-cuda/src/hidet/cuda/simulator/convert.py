"""Conversions of packed values."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.simulator.bits import bitcast
from hidet.gpu.simulator.meaning import Meaning, Site, simple
from hidet.gpu.simulator.memory import Pointers

Array = np.ndarray[Any, Any]


def _pack(dtype: DType, word: DType, saturates: bool = False) -> Meaning:
    """Two f32 as neighbours of one word, the first lowest."""

    def run(low: Array, high: Array) -> Array:
        low, high = np.broadcast_arrays(low, high)
        both = np.stack([low, high], axis=1)
        if saturates:
            # NaN stays; finite values and infinities are limited to the largest number (PTX ISA: cvt.satfinite).
            both = np.where(np.isnan(both), both, np.clip(both, -np.float32(dtype.max), np.float32(dtype.max)))
        return bitcast(both.astype(dtype.numpy()), dtype, word, False)

    return simple(run)


def _unpack(dtype: DType) -> Meaning:
    def run(a: Array) -> Array:
        values = bitcast(a, dtypes.u16, dtype, True).astype(np.float16)
        return bitcast(values, dtypes.f16, dtypes.u32, False)

    return simple(run)


def round_tf32(a: Array) -> Array:
    """Words of f32 rounded to tf32, ties away from zero: half of the last kept bit is added to the magnitude, then the
    rest is dropped."""
    bits = a.view(np.uint32) if a.flags.c_contiguous else np.ascontiguousarray(a).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(a), rounded, bits)


def _unpack_nibbles(nibble: DType, target: DType) -> Meaning:
    """Eight codes of a word, lowest first, as four words of two values each, stored in registers."""

    def run(site: Site, place: Pointers, a: Array) -> None:
        codes = bitcast(a, dtypes.u32, nibble, True)
        values = codes.astype(np.float32).astype(target.numpy())
        words = bitcast(values, target, dtypes.u32, True)
        site.wave.store(site.activation, site.lanes, place, dtypes.u32, words)

    return Meaning(run)


CONVERT: dict[str, Meaning] = {
    "cuda.pack_f16": _pack(dtypes.f16, dtypes.u32),
    "cuda.pack_bf16": _pack(dtypes.bf16, dtypes.u32),
    "cuda.round_tf32": simple(round_tf32),
    "cuda.pack_f8e4m3": _pack(dtypes.f8e4m3, dtypes.u16, saturates=True),
    "cuda.pack_f8e5m2": _pack(dtypes.f8e5m2, dtypes.u16, saturates=True),
    "cuda.unpack_f8e4m3": _unpack(dtypes.f8e4m3),
    "cuda.unpack_f8e5m2": _unpack(dtypes.f8e5m2),
    **{
        f"cuda.unpack_{nibble.short}_{target.short}": _unpack_nibbles(nibble, target)
        for nibble in (dtypes.i4, dtypes.u4)
        for target in dtypes.FLOATS_OF_16_BITS
    },
}
