"""The three kinds of arithmetic that functions are written for.

Every function is written once, over a `Format`. f32 functions either compute in f32 ("single") or in f64 with short
polynomials and one rounding at the end ("short"): that costs twice the vector length, and needs no compensation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from hidet import dtypes
from hidet.dtypes import DType

Level = Literal["single", "short", "double"]


@dataclass(frozen=True, slots=True)
class Format:
    """An arithmetic and the accuracy wanted of it.

    dtype: what is computed in. bits: the integer type of the same width. level: which polynomials serve it.
    """

    dtype: DType
    bits: DType
    level: Level

    @property
    def mantissa(self) -> int:
        """Stored bits of the significand."""
        return self.dtype.mantissa_bits

    @property
    def bias(self) -> int:
        """Exponent field of 1.0."""
        return self.dtype.bias

    @property
    def is_short(self) -> bool:
        """Inputs are f32 values held in f64, so none is subnormal and none is large."""
        return self.level == "short"

    @property
    def magic(self) -> float:
        """Adding and subtracting 1.5 * 2^mantissa rounds to an integer, which meanwhile stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    def pattern(self, value: float) -> int:
        """The bits of `value`, as a non-negative integer."""
        return float_bits(value, self.dtype)


SINGLE = Format(dtypes.f32, dtypes.i32, "single")
SHORT = Format(dtypes.f64, dtypes.i64, "short")
DOUBLE = Format(dtypes.f64, dtypes.i64, "double")


def float_bits(value: float, dtype: DType) -> int:
    """The bits of `value` as an f32 or f64."""
    packing = ("<f", "<I") if dtype.bits == 32 else ("<d", "<Q")
    found: int = struct.unpack(packing[1], struct.pack(packing[0], value))[0]
    return found
