"""erf, erfc and erfinv."""

from __future__ import annotations

import math

from hidet.cpu.math.coefficients import ERF, ERFC, ERFINV_FAR, ERFINV_MIDDLE, ERFINV_NEAR, LOG2_ERFC
from hidet.cpu.math.exponential import exp, exp2_fraction, round_to_bits
from hidet.cpu.math.format import Format
from hidet.cpu.math.logarithm import log, log1p_positive
from hidet.cpu.math.steps import (
    Steps,
    absolute,
    copysign,
    like,
    polynomial,
    power_of_two,
    square_root,
)
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr

# erfc is below half an ulp of 1 from here on.
_SINGLE_END = 4.0
# erfc rounds to zero from here on.
_ERFC_END = 27.5


def erf(s: Steps, x: Expr, form: Format) -> Expr:
    """The error function. Error 1.3 ulp in f32 (1.7 ulp without fused multiply-add), 1.1 ulp in f64."""
    size = s.let("size", absolute(x))
    square = s.let("square", x * x)
    near = s.let("near", x + x * polynomial(square, ERF[form.level]))
    if form.level == "single":
        power = s.let("power", polynomial(build.minimum(size, _SINGLE_END), LOG2_ERFC[form.level]))
        whole, count = round_to_bits(s, power, form)
        complement = exp2_fraction(s.let("f", power - whole), form) * power_of_two(count, form)
    else:
        complement = _erfc_far(s, build.minimum(size, 6.5), form)
    far = copysign(1.0 - s.let("complement", complement), x)
    return build.select(size < (0.875 if form.level == "single" else 1.0), near, far)


def erfc(s: Steps, x: Expr, form: Format) -> Expr:
    """1 - erf(x), with small relative error in the tail. Error 0.51 ulp in f32, 3 ulp in f64."""
    size = s.let("size", absolute(x))
    near = s.let("near", 1.0 - (x + x * polynomial(x * x, ERF[form.level])))
    far = s.let("far", _erfc_far(s, build.minimum(size, _ERFC_END), form))
    return build.select(size < 0.5, near, build.select(x < 0.0, 2.0 - far, far))


def _erfc_far(s: Steps, x: Expr, form: Format) -> Expr:
    """erfc for x from 1/2 to 28."""
    x = s.let("inside", x)
    u = s.let("u", (x - 3.0) / (x + 3.0))
    scaled = s.let("scaled", polynomial(u, ERFC[form.level]) / (1.0 + 2.0 * x))
    square = s.let("square", x * x)
    low = None if form.is_short else s.let("low", fma(-x, x, square))
    return scaled * exp(s, -square, form, low=low)


def erfinv(s: Steps, x: Expr, form: Format) -> Expr:
    """Inverse of erf: infinite at -1 and 1, NaN outside. Error 0.55 ulp in f32, 3 ulp in f64.

    erfinv(x) / x is smooth in w = -log(1 - x^2) near 0 and in sqrt(w) further out (Giles, GPU Computing Gems 2, 2011).
    """
    size = s.let("size", absolute(x))
    # (1 - x) (1 + x) is exact near 1, where its logarithm is large.
    complement = (1.0 - size) * (1.0 + size)
    if form.is_short:
        w = s.let("w", -log(s, s.let("complement", complement), form))
    else:
        near_zero = log1p_positive(s, s.let("negative", -(size * size)), form)
        w = s.let("w", -build.select(size < 0.5, near_zero, log(s, s.let("complement", complement), form)))
    root = s.let("root", square_root(w))
    result = polynomial(s.let("u", w - 2.5), ERFINV_NEAR[form.level])
    middle = polynomial(s.let("u", root - 3.0), ERFINV_MIDDLE[form.level])
    result = build.select(w < 5.0, result, middle)
    if not form.is_short:
        result = build.select(w < 16.4, result, polynomial(s.let("u", root - 5.0), ERFINV_FAR[form.level]))
    inside = s.let("inside", x * result)
    return build.select(build.equal(size, 1.0), copysign(like(x, math.inf), x), inside)
