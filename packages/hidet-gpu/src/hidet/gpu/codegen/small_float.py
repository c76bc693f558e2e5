"""Floats of 8 and 4 bits in C++: structs of their bits, to and from f32 by integer arithmetic.

Every GPU has these; conversions in hardware are intrinsics. Formats and their special values:
hidet.dtypes. Values beyond the largest become NaN in formats without infinity, and the largest in formats without NaN,
where NaN becomes zero, as ml_dtypes and torch have it; rounding is to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Iterator

from hidet import dtypes
from hidet.dtypes import DType

SMALL_FLOATS = (dtypes.f8e4m3, dtypes.f8e4m3fnuz, dtypes.f8e5m2, dtypes.f8e5m2fnuz, dtypes.f8e8m0, dtypes.f4e2m1)
"""The types that have a struct of a byte."""

_MANTISSA = 23
_BIAS = 127
_INFINITY = 0x7F800000
_NAN = 0x7FC00000


def small_float(dtype: DType) -> str:
    """The struct of a type, `to_f32` of it and `to_<short name>` of an f32; words in capitals are `CppWords`."""
    name = dtype.short
    power = dtype.mantissa_bits == 0
    decode = "\n  ".join(_decode_power() if power else _decode(dtype))
    encode = "\n  ".join(_encode_power() if power else _encode(dtype))
    return f"""struct {name} {{ unsigned char bits; }};
INLINE float to_f32({name} a) {{
  {decode}
}}
INLINE {name} to_{name}(float a) {{
  unsigned word = BITS_OF_FLOAT(a), magnitude = word & 0x7fffffffu;
  {encode}
}}"""


def _decode(dtype: DType) -> Iterator[str]:
    sign, shift = 1 << (dtype.bits - 1), _MANTISSA - dtype.mantissa_bits
    bias = (_BIAS - dtype.bias) << _MANTISSA
    yield f"unsigned magnitude = a.bits & {sign - 1:#x}u;"
    # Subnormal codes are integers times the smallest one.
    yield f"unsigned small = BITS_OF_FLOAT((float)magnitude * 0x1p{1 - dtype.bias - dtype.mantissa_bits}f);"
    yield f"unsigned word = magnitude < {1 << dtype.mantissa_bits}u ? small : (magnitude << {shift}) + {bias:#x}u;"
    if dtype.has_inf:
        full = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
        yield f"if (magnitude >= {full:#x}u) word = magnitude == {full:#x}u ? {_INFINITY:#x}u : {_NAN:#x}u;"
    elif dtype.has_nan and not dtype.has_one_zero:
        yield f"if (magnitude == {sign - 1:#x}u) word = {_NAN:#x}u;"
    if dtype.has_one_zero:
        yield f"if (a.bits == {sign:#x}u) word = {_NAN:#x}u;"
    yield f"return FLOAT_OF_BITS(word | (a.bits & {sign:#x}u) << {32 - dtype.bits});"


def _encode(dtype: DType) -> Iterator[str]:
    sign, shift = 1 << (dtype.bits - 1), _MANTISSA - dtype.mantissa_bits
    nan, largest = dtype.nan_code, dtype.largest_code
    excess = largest + 1 if dtype.has_inf else nan if dtype.has_nan else largest
    # Adding a number whose last digit is worth the smallest subnormal rounds to it.
    anchor = 1 - dtype.bias - dtype.mantissa_bits + _MANTISSA
    normal = (_BIAS + 1 - dtype.bias) << _MANTISSA
    bias = (_BIAS - dtype.bias) << dtype.mantissa_bits
    yield f"unsigned small = BITS_OF_FLOAT(FLOAT_OF_BITS(magnitude) + 0x1p{anchor}f) - {_BIAS + anchor << 23:#x}u;"
    yield (
        f"unsigned rounded = ((magnitude + {(1 << (shift - 1)) - 1:#x}u + (magnitude >> {shift} & 1u)) >> {shift})"
        f" - {bias:#x}u;"
    )
    yield f"unsigned code = magnitude < {normal:#x}u ? small : rounded;"
    yield f"if (code > {largest:#x}u) code = {excess:#x}u;"
    yield f"if (magnitude > {_INFINITY:#x}u) code = {nan:#x}u;"
    of_sign = f"code | (word >> 31) * {sign:#x}u"
    yield f"return {{(unsigned char)({f'code ? {of_sign} : 0u' if dtype.has_one_zero else of_sign})}};"


def _decode_power() -> Iterator[str]:
    """2 ** (code - 127); code 0 is a subnormal f32, 255 is NaN."""
    yield f"unsigned word = a.bits == 0xffu ? {_NAN:#x}u : a.bits == 0u ? 0x400000u : (unsigned)a.bits << {_MANTISSA};"
    yield "return FLOAT_OF_BITS(word);"


def _encode_power() -> Iterator[str]:
    """The nearest power of two, ties upwards; of subnormal values the next one above 2 ** -127, as in ml_dtypes.

    Neither zero nor negative values have a code.
    """
    yield f"unsigned nearest = (magnitude + 0x400000u) >> {_MANTISSA};"
    yield "unsigned code = magnitude < 0x800000u ? (unsigned)(magnitude > 0x400000u) : nearest;"
    yield "return {(unsigned char)(a > 0.0f && code <= 0xfeu ? code : 0xffu)};"
