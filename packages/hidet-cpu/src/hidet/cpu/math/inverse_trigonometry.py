"""asin, acos, atan, atan2 and hypot."""

from __future__ import annotations

import math

from hidet.cpu.math.coefficients import ASIN, ATAN, HALF_PI
from hidet.cpu.math.format import Format
from hidet.cpu.math.steps import (
    Steps,
    absolute,
    as_bits,
    both,
    copysign,
    either,
    flip_sign,
    is_nan,
    like,
    polynomial,
    power_of_two,
    shift_right,
    square_root,
)
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr

_TAN_EIGHTH = math.tan(math.pi / 8)


def _arc_near(s: Steps, size: Expr, form: Format) -> tuple[Expr, Expr, Expr, Expr]:
    """(is_near, t, t^2, asin(t) - t) where t is |x| up to 1/2, and sqrt((1 - |x|) / 2) beyond.

    asin(|x|) = pi / 2 - 2 asin(sqrt((1 - |x|) / 2)).
    """
    is_near = s.let("near", size <= 0.5)
    square = s.let("square", build.select(is_near, size * size, 0.5 - 0.5 * size))
    t = s.let("t", build.select(is_near, size, square_root(square)))
    return is_near, t, square, s.let("excess", t * square * polynomial(square, ASIN[form.level]))


def _root_error(t: Expr, square: Expr, form: Format) -> Expr:
    """What sqrt(square) lacks of its exact value, t being its rounding."""
    if form.is_short:
        return like(t, 0.0)
    error = fma(-t, t, square) / (t + t)
    return build.select(t > 0.0, error, like(t, 0.0))


def asin(s: Steps, x: Expr, form: Format) -> Expr:
    """Arc sine; NaN outside [-1, 1]. Error 0.51 ulp in f32, 1 ulp in f64."""
    size = s.let("size", absolute(x))
    is_near, t, square, excess = _arc_near(s, size, form)
    high, low = HALF_PI[form.level]
    half = s.let("half", excess + _root_error(t, square, form))
    beyond = high - (2.0 * t + (2.0 * half - low))
    return copysign(build.select(is_near, t + excess, beyond), x)


def acos(s: Steps, x: Expr, form: Format) -> Expr:
    """Arc cosine; NaN outside [-1, 1]. Error 0.51 ulp in f32, 1 ulp in f64."""
    size = s.let("size", absolute(x))
    is_near, t, square, excess = _arc_near(s, size, form)
    high, low = HALF_PI[form.level]
    signed_t, signed_excess = copysign(t, x), s.let("signed", copysign(excess, x))
    middle = high - (signed_t + (signed_excess - low))
    half = s.let("half", excess + _root_error(t, square, form))
    doubled = s.let("doubled", 2.0 * (t + half))
    negative = 2.0 * high - (doubled - 2.0 * low)
    return build.select(is_near, middle, build.select(x < 0.0, negative, doubled))


def atan(s: Steps, x: Expr, form: Format) -> Expr:
    """Arc tangent. Error 0.51 ulp in f32, 0.8 ulp in f64."""
    size = s.let("size", absolute(x))
    return copysign(_atan_quotient(s, size, like(x, 1.0), form), x)


def _atan_quotient(s: Steps, above: Expr, below: Expr, form: Format) -> Expr:
    """atan(above / below) of two non-negative numbers.

    Beyond tan(pi / 8), atan(a / b) = pi / 4 + atan((a - b) / (a + b)), and beyond tan(3 pi / 8), pi / 2 - atan(b / a).
    """
    middle = s.let("middle", above > below * _TAN_EIGHTH)
    far = s.let("far", above * _TAN_EIGHTH > below)
    numerator = build.select(far, -below, build.select(middle, above - below, above))
    denominator = build.select(far, above, build.select(middle, above + below, below))
    numerator, denominator = s.let("numerator", numerator), s.let("denominator", denominator)
    t = s.let("t", numerator / denominator)
    high, low = HALF_PI[form.level]
    zero = like(above, 0.0)
    base = build.select(far, like(above, high), build.select(middle, like(above, high / 2), zero))
    square = s.let("square", t * t)
    excess = s.let("excess", t * square * polynomial(square, ATAN[form.level]))
    if form.is_short:
        return base + (t + excess)
    # The quotient's rounding error, and that of the sum or difference above it, matter where pi / 4 cancels against t.
    error = fma(-t, denominator, numerator)
    inexact = build.select(both(middle, build.unary("lnot", far)), _sum_error(s, above, below, t), zero)
    correction = s.let("correction", (error + inexact) / denominator)
    correction = build.select(build.unary("isfinite", correction), correction, zero)
    base_low = build.select(far, like(above, low), build.select(middle, like(above, low / 2), zero))
    return base + (t + (excess + (base_low + correction)))


