"""sinh, cosh, tanh and their inverses, through exp, expm1 and log1p (as in Sun's fdlibm)."""

from __future__ import annotations

import math

from hidet.cpu.math.coefficients import TANH, TWO_LOG2_E
from hidet.cpu.math.exponential import exp2_fraction, exp_half, expm1, round_to_bits
from hidet.cpu.math.format import Format
from hidet.cpu.math.logarithm import log, log1p_positive
from hidet.cpu.math.steps import Steps, absolute, copysign, like, polynomial, power_of_two, square_root
from hidet.ir import build
from hidet.ir.expr import Expr

# From here on tanh is 1 to the last digit.
_TANH_END = 9.1


def sinh(s: Steps, x: Expr, form: Format) -> Expr:
    """Hyperbolic sine. Error 0.51 ulp in f32, 2 ulp in f64."""
    size = s.let("size", absolute(x))
    t = s.let("t", expm1(s, build.minimum(size, 40.0), form))
    near = 0.5 * (t + t / (t + 1.0))
    return copysign(build.select(size < 22.0, near, exp_half(s, size, form)), x)


def cosh(s: Steps, x: Expr, form: Format) -> Expr:
    """Hyperbolic cosine. Error 0.51 ulp in f32, 1.5 ulp in f64."""
    half = s.let("half", exp_half(s, s.let("size", absolute(x)), form))
    return half + 0.25 / half


def tanh(s: Steps, x: Expr, form: Format) -> Expr:
    """Hyperbolic tangent. Error 1.5 ulp in f32, 2 ulp in f64."""
    size = s.let("size", absolute(x))
    if form.level != "single":
        t = s.let("t", expm1(s, build.minimum(2.0 * size, 45.0), form))
        return copysign(t / (t + 2.0), x)
    square = s.let("square", size * size)
    near = size + size * square * polynomial(square, TANH[form.level])
    # 1 - 2 / (exp(2 |x|) + 1). The factor 2 log2(e) comes in two parts, so that the power is right to the last digit.
    inside = s.let("inside", build.minimum(size, _TANH_END))
    high, low = TWO_LOG2_E[form.level]
    whole, count = round_to_bits(s, inside * high, form)
    fraction = s.let("f", (inside * high - whole) + inside * low)
    power = s.let("power", exp2_fraction(fraction, form) * power_of_two(count, form))
    far = 1.0 - 2.0 / (power + 1.0)
    return copysign(build.select(size < 0.75, near, far), x)


def asinh(s: Steps, x: Expr, form: Format) -> Expr:
    """Inverse hyperbolic sine. Error 0.51 ulp in f32, 2 ulp in f64."""
    size = s.let("size", absolute(x))
    square = s.let("square", size * size)
    near = s.let("near", log1p_positive(s, size + square / (1.0 + square_root(square + 1.0)), form))
    return copysign(_or_log_of_double(s, size, near, form), x)


def acosh(s: Steps, x: Expr, form: Format) -> Expr:
    """Inverse hyperbolic cosine; NaN below 1. Error 0.51 ulp in f32, 2 ulp in f64."""
    above = s.let("above", x - 1.0)
    near = s.let("near", log1p_positive(s, above + square_root(2.0 * above + above * above), form))
    return build.select(x >= 1.0, _or_log_of_double(s, x, near, form), like(x, math.nan))


def _or_log_of_double(s: Steps, x: Expr, near: Expr, form: Format) -> Expr:
    """`near`, or log(2 x) where the square of x has nothing to add or overflows."""
    if form.is_short:
        return build.select(x < math.inf, near, x)
    return build.select(x < 2.0**28, near, log(s, x, form) + math.log(2.0))


def atanh(s: Steps, x: Expr, form: Format) -> Expr:
    """Inverse hyperbolic tangent; infinite at 1, NaN beyond. Error 0.51 ulp in f32, 1.3 ulp in f64."""
    size = s.let("size", absolute(x))
    double = s.let("double", size + size)
    ratio = s.let("ratio", double + double * size / (1.0 - size))
    value = s.let("value", 0.5 * log1p_positive(s, ratio, form))
    finite = build.select(size < 2.0**-28, size, value)
    outside = build.select(build.equal(size, 1.0), like(x, math.inf), like(x, math.nan))
    return copysign(build.select(size < 1.0, finite, outside), x)
