"""Operations on the bits of words."""

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


def _width(a: Array) -> int:
    return int(a.dtype.itemsize) * 8


def _bits(a: Array) -> Array:
    """[rows, bits], lowest first."""
    return np.unpackbits(np.ascontiguousarray(a)[:, None].view(np.uint8), axis=1, bitorder="little")


def _population_count(a: Array) -> Array:
    return np.asarray(_bits(a).sum(axis=1).astype(np.int32))


def _leading_zeros(a: Array) -> Array:
    bits = _bits(a)
    return np.where(bits.any(axis=1), bits[:, ::-1].argmax(axis=1), _width(a)).astype(np.int32)


def _reverse_bits(a: Array) -> Array:
    return np.asarray(np.packbits(_bits(a)[:, ::-1], axis=1, bitorder="little").view(a.dtype)[:, 0])


def _find_first_set(a: Array) -> Array:
    bits = _bits(a)
    return np.where(bits.any(axis=1), bits.argmax(axis=1) + 1, 0).astype(np.int32)


def _mask(length: Array) -> Array:
    """The lowest `length` bits, of at most 32."""
    return np.asarray((np.uint64(1) << np.minimum(length, 32).astype(np.uint64)) - np.uint64(1))


def _extract_bits(a: Array, position: Array, length: Array) -> Array:
    """Position and length count modulo 256; what lies above the word is its sign for signed words (PTX ISA: bfe)."""
    position, length = position & np.uint32(255), length & np.uint32(255)
    wide = a.astype(np.int64)
    shifted = wide >> np.minimum(position, 63).astype(np.int64)
    kept = np.minimum(length, 32).astype(np.int64)
    if a.dtype.kind == "u":
        return np.asarray((shifted.astype(np.uint64) & _mask(length)).astype(a.dtype))
    spare = np.int64(63) - np.maximum(kept, 1) + 1
    return np.where(kept == 0, 0, (shifted << spare) >> spare).astype(a.dtype)


def _insert_bits(a: Array, b: Array, position: Array, length: Array) -> Array:
    position, length = position & np.uint32(255), length & np.uint32(255)
    shift = np.minimum(position, 63).astype(np.uint64)
    mask = (_mask(length) << shift) & np.uint64(0xFFFFFFFF)
    return np.asarray(((b.astype(np.uint64) & ~mask) | ((a.astype(np.uint64) << shift) & mask)).astype(np.uint32))


def _funnel(low: Array, high: Array, shift: Array, left: bool) -> Array:
    both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    by = (shift & np.uint32(31)).astype(np.uint64)
    moved = (both << by) >> np.uint64(32) if left else both >> by
    return np.asarray((moved & np.uint64(0xFFFFFFFF)).astype(np.uint32))


def _multiply_high(a: Array, b: Array) -> Array:
    product = a.astype(object) * b.astype(object)
    bits = _width(a)
    return np.array([int(value) >> bits for value in np.atleast_1d(product)], dtype=object).astype(a.dtype)


BITS: dict[str, Meaning] = {
    "cuda.lop3": simple(_lop3),
    "cuda.byte_permute": simple(_byte_permute),
    "gpu.population_count": simple(_population_count),
    "gpu.leading_zeros": simple(_leading_zeros),
    "gpu.reverse_bits": simple(_reverse_bits),
    "gpu.find_first_set": simple(_find_first_set),
    "gpu.extract_bits": simple(_extract_bits),
    "gpu.insert_bits": simple(_insert_bits),
    "cuda.funnel_shift_left": simple(lambda low, high, shift: _funnel(low, high, shift, left=True)),
    "cuda.funnel_shift_right": simple(lambda low, high, shift: _funnel(low, high, shift, left=False)),
    "gpu.multiply_high": simple(_multiply_high),
}
