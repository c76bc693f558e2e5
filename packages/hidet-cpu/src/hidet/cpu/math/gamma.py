"""lgamma and digamma, evaluated in f64.

Above 8 both follow Stirling's series; below, the argument is moved by the recurrence gamma(x + 1) = x gamma(x), and
below 1/2 it is reflected (Abramowitz and Stegun 6.1.17, 6.1.40, 6.3.7, 6.3.18).
"""

from __future__ import annotations

import math

from hidet.cpu.math.coefficients import COS_PI, DIGAMMA, LGAMMA, SIN_PI, STIRLING
from hidet.cpu.math.format import DOUBLE, Format
from hidet.cpu.math.logarithm import log
from hidet.cpu.math.steps import Steps, absolute, copysign, like, nearest, polynomial
from hidet.ir import build
from hidet.ir.expr import Expr

_FROM = 8.0
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def lgamma(s: Steps, x: Expr, form: Format) -> Expr:
    """log |gamma(x)|; infinite at zero and the negative integers. Error 0.51 ulp in f32, 4 ulp in f64.

    Near its zeros at negative x the error of f64 results is absolute, about 1e-15; f32 is too coarse to show it.
    """
    reflected = s.let("reflected", x < 0.5)
    positive = s.let("positive", build.select(reflected, 1.0 - x, x))
    far = s.let("far", positive >= _FROM)
    inside = s.let("inside", build.select(far, like(x, 2.0), positive))

    # inside = 2 + z + count, count from -1 to 6; factor is the product that the recurrence leaves behind.
    count = s.let("count", build.maximum(nearest(inside) - 2.0, -1.0))
    z = s.let("z", inside - (count + 2.0))
    factor: Expr = like(x, 1.0)
    for step in range(1, int(_FROM) - 1):
        factor = s.let("factor", factor * build.select(count >= step, inside - step, like(x, 1.0)))
    down = s.let("down", count < 0.0)
    factor = build.select(down, inside, factor)

    logarithm = log(s, s.let("argument", build.select(far, positive, factor)), DOUBLE)
    logarithm = s.let("logarithm", logarithm)
    middle = build.select(down, -logarithm, logarithm) + z * polynomial(z, LGAMMA["double"])

    inverse = s.let("inverse", 1.0 / positive)
    series = inverse * polynomial(inverse * inverse, STIRLING["double"])
    stirling = (positive - 0.5) * (logarithm - 1.0) + (series + (_HALF_LOG_TWO_PI - 0.5))
    value = s.let("value", build.select(far, stirling, middle))

    fraction = s.let("fraction", x - nearest(x))
    sine = absolute(fraction) * polynomial(fraction * fraction, SIN_PI["double"])
    mirrored = -log(s, s.let("sine", sine * (1.0 / math.pi)), DOUBLE) - value
    mirrored = build.select(build.equal(fraction, 0.0), like(x, math.inf), mirrored)
    value = build.select(reflected, mirrored, value)
    return build.select(build.unary("isinf", x), like(x, math.inf), value)


def digamma(s: Steps, x: Expr, form: Format) -> Expr:
    """Derivative of lgamma: -inf at 0, inf at -0, NaN at the negative integers and -inf.

    Error 0.51 ulp in f32, 4 ulp in f64, but absolute near its zeros: about 1e-15, which f32 is too coarse to show.
    """
    reflected = s.let("reflected", x < 0.5)
    positive = s.let("positive", build.select(reflected, 1.0 - x, x))
    # The sum of 1 / (x + k) as one fraction.
    top, bottom = like(x, 0.0), like(x, 1.0)
    moved = positive
    for _ in range(int(_FROM)):
        below = s.let("below", moved < _FROM)
        top = s.let("top", build.select(below, top * moved + bottom, top))
        bottom = s.let("bottom", build.select(below, bottom * moved, bottom))
        moved = s.let("moved", build.select(below, moved + 1.0, moved))
    inverse = s.let("inverse", 1.0 / moved)
    series = inverse * inverse * polynomial(inverse * inverse, DIGAMMA["double"])
    value = log(s, moved, DOUBLE) - (0.5 * inverse + (top / bottom - series))
    value = s.let("value", value)

    fraction = s.let("fraction", x - nearest(x))
    square = s.let("square", fraction * fraction)
    sine = s.let("sine", fraction * polynomial(square, SIN_PI["double"]))
    cotangent = polynomial(square, COS_PI["double"]) / sine
    pole = build.equal(fraction, 0.0)
    mirrored = build.select(pole, like(x, math.nan), value - math.pi * cotangent)
    value = build.select(reflected, mirrored, value)
    at_zero = copysign(like(x, math.inf), -x)
    return build.select(build.equal(x, 0.0), at_zero, value)
