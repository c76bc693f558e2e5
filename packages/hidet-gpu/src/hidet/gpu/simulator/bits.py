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
    return np.asarray(_extended(codes.reshape(len(data), -1), dtype).view(dtype.numpy()))


def _extended(codes: Array, dtype: DType) -> Array:
    """Codes below 8 bits in bytes, as the bytes that elements of `dtype` are: signed ones fill them with their sign."""
    if not (dtype.is_int and dtype.is_signed):
        return codes
    sign = np.uint8(1 << (dtype.bits - 1))
    return np.asarray((codes ^ sign) - sign)


def bitcast(values: Array, source: DType, target: DType, vector: bool) -> Array:
    """The same bits as elements of `target`; values and result are [rows] or [rows, lanes], the latter if `vector`."""
    rows = values if values.ndim == 2 else values[:, None]
    if source.is_subbyte and source.bits == target.bits:
        # A byte each: so many as there are, not as many as fill whole bytes.
        bytes_ = np.ascontiguousarray(rows).view(np.uint8)
        result = _extended(bytes_ & np.uint8((1 << source.bits) - 1), target).view(target.numpy())
        return result if vector else result[:, 0]
    result = from_bytes(to_bytes(rows, source), target)
    return result if vector else result[:, 0]
