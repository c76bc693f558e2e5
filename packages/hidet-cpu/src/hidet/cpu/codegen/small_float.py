"""Floats of 8 and 4 bits to and from f32, by integer arithmetic from the parameters of each format.

Formats and their special values: hidet.dtypes. Values beyond the largest become NaN in formats without infinity, and
the largest in formats without NaN, where NaN becomes zero, as ml_dtypes and torch have it; rounding is to nearest, ties
to even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.cpu.codegen.spelling import register_type
from hidet.dtypes import DType
from hidet.ir.types import with_lanes

if TYPE_CHECKING:
    from hidet.cpu.codegen.lines import LineEmitter

_SINGLE_BITS = 32
_SINGLE_MANTISSA = 23
_SINGLE_BIAS = 127
_INFINITY = 0x7F800000
_NAN = 0x7FC00000


class _Words:
    """i32 and f32 instructions on registers of some number of lanes."""

    def __init__(self, emit: LineEmitter, dtype: DType, lanes: int) -> None:
        self.emit = emit
        self.words = with_lanes(dtypes.i32, lanes)
        self.floats = with_lanes(dtypes.f32, lanes)
        self.condition = register_type(with_lanes(dtypes.boolean, lanes))
        self.code = register_type(with_lanes(dtype, lanes))
        self.word, self.single = register_type(self.words), register_type(self.floats)

    def constant(self, value: int) -> str:
        return self.emit.constant(value, self.words)

    def integer(self, instruction: str, a: str, b: int | str) -> str:
        return self.emit.instruction(f"{instruction} {self.word} {a}, {b if isinstance(b, str) else self.constant(b)}")

    def float(self, instruction: str, a: str, b: float | str) -> str:
        other = b if isinstance(b, str) else self.emit.constant(b, self.floats)
        return self.emit.instruction(f"{instruction} {self.single} {a}, {other}")

    def bits(self, a: str) -> str:
        return self.emit.instruction(f"bitcast {self.single} {a} to {self.word}")

    def value(self, a: str) -> str:
        return self.emit.instruction(f"bitcast {self.word} {a} to {self.single}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.emit.select(condition, a, b, self.words)


def small_to_single(emit: LineEmitter, text: str, dtype: DType, lanes: int) -> str:
    """The f32 value of a small float, exact."""
    w = _Words(emit, dtype, lanes)
    code = emit.instruction(f"zext {w.code} {text} to {w.word}")
    if dtype.mantissa_bits == 0:
        return _power_to_single(w, code)
    sign_code = _sign_code(dtype)
    magnitude = w.integer("and", code, sign_code - 1)
    shift = _SINGLE_MANTISSA - dtype.mantissa_bits
    normal = w.integer("add", w.integer("shl", magnitude, shift), (_SINGLE_BIAS - dtype.bias) << _SINGLE_MANTISSA)
    # Subnormal codes are integers times the smallest one.
    count = emit.instruction(f"sitofp {w.word} {magnitude} to {w.single}")
    small = w.bits(w.float("fmul", count, 2.0 ** (1 - dtype.bias - dtype.mantissa_bits)))
    is_small = w.integer("icmp ult", magnitude, 1 << dtype.mantissa_bits)
    bits = w.select(is_small, small, normal)
    if dtype.has_inf:
        exponent_full = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
        special = w.select(w.integer("icmp eq", magnitude, exponent_full), w.constant(_INFINITY), w.constant(_NAN))
        bits = w.select(w.integer("icmp uge", magnitude, exponent_full), special, bits)
    elif dtype.has_nan and not dtype.has_one_zero:
        bits = w.select(w.integer("icmp eq", magnitude, sign_code - 1), w.constant(_NAN), bits)
    sign = w.integer("shl", w.integer("and", code, sign_code), _SINGLE_BITS - dtype.bits)
    bits = w.integer("or", bits, sign)
    if dtype.has_one_zero:
        bits = w.select(w.integer("icmp eq", code, 0x80), w.constant(_NAN), bits)
    return w.value(bits)


def single_to_small(emit: LineEmitter, text: str, dtype: DType, lanes: int) -> str:
    """The small float nearest to an f32 value."""
    w = _Words(emit, dtype, lanes)
    bits = w.bits(text)
    magnitude = w.integer("and", bits, 0x7FFFFFFF)
    code = _single_to_power(w, magnitude) if dtype.mantissa_bits == 0 else _rounded_code(w, magnitude, dtype)
    assert dtype.largest is not None
    largest = dtype.largest_code
    beyond = w.integer("icmp ugt", code, largest)
    nan_code = dtype.nan_code
    excess = largest + 1 if dtype.has_inf else nan_code if dtype.has_nan else largest
    code = w.select(beyond, w.constant(excess), code)
    code = w.select(w.integer("icmp ugt", magnitude, _INFINITY), w.constant(nan_code), code)
    negative = w.integer("lshr", w.integer("and", bits, -0x80000000), _SINGLE_BITS - dtype.bits)
    if dtype.mantissa_bits == 0:
        # Neither zero nor negative values have a code.
        invalid = emit.instruction(f"fcmp ule {w.single} {text}, {emit.constant(0.0, w.floats)}")
        code = w.select(invalid, w.constant(nan_code), code)
    elif dtype.has_one_zero:
        is_plain = w.integer("icmp ne", code, 0)
        code = w.select(is_plain, w.integer("or", code, negative), code)
    else:
        code = w.integer("or", code, negative)
    return emit.instruction(f"trunc {w.word} {code} to {w.code}")


def _sign_code(dtype: DType) -> int:
    return 1 << (dtype.bits - 1)


def _rounded_code(w: _Words, magnitude: str, dtype: DType) -> str:
    """The code of a non-negative value, not limited to the largest; of NaN anything."""
    shift = _SINGLE_MANTISSA - dtype.mantissa_bits
    odd = w.integer("and", w.integer("lshr", magnitude, shift), 1)
    rounded = w.integer("add", w.integer("add", magnitude, (1 << (shift - 1)) - 1), odd)
    normal = w.integer("sub", w.integer("lshr", rounded, shift), (_SINGLE_BIAS - dtype.bias) << dtype.mantissa_bits)
    # Below the smallest normal: adding a number whose last digit is worth the smallest subnormal rounds to it.
    anchor = 2.0 ** (1 - dtype.bias - dtype.mantissa_bits + _SINGLE_MANTISSA)
    anchor_bits = (_SINGLE_BIAS + 1 - dtype.bias - dtype.mantissa_bits + _SINGLE_MANTISSA) << _SINGLE_MANTISSA
    small = w.integer("sub", w.bits(w.float("fadd", w.value(magnitude), anchor)), anchor_bits)
    is_small = w.integer("icmp ult", magnitude, (_SINGLE_BIAS + 1 - dtype.bias) << _SINGLE_MANTISSA)
    return w.select(is_small, small, normal)


def _power_to_single(w: _Words, code: str) -> str:
    """e8m0: 2**(code - 127); code 0 is a subnormal f32, 255 is NaN."""
    bits = w.integer("shl", code, _SINGLE_MANTISSA)
    bits = w.select(w.integer("icmp eq", code, 0), w.constant(0x00400000), bits)
    return w.value(w.select(w.integer("icmp eq", code, 0xFF), w.constant(_NAN), bits))


def _single_to_power(w: _Words, magnitude: str) -> str:
    """e8m0: the nearest power of two, ties upwards; of subnormal values, the next one above 2**-127 as in ml_dtypes."""
    nearest = w.integer("lshr", w.integer("add", magnitude, 1 << 22), _SINGLE_MANTISSA)
    above = w.emit.instruction(f"zext {w.condition} {w.integer('icmp ugt', magnitude, 0x00400000)} to {w.word}")
    return w.select(w.integer("icmp ult", magnitude, 0x00800000), above, nearest)
