"""Operations on the bits of words that NVIDIA's GPUs have besides."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, immediate, simple

Array = np.ndarray[Any, Any]

_BYTE = np.uint64(0xFF)


def _lop3(a: Array, b: Array, c: Array, lut: Array) -> Array:
    table = immediate(lut)
    result: Array = np.zeros(1, np.uint32)
    for number in range(8):
        if table >> number & 1:
            x = a if number & 4 else ~a
            y = b if number & 2 else ~b
            z = c if number & 1 else ~c
            result = result | (x & y & z)
    return result


def _byte_permute(a: Array, b: Array, selector: Array) -> Array:
    """Byte i of the result is the byte that bits 4i to 4i + 2 name; bit 4i + 3 asks for its sign eight times."""
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result: Array = np.zeros(1, np.uint64)
    for byte in range(4):
        nibble = (selector.astype(np.uint64) >> np.uint64(4 * byte)) & np.uint64(15)
        value = (both >> ((nibble & np.uint64(7)) * np.uint64(8))) & _BYTE
        signs = np.where(value & np.uint64(0x80) != 0, _BYTE, np.uint64(0))
        result = result | (np.where(nibble & np.uint64(8) != 0, signs, value) << np.uint64(8 * byte))
    return result.astype(np.uint32)


def _funnel(low: Array, high: Array, shift: Array, left: bool) -> Array:
    both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    by = (shift & np.uint32(31)).astype(np.uint64)
    moved = (both << by) >> np.uint64(32) if left else both >> by
    return np.asarray((moved & np.uint64(0xFFFFFFFF)).astype(np.uint32))


BITS: dict[str, Meaning] = {
    "cuda.lop3": simple(_lop3),
    "cuda.byte_permute": simple(_byte_permute),
    "cuda.funnel_shift_left": simple(lambda low, high, shift: _funnel(low, high, shift, left=True)),
    "cuda.funnel_shift_right": simple(lambda low, high, shift: _funnel(low, high, shift, left=False)),
}
