"""What a machine makes of numbers that are known when a program is built: integers wrap, floats are rounded.

Folding computes with these functions what the program would compute, bit by bit.
"""

from __future__ import annotations

import math
import struct

from hidet import dtypes
from hidet.dtypes import DType

Real = bool | int | float

# How `struct` rounds to a type: to nearest, ties to even; what rounds beyond the largest value does not pack.
_PACKED = {dtypes.f16: struct.Struct("<e"), dtypes.f32: struct.Struct("<f"), dtypes.f64: struct.Struct("<d")}
_FOLDED_FLOATS = frozenset({*_PACKED, dtypes.bf16})


def is_foldable(dtype: DType) -> bool:
    """Whether `held` and `converted` know the numbers of a type; others are converted where the program runs."""
    return dtype.is_compute and (dtype.is_bool or dtype.is_int or dtype in _FOLDED_FLOATS)


def wrapped(value: int, dtype: DType) -> int:
    """The number of an integer type that has the low bits of `value`."""
    lowest = int(dtype.min)
    return value if lowest <= value <= dtype.max else ((value - lowest) & ((1 << dtype.bits) - 1)) + lowest


def held(value: Real, dtype: DType) -> Real:
    """The number that a literal `value` of a foldable type stands for."""
    if dtype.is_bool:
        return bool(value)
    return wrapped(int(value), dtype) if dtype.is_int else _rounded(value, dtype)


def converted(value: Real, source: DType, target: DType) -> Real:
    """What `Cast` makes of a literal of type `source`; both types are foldable.

    Floats become integers by truncation and saturation, NaN becomes 0; integers below 32 bits are the low bits of the
    i32 so made.
    """
    value = held(value, source)
    if isinstance(value, float) and target.is_int:
        return wrapped(_truncated(value, dtypes.i32 if target.bits < 32 else target), target)
    return held(value, target)


def _truncated(value: float, dtype: DType) -> int:
    lowest, highest = int(dtype.min), int(dtype.max)
    if math.isfinite(value):
        return min(max(math.trunc(value), lowest), highest)
    return 0 if math.isnan(value) else highest if value > 0 else lowest


def _rounded(value: Real, dtype: DType) -> float:
    """A number rounded to the nearest one of a float type, ties to even; infinite beyond the largest."""
    if dtype is dtypes.bf16:
        # The upper half of an f32, which processors and numpy round to first.
        (bits,) = struct.unpack("<I", struct.pack("<f", _rounded(value, dtypes.f32)))
        if not math.isnan(value):
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    if isinstance(value, int) and abs(value) > 2**53:
        value = _shortened(value, dtype.mantissa_bits + 1)
    packed = _PACKED[dtype]
    try:
        return float(packed.unpack(packed.pack(float(value)))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _shortened(value: int, bits: int) -> int:
    """An integer rounded to so many significant bits: a float in between would round a second time."""
    unit = 1 << max(abs(value).bit_length() - bits, 0)
    quotient, rest = divmod(value, unit)
    return (quotient + (2 * rest > unit or (2 * rest == unit and quotient % 2 == 1))) * unit
