"""sin, cos and tan of every finite argument.

|x| = (n + t) pi / 2 with |t| <= 1/2. n modulo 4 and t come from x / (2 pi) modulo 1, computed with as many digits of
1 / (2 pi) as matter for the exponent of x (Payne and Hanek, SIGNUM Newsletter 18, 1983). The digits are cut into floats
so short that products with x are exact and lose their integer part exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hidet import dtypes
from hidet.cpu.math.coefficients import COS, INVERSE_TWO_PI, SIN, TWO_PI
from hidet.cpu.math.format import Format
from hidet.cpu.math.steps import (
    Steps,
    absolute,
    as_bits,
    bit_and,
    fast_two_sum,
    flip_sign,
    from_bits,
    is_odd,
    like,
    nearest,
    polynomial,
    shift_left,
    shift_right,
    two_product,
    two_sum,
)
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.ir.types import with_lanes

SHORT_DIGITS = 29
"""Bits of 1 / (2 pi) in each float of the f32 functions: 24 more bits of x fill the 53 of f64."""

WINDOW_STEP = 26
"""Bits of 1 / (2 pi) from one entry of the f64 table to the next; an entry has twice as many."""


def digits_table_name(lanes: int) -> str:
    """Device function that returns an entry of the f64 table: i64 index in [0, 44) to f64, lane by lane."""
    return f"hidet_inverse_two_pi{f'x{lanes}' if lanes > 1 else ''}"


@dataclass(frozen=True, slots=True)
class _Angle:
    """quadrant: n as an integer, only its two low bits matter. high + low: t pi / 2."""

    quadrant: Expr
    high: Expr
    low: Expr


def sin(s: Steps, x: Expr, form: Format) -> Expr:
    """Sine. Error 0.51 ulp in f32, 0.8 ulp in f64; NaN for infinite x."""
    angle = _reduce(s, x, form)
    value = build.select(is_odd(angle.quadrant), _cosine(s, angle, form), _sine(s, angle, form))
    value = _near_zero(x, value, form)
    signs = shift_left(angle.quadrant, form.bits.bits - 2)
    signs = build.binary("xor", signs, as_bits(x, form.bits))
    return flip_sign(s, s.let("value", value), signs, form)


def cos(s: Steps, x: Expr, form: Format) -> Expr:
    """Cosine. Error 0.51 ulp in f32, 0.8 ulp in f64; NaN for infinite x."""
    angle = _reduce(s, x, form)
    value = build.select(is_odd(angle.quadrant), _sine(s, angle, form), _cosine(s, angle, form))
    return flip_sign(s, s.let("value", value), shift_left(angle.quadrant + 1, form.bits.bits - 2), form)


def tan(s: Steps, x: Expr, form: Format) -> Expr:
    """Tangent. Error 0.53 ulp in f32, 2 ulp in f64; NaN for infinite x."""
    angle = _reduce(s, x, form)
    sine, cosine = s.let("sine", _sine(s, angle, form)), s.let("cosine", _cosine(s, angle, form))
    odd = s.let("odd", is_odd(angle.quadrant))
    value = _near_zero(x, build.select(odd, cosine, sine) / build.select(odd, sine, cosine), form)
    signs = build.binary("xor", shift_left(angle.quadrant, form.bits.bits - 1), as_bits(x, form.bits))
    return flip_sign(s, s.let("value", value), signs, form)


def _near_zero(x: Expr, value: Expr, form: Format) -> Expr:
    """|x| where that is the sine and tangent, `value` elsewhere: the reduction loses digits of subnormal numbers."""
    size = absolute(x)
    return value if form.is_short else build.select(size < 2.0**-27, size, value)


def _sine(s: Steps, angle: _Angle, form: Format) -> Expr:
    r = angle.high
    square = s.let("square", r * r)
    cubic = r * square * polynomial(square, SIN[form.level])
    if form.is_short:
        return r + cubic
    # sin(r + low) = sin(r) + low cos(r)
    return r + (cubic + angle.low * (1.0 - 0.5 * square))


def _cosine(s: Steps, angle: _Angle, form: Format) -> Expr:
    r = angle.high
    square = s.let("square", r * r)
    quartic = square * square * polynomial(square, COS[form.level])
    if form.is_short:
        return 1.0 - 0.5 * square + quartic
    half = s.let("half", 0.5 * square)
    leading = s.let("leading", 1.0 - half)
    return leading + (((1.0 - leading) - half) + (quartic - r * angle.low))


def _fraction(x: Expr) -> Expr:
    """x minus its nearest integer, exact; NaN for infinite x."""
    return x - nearest(x)


def _quarter_turns(s: Steps, turns: Expr, form: Format) -> tuple[Expr, Expr]:
    """(4 turns rounded to an integer, the same as an integer)."""
    shifted = s.let("shifted", turns * 4.0 + form.magic)
    return s.let("quarters", shifted - form.magic), s.let("quadrant", as_bits(shifted, form.bits))


def _reduce(s: Steps, x: Expr, form: Format) -> _Angle:
    size = s.let("size", absolute(x))
    return _reduce_short(s, size, form) if form.is_short else _reduce_double(s, size, form)


def _reduce_short(s: Steps, size: Expr, form: Format) -> _Angle:
    """f32 arguments: three digits of 1 / (2 pi), taken from one of four windows by the size of x.

    From 2^52 on the product with the first digit is an integer, from 2^(52 + 29) on that with the second, and so on.
    """
    digits = INVERSE_TWO_PI["short"]
    tails = INVERSE_TWO_PI["short_tail"]
    chosen = [like(size, digits[0]), like(size, digits[1]), like(size, tails[0])]
    for window in range(1, len(tails)):
        beyond = s.let("beyond", size >= 2.0 ** (52 + SHORT_DIGITS * (window - 1)))
        values = (digits[window], digits[window + 1], tails[window])
        chosen = [build.select(beyond, like(size, v), old) for v, old in zip(values, chosen, strict=True)]
    first = s.let("first", _fraction(s.let("product", size * chosen[0])))
    second = s.let("second", _fraction(s.let("product", size * chosen[1])))
    whole, quadrant = _quarter_turns(s, first + second, form)
    turns = ((first - whole * 0.25) + second) + size * chosen[2]
    return _Angle(quadrant, s.let("r", turns * (2.0 * math.pi)), like(size, 0.0))


def _reduce_double(s: Steps, size: Expr, form: Format) -> _Angle:
    """f64 arguments: four digits of 52 bits, from a table that is read where the integer part of x / (2 pi) ends."""
    exponent = shift_right(as_bits(size, form.bits), form.mantissa) - form.bias
    window = build.maximum(exponent - form.mantissa, 0)
    # Division by 26 as a multiplication, exact for exponents up to 1024.
    window = s.let("window", build.minimum(shift_right(window * 20165, 19), 37))
    scaled = s.let(
        "scaled",
        from_bits(as_bits(size, form.bits) - shift_left(window * WINDOW_STEP, form.mantissa), form.dtype),
    )
    result_type = with_lanes(dtypes.f64, size.lanes)
    digits = [
        s.let("digit", build.call(digits_table_name(size.lanes), window + 2 * k, type=result_type) * 2.0 ** (-52 * k))
        for k in range(4)
    ]
    high0, low0 = two_product(s, scaled, digits[0])
    high1, low1 = two_product(s, scaled, digits[1])
    high2, low2 = two_product(s, scaled, digits[2])
    total, error0 = two_sum(s, s.let("part", _fraction(high0)), s.let("part", _fraction(low0)))
    total, error1 = two_sum(s, total, s.let("part", _fraction(high1)))
    whole, quadrant = _quarter_turns(s, total, form)
    total = s.let("rest", total - whole * 0.25)
    total, error2 = two_sum(s, total, low1)
    total, error3 = two_sum(s, total, high2)
    # Infinity lost its exponent above; the difference is NaN for it and 0 for finite numbers.
    small = error0 + error1 + error2 + error3 + (low2 + scaled * digits[3]) + (size - size)
    turns, turns_low = fast_two_sum(s, total, s.let("small", small))
    angle, angle_low = two_product(s, turns, like(size, TWO_PI["double"][0]))
    low = s.let("low", angle_low + (turns * TWO_PI["double"][1] + turns_low * TWO_PI["double"][0]))
    high, low = fast_two_sum(s, angle, low)
    return _Angle(bit_and(quadrant, 3), high, low)
