"""Bits of arrays: reinterpretation, with elements below 8 bits packed, the first one lowest."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.dtypes import DType

Array = np.ndarray[Any, Any]


def to_bytes(values: Array, dtype: DType) -> Array:
    """The bytes of rows of values, shape [rows, lanes] -> [rows, bytes]."""
    plain = np.ascontiguousarray(values)
    if not dtype.is_subbyte:
        return plain.view(np.uint8).reshape(len(values), -1)
    per_byte = 8 // dtype.bits
    codes = plain.view(np.uint8).reshape(len(values), -1, per_byte) & np.uint8((1 << dtype.bits) - 1)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    return np.asarray(np.bitwise_or.reduce(codes << shifts, axis=2))


def from_bytes(data: Array, dtype: DType) -> Array:
    """The values that rows of bytes are, shape [rows, bytes] -> [rows, lanes]."""
    plain = np.ascontiguousarray(data)
    if not dtype.is_subbyte:
        return plain.view(dtype.numpy())
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    codes = (plain[:, :, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)
    codes = codes.reshape(len(data), -1)
    if dtype.is_int and dtype.is_signed:
        sign = np.uint8(1 << (dtype.bits - 1))
        codes = (codes ^ sign) - sign
    return np.asarray(codes.view(dtype.numpy()))


def bitcast(values: Array, source: DType, target: DType, vector: bool) -> Array:
    """The same bits as elements of `target`; values and result are [rows] or [rows, lanes], the latter if `vector`."""
    rows = values if values.ndim == 2 else values[:, None]
    result = from_bytes(to_bytes(rows, source), target)
    return result if vector else result[:, 0]
