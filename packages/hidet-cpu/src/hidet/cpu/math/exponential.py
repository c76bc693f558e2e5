"""exp, exp2 and expm1.

x = n ln(2) + r with |r| <= ln(2) / 2, exp(x) = 2^n exp(r); ln(2) is subtracted in two parts, of which n times the first
is exact (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
"""

from __future__ import annotations

from hidet.cpu.math.coefficients import EXP, EXP2, LN2
from hidet.cpu.math.format import Format
from hidet.cpu.math.steps import Steps, absolute, as_bits, polynomial, power_of_two, scale
from hidet.ir import build
from hidet.ir.expr import Expr

LOG2_E = 1.4426950408889634

# Beyond these the result is 0 or infinite whatever x is; the exponents stay within reach of `scale`.
_EXP_RANGE = {"single": (-105.0, 90.0), "short": (-700.0, 710.0), "double": (-746.0, 710.0)}
_EXP2_RANGE = {"single": (-151.0, 129.0), "short": (-1000.0, 1025.0), "double": (-1076.0, 1025.0)}
# Below the first number expm1 is -1 to the last digit; above the second it is infinite.
_EXPM1_RANGE = {"single": (-18.0, 89.0), "short": (-40.0, 709.0), "double": (-40.0, 710.0)}
_EXPM1_TINY = {"single": 2.0**-26, "short": 2.0**-55, "double": 2.0**-55}


def clamp(x: Expr, limits: tuple[float, float]) -> Expr:
    """x held between limits; NaN stays NaN."""
    return build.minimum(build.maximum(x, limits[0]), limits[1])


def round_to_bits(s: Steps, x: Expr, form: Format) -> tuple[Expr, Expr]:
    """(nearest integer as a float, the same as an integer) for |x| < 2^(mantissa - 2).

    x may be a sum of products: it is evaluated once.
    """
    shifted = s.let("shifted", x + form.magic)
    whole = s.let("whole", shifted - form.magic)
    return whole, s.let("count", as_bits(shifted, form.bits) - form.pattern(form.magic))


def reduce_by_ln2(s: Steps, x: Expr, form: Format, low: Expr | None = None) -> tuple[Expr, Expr]:
    """(r, n) of x + low = n ln(2) + r."""
    whole, count = round_to_bits(s, x * LOG2_E, form)
    high_part, low_part = LN2[form.level]
    reduced = x - whole * high_part
    if low is not None:
        reduced = reduced + low
    return s.let("r", reduced - whole * low_part), count


def exp_near_zero(s: Steps, r: Expr, form: Format) -> Expr:
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    return r + r * r * polynomial(r, EXP[form.level])


def exp(s: Steps, x: Expr, form: Format, *, low: Expr | None = None) -> Expr:
    """e**x, or e**(x + low) for a `low` below the last digit of x. Error 1.1 ulp in f32, 0.9 ulp in f64."""
    inside = s.let("inside", clamp(x, _EXP_RANGE[form.level]))
    r, count = reduce_by_ln2(s, inside, form, low)
    value = s.let("value", 1.0 + exp_near_zero(s, r, form))
    return scale(s, value, count, form)


def exp2(s: Steps, x: Expr, form: Format) -> Expr:
    """2**x. Error 0.9 ulp (1.2 ulp in f32 where there is no fused multiply-add)."""
    inside = s.let("inside", clamp(x, _EXP2_RANGE[form.level]))
    whole, count = round_to_bits(s, inside, form)
    value = s.let("value", exp2_fraction(s.let("f", inside - whole), form))
    return scale(s, value, count, form)


def exp2_fraction(f: Expr, form: Format) -> Expr:
    """2**f for |f| <= 1/2."""
    return 1.0 + f * polynomial(f, EXP2[form.level])


def expm1(s: Steps, x: Expr, form: Format) -> Expr:
    """e**x - 1 without cancellation. Error 1.7 ulp."""
    inside = s.let("inside", clamp(x, _EXPM1_RANGE[form.level]))
    r, count = reduce_by_ln2(s, inside, form)
    near = s.let("near", exp_near_zero(s, r, form))
    # Half of the result, because 2**n itself overflows before the result does.
    factor = s.let("factor", power_of_two(count - 1, form))
    result = 2.0 * (factor * near + (factor - 0.5))
    return build.select(absolute(x) < _EXPM1_TINY[form.level], x, result)


def exp_half(s: Steps, x: Expr, form: Format) -> Expr:
    """e**x / 2, finite where the half is."""
    limits = _EXP_RANGE[form.level]
    inside = s.let("inside", clamp(x, (limits[0], limits[1] + 1.0)))
    r, count = reduce_by_ln2(s, inside, form)
    value = s.let("value", 1.0 + exp_near_zero(s, r, form))
    return scale(s, value, count - 1, form)
