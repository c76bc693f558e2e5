"""x ** y for floats and integers.

x ** y = 2 ** (y log2|x|): the logarithm and its product with y are kept as sums of two floats, because their error is
multiplied by up to 1024 (as in Sun's fdlibm, e_pow.c). Special cases: IEEE 754-2019, 9.2.1.
"""

from __future__ import annotations

import math
from fractions import Fraction

from hidet.cpu.math.coefficients import LOG2_E, LOG_TAIL
from hidet.cpu.math.exponential import clamp, exp2_fraction, round_to_bits
from hidet.cpu.math.format import Format
from hidet.cpu.math.logarithm import log2, split_exponent, to_float
from hidet.cpu.math.steps import (
    Steps,
    absolute,
    as_bits,
    both,
    either,
    fast_two_sum,
    is_nan,
    is_odd,
    like,
    negation,
    polynomial,
    scale,
    shift_right,
    two_product,
    two_sum,
)
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, While

_PRODUCT_RANGE = {"short": (-1000.0, 1025.0), "double": (-1076.0, 1025.0)}


def pow_float(s: Steps, x: Expr, y: Expr, form: Format) -> Expr:
    """x ** y. Error 0.51 ulp in f32, 1 ulp in f64."""
    size = s.let("size", absolute(x))
    if form.is_short:
        # 53 bits leave 26 after the point of any product whose power is an f32.
        product, rest = s.let("product", log2(s, size, form) * y), like(x, 0.0)
    else:
        high, low = _log2(s, size, form)
        product, error = two_product(s, high, y)
        rest = error + low * y
        rest = build.select(absolute(rest) < 1.0, rest, like(x, 0.0))
    inside = s.let("inside", clamp(product, _PRODUCT_RANGE[form.level]))
    whole, count = round_to_bits(s, inside, form)
    fraction = s.let("fraction", (inside - whole) + rest)
    value = s.let("value", scale(s, s.let("power", exp2_fraction(fraction, form)), count, form))
    return _special_cases(s, x, y, size, value, form)


def _log2(s: Steps, size: Expr, form: Format) -> tuple[Expr, Expr]:
    """log2 of a positive number in two parts: log(m) = 2/3 s (3 + s^2 + 3/5 s^4 + ...), s = (m - 1) / (m + 1)."""
    k, m = split_exponent(s, size, form)
    exponent = s.let("exponent", to_float(k, form))
    f, above = s.let("f", m - 1.0), s.let("above", m + 1.0)
    quotient = s.let("quotient", f / above)
    # m + 1 may have lost its last digit; (above - 1) is exact.
    lost = m - (above - 1.0)
    quotient_low = s.let("quotient_low", (fma(-quotient, above, f) - quotient * lost) / above)
    square, square_low = two_product(s, quotient, quotient)
    square_low = s.let("square_low", square_low + 2.0 * quotient * quotient_low)
    tail = square * square * polynomial(square, LOG_TAIL[form.level])
    sum_, sum_low = fast_two_sum(s, like(size, 3.0), square)
    sum_, sum_low = fast_two_sum(s, sum_, s.let("sum_low", sum_low + (square_low + tail)))
    series, series_low = two_product(s, quotient, sum_)
    series_low = s.let("series_low", series_low + (quotient * sum_low + quotient_low * sum_))
    unit, unit_low = _two_thirds_log2_e()
    scaled, scaled_low = two_product(s, series, like(size, unit))
    scaled_low = s.let("scaled_low", scaled_low + (series_low * unit + series * unit_low))
    total, total_low = two_sum(s, exponent, scaled)
    return fast_two_sum(s, total, s.let("total_low", total_low + scaled_low))


def _two_thirds_log2_e() -> tuple[float, float]:
    high, low = LOG2_E["double"]
    product = high * 2.0 / 3.0
    return product, float((Fraction(high) + Fraction(low)) * 2 / 3 - Fraction(product))


def _special_cases(s: Steps, x: Expr, y: Expr, size: Expr, value: Expr, form: Format) -> Expr:
    """`value` = |x| ** y for ordinary arguments, completed."""
    zero, one, infinity = like(x, 0.0), like(x, 1.0), like(x, math.inf)
    whole_y = s.let("whole_y", build.unary("trunc", y))
    is_integer = s.let("is_integer", build.equal(whole_y, y))
    # Floats from 2^53 on are even.
    small_y = build.select(absolute(y) < 2.0**53, y, zero)
    halved = s.let("halved", small_y * 0.5)
    odd = s.let("odd", both(is_integer, build.binary("ne", build.unary("trunc", halved), halved)))
    negative_x = s.let("negative_x", as_bits(x, form.bits) < 0)

    size_is_edge = either(build.equal(size, 0.0), build.equal(size, math.inf))
    grows = build.equal(size, math.inf)
    edge = build.select(build.binary("eq", grows, y > 0.0), infinity, zero)
    value = s.let("value", build.select(size_is_edge, edge, value))

    y_infinite = build.equal(absolute(y), math.inf)
    at_infinity = build.select(build.binary("eq", size > 1.0, y > 0.0), infinity, zero)
    at_infinity = build.select(build.equal(size, 1.0), one, at_infinity)
    value = s.let("value", build.select(y_infinite, at_infinity, value))

    value = build.select(both(negative_x, odd), -value, value)
    undefined = both(both(x < 0.0, negation(is_integer)), build.unary("isfinite", x))
    value = s.let("value", build.select(undefined, like(x, math.nan), value))
    value = build.select(either(is_nan(x), is_nan(y)), x + y, value)
    return build.select(either(build.equal(y, 0.0), build.equal(x, 1.0)), one, value)


def pow_integer(s: Steps, base: Expr, exponent: Expr) -> Expr:
    """base ** exponent by squaring, wrapping around; a negative power is 1 / base ** -exponent rounded toward zero."""
    dtype = base.dtype
    remaining = Var("remaining", dtype)
    factor = Var("factor", dtype)
    result = Var("result", dtype)
    zero, one = build.const(0, dtype), build.const(1, dtype)
    start = build.select(exponent < 0, zero, exponent) if dtype.is_signed else exponent
    s.statements += [Declare(remaining, start), Declare(factor, base), Declare(result, one)]
    body = build.seq(
        [
            Assign(result, build.select(is_odd(remaining), result * factor, result)),
            Assign(factor, factor * factor),
            Assign(remaining, shift_right(remaining, 1)),
        ]
    )
    s.statements.append(While(build.binary("ne", remaining, 0), body))
    if not dtype.is_signed:
        return result
    minus_one = build.const(-1, dtype)
    inverse = build.select(build.equal(base, minus_one), build.select(is_odd(exponent), minus_one, one), zero)
    inverse = build.select(build.equal(base, one), one, inverse)
    return build.select(exponent < 0, inverse, result)
