"""Remainders and neighbours of floats: rem, mod, floordiv, truncdiv and nextafter. All are exact."""

from __future__ import annotations

import math

from hidet import dtypes
from hidet.cpu.math.format import Format
from hidet.cpu.math.steps import (
    Steps,
    absolute,
    as_bits,
    bit_and,
    both,
    copysign,
    either,
    from_bits,
    is_nan,
    like,
    nearest,
    shift_left,
    shift_right,
)
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, If, While

# f32 quotients have up to 277 bits; a step of the division finds 28 of them.
_STEP_BITS = 28
_STEPS = 10


def rem(s: Steps, x: Expr, y: Expr, form: Format) -> Expr:
    """x - y trunc(x / y), with the sign of x; NaN when x is infinite or y is zero."""
    size, divisor = s.let("size", absolute(x)), s.let("divisor", absolute(y))
    rest = _rest_short(s, size, divisor) if form.is_short else _rest_double(s, size, divisor)
    rest = build.select(build.equal(divisor, math.inf), size, rest)
    valid = both(size < math.inf, divisor > 0.0)
    return copysign(build.select(valid, rest, x * y * math.nan), x)


def _rest_short(s: Steps, size: Expr, divisor: Expr) -> Expr:
    """Remainder of f32 numbers held in f64: a long division whose digits are exact products."""
    inverse = s.let("inverse", 1.0 / divisor)
    rest = size
    for step in reversed(range(_STEPS)):
        unit = 2.0 ** (_STEP_BITS * step)
        digit = s.let("digit", nearest(rest * (inverse / unit if step == 0 else inverse * (1.0 / unit))))
        rest = s.let("rest", fma(-digit, divisor * unit, rest))
    # The last digit is rounded to nearest, so the rest may be negative.
    rest = s.let("rest", build.select(rest < 0.0, rest + divisor, rest))
    return build.select(rest >= divisor, rest - divisor, rest)


def _rest_double(s: Steps, size: Expr, divisor: Expr) -> Expr:
    """Remainder of f64 numbers: a long division of integers, 11 bits a step; scalars only."""
    exponent_x, mantissa_x = _unpack(s, size)
    exponent_y, mantissa_y = _unpack(s, divisor)
    # Zero, infinity and NaN are dealt with by the caller; here they must only not divide by zero.
    y = s.let("y", build.maximum(mantissa_y, 1))
    rest, gap = Var("rest", dtypes.i64), Var("gap", dtypes.i64)
    s.statements += [Declare(rest, mantissa_x), Declare(gap, exponent_x - exponent_y)]
    start = If(gap >= 0, Assign(rest, build.binary("rem", rest, y)))
    count = Var("count", dtypes.i64)
    loop = While(
        both(gap > 0, rest > 0),
        build.seq(
            [
                Declare(count, build.minimum(gap, 10)),
                Assign(rest, build.binary("rem", build.binary("shl", rest, count), y)),
                Assign(gap, gap - count),
            ]
        ),
    )
    s.statements += [start, loop]
    # A rest below 2^53 times 2^exponent, in two exact factors.
    exponent = s.let("exponent", exponent_y - 1075)
    first = s.let("first", build.maximum(exponent, -1000))
    value = build.cast(rest, dtypes.f64) * _exact_power(first) * _exact_power(exponent - first)
    return build.select(size < divisor, size, value)


def _unpack(s: Steps, size: Expr) -> tuple[Expr, Expr]:
    """(exponent field, at least 1; significand as an integer) of a non-negative f64."""
    bits = s.let("bits", as_bits(size, dtypes.i64))
    field = s.let("field", shift_right(bits, 52))
    fraction = bit_and(bits, 2**52 - 1)
    significand = build.select(field > 0, fraction + 2**52, fraction)
    return s.let("exponent", build.maximum(field, 1)), s.let("significand", significand)


def _exact_power(exponent: Expr) -> Expr:
    return from_bits(shift_left(exponent + 1023, 52), dtypes.f64)


def mod(s: Steps, x: Expr, y: Expr, form: Format) -> Expr:
    """x - y floor(x / y), with the sign of y."""
    rest = s.let("remainder", rem(s, x, y, form))
    return _signed_as(rest, y)


def _signed_as(rest: Expr, y: Expr) -> Expr:
    """The remainder moved to the side of y; a zero has the sign of y."""
    moved = build.select(_opposite(rest, y), rest + y, rest)
    return build.select(build.equal(rest, 0.0), copysign(rest, y), moved)


def _opposite(rest: Expr, y: Expr) -> Expr:
    return both(build.binary("ne", rest, 0.0), build.binary("ne", rest < 0.0, y < 0.0))


def floordiv(s: Steps, x: Expr, y: Expr, form: Format) -> Expr:
    """floor(x / y) of the exact quotient, rounded; x / y when y is zero."""
    rest = s.let("remainder", rem(s, x, y, form))
    exact = (x - rest) / y
    quotient = s.let("quotient", build.select(_opposite(rest, y), exact - 1.0, exact))
    floor = s.let("floor", build.unary("floor", quotient))
    rounded = build.select(quotient - floor > 0.5, floor + 1.0, floor)
    plain = s.let("plain", x / y)
    whole = build.select(build.equal(quotient, 0.0), copysign(like(x, 0.0), plain), rounded)
    return build.select(build.equal(y, 0.0), plain, whole)


def truncdiv(s: Steps, x: Expr, y: Expr, form: Format) -> Expr:
    """trunc(x / y), the quotient rounded first."""
    return build.unary("trunc", x / y)


_INTEGERS = {16: dtypes.i16, 32: dtypes.i32, 64: dtypes.i64}


def nextafter(s: Steps, x: Expr, y: Expr) -> Expr:
    """The neighbour of x in the direction of y; y when they are equal."""
    bits = _INTEGERS[x.dtype.bits]
    pattern = s.let("pattern", as_bits(x, bits))
    away = build.binary("eq", x < y, pattern >= 0)
    moved = from_bits(pattern + build.select(away, like(pattern, 1), like(pattern, -1)), x.dtype)
    sign = -(2 ** (bits.bits - 1))
    smallest = from_bits(build.binary("or", bit_and(as_bits(y, bits), sign), 1), x.dtype)
    result = build.select(build.equal(x, 0.0), smallest, moved)
    result = build.select(build.equal(x, y), y, result)
    return build.select(either(is_nan(x), is_nan(y)), x + y, result)