def _sum_error(s: Steps, above: Expr, below: Expr, t: Expr) -> Expr:
    """What (a - b) lacks, less t times what (a + b) lacks, of their exact values; a / b is between 0.41 and 2.42."""
    difference = s.let("difference", above - below)
    total = s.let("total", above + below)
    larger, smaller = build.maximum(above, below), build.minimum(above, below)
    lost = s.let("lost", smaller - (total - larger))
    rest = build.select(above > below, (above - difference) - below, above - (below + difference))
    return rest - t * lost


def atan2(s: Steps, y: Expr, x: Expr, form: Format) -> Expr:
    """Angle of the point (x, y), with the signs of zeros. Error 0.51 ulp in f32, 1.5 ulp in f64."""
    above, below = s.let("above", absolute(y)), s.let("below", absolute(x))
    both_infinite = both(build.unary("isinf", above), build.unary("isinf", below))
    both_zero = build.equal(build.maximum(above, below), 0.0)
    equal = s.let("diagonal", both_infinite)
    one, zero = like(x, 1.0), like(x, 0.0)
    # Equal infinities have the angle of equal numbers, two zeros that of the axis.
    above = s.let("above", build.select(equal, one, build.select(both_zero, zero, above)))
    below = s.let("below", build.select(equal, one, build.select(both_zero, one, below)))
    if not form.is_short:
        above, below = _into_range(s, above, below, form)
    angle = s.let("angle", _atan_quotient(s, above, below, form))
    high, low = HALF_PI[form.level]
    left = s.let("left", as_bits(x, form.bits) < 0)
    turned = build.select(left, 2.0 * high - (angle - 2.0 * low), angle)
    # By bits: LLVM 22 turns a copysign between conversions from and to f16 into a library call on x86.
    signed = flip_sign(s, s.let("turned", turned), as_bits(y, form.bits), form)
    return build.select(either(is_nan(x), is_nan(y)), x + y, signed)


def _into_range(s: Steps, a: Expr, b: Expr, form: Format) -> tuple[Expr, Expr]:
    """a and b scaled by one power of two so that neither sums overflow nor quotients of small numbers lose digits."""
    factor = _scale_factor(s, build.maximum(a, b), form)
    return s.let("scaled", a * factor), s.let("scaled", b * factor)


def _scale_factor(s: Steps, largest: Expr, form: Format) -> Expr:
    """A power of two that brings `largest` near 1; infinity stays infinite, zero stays zero."""
    field = shift_right(as_bits(largest, form.bits), form.mantissa)
    limited = build.minimum(build.maximum(field, form.mantissa + 10), 2 * form.bias - 1)
    return s.let("factor", power_of_two(form.bias - limited, form))


def hypot(s: Steps, x: Expr, y: Expr, form: Format) -> Expr:
    """sqrt(x^2 + y^2); infinite if one is, even beside NaN. Error 0.51 ulp in f32, 1.1 ulp in f64."""
    a, b = s.let("a", absolute(x)), s.let("b", absolute(y))
    if form.is_short:
        result = square_root(a * a + b * b)
    else:
        factor = _scale_factor(s, build.maximum(a, b), form)
        a_scaled, b_scaled = s.let("scaled", a * factor), s.let("scaled", b * factor)
        root = s.let("root", square_root(a_scaled * a_scaled + b_scaled * b_scaled))
        # Dividing by a power of two is exact but for results that overflow or are subnormal, which round once.
        result = root / factor
    infinite = either(build.equal(a, math.inf), build.equal(b, math.inf))
    return build.select(infinite, like(x, math.inf), result)
