"""log, log2, log10 and log1p.

x = 2^k m with m from sqrt(1/2) to sqrt(2), log(x) = k ln(2) + log(m). In f32 log(m) is a polynomial in f = m - 1; in
f64 it is one in s = f / (2 + f), which converges faster than it costs (as in Sun's fdlibm, e_log.c).
"""

from __future__ import annotations

import math

from hidet.cpu.math.coefficients import LN2, LOG, LOG2_E, LOG10_2, LOG10_E, LOG_QUOTIENT
from hidet.cpu.math.format import Format
from hidet.cpu.math.steps import (
    Steps,
    as_bits,
    copysign,
    fast_two_sum,
    from_bits,
    like,
    polynomial,
    power_of_two,
    shift_left,
    shift_right,
)
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr


def split_exponent(s: Steps, x: Expr, form: Format) -> tuple[Expr, Expr]:
    """(k, m) of a positive x = 2^k m, m from sqrt(1/2) to sqrt(2); k is an integer of `form.bits`."""
    if form.is_short:
        return _split_normal(s, x, form)
    shift = form.mantissa + 2
    is_subnormal = s.let("subnormal", x < 2.0 ** (1 - form.bias))
    normal = s.let("normal", build.select(is_subnormal, x * 2.0**shift, x))
    k, m = _split_normal(s, normal, form)
    return s.let("k", k - build.select(is_subnormal, like(k, shift), like(k, 0))), m


def _split_normal(s: Steps, x: Expr, form: Format) -> tuple[Expr, Expr]:
    bits = s.let("bits", as_bits(x, form.bits))
    k = s.let("k", shift_right(bits - form.pattern(math.sqrt(0.5)), form.mantissa))
    return k, s.let("m", from_bits(bits - shift_left(k, form.mantissa), form.dtype))


def to_float(k: Expr, form: Format) -> Expr:
    """A small integer as a float, by placing it in the mantissa: f64 has no fast conversion before AVX-512."""
    return from_bits(k + form.pattern(form.magic), form.dtype) - form.magic


def log_tail(s: Steps, f: Expr, form: Format) -> Expr:
    """f - log(1 + f), for 1 + f from sqrt(1/2) to sqrt(2)."""
    square = s.let("square", f * f)
    if form.level == "single":
        return 0.5 * square - square * f * polynomial(f, LOG[form.level])
    quotient = s.let("s", f / (2.0 + f))
    z = s.let("z", quotient * quotient)
    half_square = s.let("half_square", 0.5 * square)
    return half_square - quotient * (half_square + z * polynomial(z, LOG_QUOTIENT[form.level]))


def at_the_edges(x: Expr, value: Expr) -> Expr:
    """`value`, a logarithm of x, replaced at zero, infinity, NaN and negative x."""
    finite = build.select(x < math.inf, value, x)
    other = build.select(build.equal(x, 0.0), like(x, -math.inf), like(x, math.nan))
    return build.select(x > 0.0, finite, other)


def log(s: Steps, x: Expr, form: Format) -> Expr:
    """Natural logarithm. Error 0.9 ulp in f32, 0.8 ulp in f64."""
    k, m = split_exponent(s, x, form)
    f = s.let("f", m - 1.0)
    return at_the_edges(x, _sum_with_exponent(s, k, f, log_tail(s, f, form), form))


def _sum_with_exponent(s: Steps, k: Expr, f: Expr, tail: Expr, form: Format) -> Expr:
    """k ln(2) + (f - tail), the smallest terms first."""
    exponent = s.let("exponent", to_float(k, form))
    high, low = LN2[form.level]
    return exponent * high + (f - (tail - exponent * low))


def log2(s: Steps, x: Expr, form: Format) -> Expr:
    """Logarithm to base 2, exact at powers of 2. Error 0.6 ulp."""
    return _scaled_log(s, x, form, LOG2_E[form.level], (1.0, 0.0))


def log10(s: Steps, x: Expr, form: Format) -> Expr:
    """Logarithm to base 10. Error 0.6 ulp."""
    return _scaled_log(s, x, form, LOG10_E[form.level], LOG10_2[form.level])


def _scaled_log(s: Steps, x: Expr, form: Format, unit: tuple[float, ...], exponent_unit: tuple[float, ...]) -> Expr:
    """k * exponent_unit + log(m) * unit, constants given as (high, low) sums."""
    k, m = split_exponent(s, x, form)
    f = s.let("f", m - 1.0)
    tail = s.let("tail", log_tail(s, f, form))
    exponent = s.let("exponent", to_float(k, form))
    # log(m) = f - tail as a sum of two: |tail| < |f|.
    high, low = fast_two_sum(s, f, -tail)
    product = s.let("product", high * unit[0])
    rest = s.let("rest", fma(high, like(x, unit[0]), -product) + (low * unit[0] + high * unit[1]))
    if exponent_unit[1]:
        rest = rest + exponent * exponent_unit[1]
    total, error = fast_two_sum(s, s.let("whole", exponent * exponent_unit[0]), product)
    # The sum above is only exact where k is not zero; where it is, the product is the total.
    without = s.let("without", product + rest)
    return at_the_edges(x, build.select(build.equal(exponent, 0.0), without, total + (error + rest)))


def log1p(s: Steps, x: Expr, form: Format) -> Expr:
    """log(1 + x) without cancellation. Error 1.4 ulp in f32, 0.8 ulp in f64."""
    return copysign(log1p_positive(s, x, form), x)


def log1p_positive(s: Steps, x: Expr, form: Format) -> Expr:
    """As `log1p`, but of -0 the result is 0."""
    sum_ = s.let("sum", 1.0 + x)
    bits = s.let("bits", as_bits(sum_, form.bits))
    k = s.let("k", shift_right(bits - form.pattern(math.sqrt(0.5)), form.mantissa))
    # (1 + x) / 2^k - 1, rounded once: x / 2^k is exact.
    factor = s.let("factor", power_of_two(-k, form))
    f = x * factor + (factor - 1.0)
    if not form.is_short:
        # 2^-k is not a normal number for the largest x, to which 1 adds nothing.
        m = from_bits(bits - shift_left(k, form.mantissa), form.dtype)
        f = build.select(x < 2.0 ** (form.mantissa + 2), f, m - 1.0)
    f = s.let("f", f)
    value = _sum_with_exponent(s, k, f, log_tail(s, f, form), form)
    finite = build.select(x < math.inf, value, x)
    other = build.select(build.equal(x, -1.0), like(x, -math.inf), like(x, math.nan))
    return build.select(x > -1.0, finite, other)
