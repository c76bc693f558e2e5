"""Operations on the bits of words."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Meaning, simple

Array = np.ndarray[Any, Any]


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


def _multiply_high(a: Array, b: Array) -> Array:
    product = a.astype(object) * b.astype(object)
    bits = _width(a)
    return np.array([int(value) >> bits for value in np.atleast_1d(product)], dtype=object).astype(a.dtype)


BITS: dict[str, Meaning] = {
    "gpu.population_count": simple(_population_count),
    "gpu.leading_zeros": simple(_leading_zeros),
    "gpu.reverse_bits": simple(_reverse_bits),
    "gpu.find_first_set": simple(_find_first_set),
    "gpu.extract_bits": simple(_extract_bits),
    "gpu.insert_bits": simple(_insert_bits),
    "gpu.multiply_high": simple(_multiply_high),
}
