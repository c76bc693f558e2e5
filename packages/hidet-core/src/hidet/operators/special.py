"""Special functions: Bessel functions, exponentials of squares, zeta functions, orthogonal polynomials.

All are computed in f64, whatever the element type, and rounded once. Series and expansions are those of Abramowitz and
Stegun, "Handbook of Mathematical Functions", 1964: 9.2, 9.6 to 9.8 (Bessel), 10.4 (Airy), 23.2 (zeta), 22.7
(recurrences); what is fitted stands in `special_coefficients`. At their limits they give what torch gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import hidet.operators.special_coefficients as table
from hidet import dtypes
from hidet.compute.definition import SUM, Combiner, reduce
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.elementwise import ElementwiseRow, spec_of

Function = Callable[[Expr], Expr]
_F64 = dtypes.f64
_MOST_TERMS = 1 << 20


def _number(value: float) -> Expr:
    return build.const(value, _F64)


def _polynomial(t: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, lowest power first."""
    total = _number(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * t + coefficient
    return total


def _over(x: Expr, low: float, high: float, coefficients: Sequence[float]) -> Expr:
    """A polynomial in t, which goes from -1 to 1 while x goes from low to high."""
    return _polynomial((x - (low + high) / 2) * (2 / (high - low)), coefficients)


def _abs(x: Expr) -> Expr:
    return build.unary("abs", x)


def _exp(x: Expr) -> Expr:
    return build.unary("exp", x)


def _sqrt(x: Expr) -> Expr:
    return build.unary("sqrt", x)


def _is_whole(x: Expr) -> Expr:
    return build.equal(x, build.unary("floor", x))


def _odd(function: Function) -> Function:
    """`function` of |x|, with the sign of x."""
    return lambda x: build.select(x < 0, -function(_abs(x)), function(_abs(x)))


# --- modified Bessel functions -------------------------------------------------------------------------------------


def _i0_series(x: Expr) -> Expr:
    return _polynomial(x * x * 0.25, table.I0_SERIES)


def _i1_series(x: Expr) -> Expr:
    return x * 0.5 * _polynomial(x * x * 0.25, table.I1_SERIES)


def _first_kind(series: Function, tail: Sequence[float], is_scaled: bool) -> Function:
    """For x >= 0; scaled by exp(-x)."""

    def value(x: Expr) -> Expr:
        far = _over(1 / build.maximum(x, 8), 0, 0.125, tail) / _sqrt(x)
        near = series(build.minimum(x, 8))
        if is_scaled:
            return build.select(x <= 8, near * _exp(-x), far)
        return build.select(x <= 8, near, far * _exp(x))

    return value


def _second_kind(near: Function, middle: Sequence[float], tail: Sequence[float], is_scaled: bool) -> Function:
    """For x > 0; infinite at 0, NaN below; scaled by exp(x)."""

    def value(x: Expr) -> Expr:
        first = near(build.minimum(x, 1))
        scaled = build.select(
            x <= 4,
            _over(build.minimum(x, 4), 1, 4, middle),
            _over(1 / build.maximum(x, 4), 0, 0.25, tail),
        ) / _sqrt(x)
        result = (
            build.select(x <= 1, first * _exp(x), scaled)
            if is_scaled
            else build.select(x <= 1, first, scaled * _exp(-x))
        )
        result = build.select(build.equal(x, 0), _number(math.inf), result)
        return build.select(x < 0, _number(math.nan), result)

    return value


def _k0_near(x: Expr) -> Expr:
    w = x * x * 0.25
    return _polynomial(w, table.K0_SERIES) - build.unary("log", x * 0.5) * _polynomial(w, table.I0_SERIES[:12])


def _k1_near(x: Expr) -> Expr:
    w = x * x * 0.25
    i1 = x * 0.5 * _polynomial(w, table.I1_SERIES[:12])
    return 1 / x + build.unary("log", x * 0.5) * i1 - x * 0.25 * _polynomial(w, table.K1_SERIES)


# --- Bessel functions ----------------------------------------------------------------------------------------------


def _waves(x: Expr, order: int) -> tuple[Expr, Expr]:
    """J and Y for x >= 8: a damped wave whose phase is x - pi / 4, for order 1 a quarter turn later."""
    p, q = ((table.BESSEL0_P, table.BESSEL0_Q), (table.BESSEL1_P, table.BESSEL1_Q))[order]
    v = 8 / x
    w = v * v
    big, small = _over(w, 0, 1, p), v * _over(w, 0, 1, q)
    sine, cosine = build.unary("sin", x), build.unary("cos", x)
    # cos(x - pi / 4) and sin(x - pi / 4), times the root of two, without rounding the difference.
    c, s = cosine + sine, sine - cosine
    if order:
        c, s = s, -c
    root = 1 / _sqrt(x * math.pi)
    return (big * c - small * s) * root, (big * s + small * c) * root


def _bessel_first(order: int) -> Function:
    near, middle = ((table.J0_NEAR, table.J0_MIDDLE), (table.J1_NEAR, table.J1_MIDDLE))[order]

    def value(x: Expr) -> Expr:
        far, _ = _waves(build.maximum(x, 8), order)
        inside = build.minimum(x, 4)
        first = _over(inside, 0, 4, near)
        short = build.select(x <= 4, first * inside if order else first, _over(build.minimum(x, 8), 4, 8, middle))
        return build.select(x <= 8, short, far)

    return value


def _bessel_second(order: int) -> Function:
    near, middle = ((table.Y0_NEAR, table.Y0_MIDDLE), (table.Y1_NEAR, table.Y1_MIDDLE))[order]
    first = _bessel_first(order)

    def value(x: Expr) -> Expr:
        _, far = _waves(build.maximum(x, 8), order)
        rest = build.select(x <= 4, _over(build.minimum(x, 4), 0, 4, near), _over(build.minimum(x, 8), 4, 8, middle))
        short = rest + (2 / math.pi) * build.unary("log", x) * first(x)
        if order:
            short = short - (2 / math.pi) / x
        result = build.select(x <= 8, short, far)
        result = build.select(build.equal(x, 0), _number(-math.inf), result)
        return build.select(x < 0, _number(math.nan), result)

    return value


def _spherical_j0(x: Expr) -> Expr:
    w = x * x
    near = _polynomial(w, [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)])
    result = build.select(_abs(x) < 0.5, near, build.unary("sin", x) / x)
    return build.select(build.unary("isinf", x), _number(0.0), result)


def _airy_ai(x: Expr) -> Expr:
    size = build.maximum(-x, 6)
    z = size * _sqrt(size) * (2 / 3)
    w, end = 1 / (z * z), 1 / (2 / 3 * 6**1.5) ** 2
    big, small = _over(w, 0, end, table.AIRY_P), _over(w, 0, end, table.AIRY_Q) / z
    angle = z + math.pi / 4
    wave = big * build.unary("sin", angle) - small * build.unary("cos", angle)
    left = wave / (_sqrt(_sqrt(size)) * math.sqrt(math.pi))
    large = build.maximum(x, 2)
    v = large * _sqrt(large) * (2 / 3)
    tail = _over(1 / v, 0, 1 / (2 / 3 * 2**1.5), table.AIRY_TAIL)
    right = tail * _exp(-v) / (_sqrt(_sqrt(large)) * (2 * math.sqrt(math.pi)))
    inside = build.maximum(build.minimum(x, 2), -6)
    middle = build.select(
        inside < -4,
        _over(inside, -6, -4, table.AIRY_FAR),
        build.select(inside < -1, _over(inside, -4, -1, table.AIRY_LEFT), _over(inside, -1, 2, table.AIRY_CENTRE)),
    )
    result = build.select(x < -6, left, build.select(x > 2, right, middle))
    # torch ends where its single precision does.
    result = build.select(x > 103.892, _number(0.0), result)
    return build.select(build.unary("isfinite", x), result, _number(math.nan))


# --- normal distribution -------------------------------------------------------------------------------------------


def _erfcx(x: Expr) -> Expr:
    size = _abs(x)
    far = build.maximum(size, 3)
    w = 9 / (far * far)
    middle = _over(build.minimum(size, 3), 1, 3, table.ERFCX_MIDDLE)
    right = build.select(size < 3, middle, _over(w, 0, 1, table.ERFCX_FAR) / far)
    right = build.select(size < 1, _over(build.minimum(size, 1), 0, 1, table.ERFCX_NEAR), right)
    return build.select(x < 0, 2 * _exp(x * x) - right, right)


def _ndtri(p: Expr) -> Expr:
    q = p - 0.5
    w = q * q
    centre = q * _over(build.minimum(w, 0.14), 0, 0.14, table.NDTRI_CENTRE)
    y = build.minimum(p, 1 - p)
    r = _sqrt(build.unary("log", y) * -2)
    u = 1 / r
    rest = build.select(
        u > 0.25,
        _over(build.minimum(u, 0.5), 0.25, 0.5, table.NDTRI_NEAR),
        build.select(
            u > 1 / 9,
            _over(u, 1 / 9, 0.25, table.NDTRI_MIDDLE),
            _over(build.maximum(u, 1 / 39), 1 / 39, 1 / 9, table.NDTRI_FAR),
        ),
    )
    tail = r + rest
    result = build.select(w <= 0.14, centre, build.select(q < 0, -tail, tail))
    result = build.select(
        build.equal(p, 0), _number(-math.inf), build.select(build.equal(p, 1), _number(math.inf), result)
    )
    return build.select(build.binary("lor", p < 0, p > 1), _number(math.nan), result)


# --- zeta functions ------------------------------------------------------------------------------------------------


def _zeta(x: Expr, q: Expr) -> Expr:
    """Euler and Maclaurin's sum: terms up to q + count, at least 10, then the integral and its corrections."""
    steps = build.unary("ceil", 10 - q)
    count = build.cast(build.maximum(build.minimum(steps, _MOST_TERMS), 12), dtypes.i64)
    head = reduce(SUM, (count,), lambda k: build.binary("pow", q + build.cast(k, _F64), -x))
    w = q + build.cast(count, _F64)
    power = build.binary("pow", w, -x)
    tail = power * w / (x - 1) + power * 0.5
    factor, inverse = x * power / w, 1 / (w * w)
    for j, number in enumerate(table.ZETA_TERMS, 1):
        tail = tail + number * factor
        factor = factor * (x + (2 * j - 1)) * (x + 2 * j) * inverse
    # Far out the corrections overflow where the power is 0 already.
    result = head + build.select(build.equal(power, 0), _number(0.0), tail)
    result = build.select(q > 0, result, build.select(_is_whole(x), result, _number(math.nan)))
    # At infinite x the first term alone counts; torch gives no number where it vanishes.
    limit = build.select(q < 1, _number(math.inf), build.select(build.equal(q, 1), _number(1.0), _number(math.nan)))
    result = build.select(build.unary("isfinite", x), result, limit)
    result = build.select(build.unary("isfinite", q), result, _number(math.nan))
    result = build.select(build.unary("isnan", x), x, result)
    result = build.select(build.logical_and(q <= 0, _is_whole(q)), _number(math.inf), result)
    result = build.select(x < 1, _number(math.nan), result)
    return build.select(build.equal(x, 1), _number(math.inf), result)


def _polygamma(x: Expr, n: int) -> Expr:
    if n == 0:
        return build.unary("digamma", x)
    if n == 1:
        # Reflected left of 1/2, as torch does it, which shows at the poles.
        is_left = x < 0.5
        right = _zeta(_number(2.0), build.select(is_left, 1 - x, x))
        sine = build.unary("sin", x * math.pi)
        result = build.select(is_left, (math.pi * math.pi) / (sine * sine) - right, right)
        return build.select(build.equal(x, math.inf), _number(0.0), result)
    sign = 1 if n % 2 else -1
    return sign * float(math.factorial(n)) * _zeta(_number(n + 1), x)


# --- orthogonal polynomials ----------------------------------------------------------------------------------------


def _multiplied(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    """The product of two matrices of rank 2, row by row; the later step stands left."""
    return (
        b[0] * a[0] + b[1] * a[2],
        b[0] * a[1] + b[1] * a[3],
        b[2] * a[0] + b[3] * a[2],
        b[2] * a[1] + b[3] * a[3],
    )


RECURRENCE = Combiner(
    "recurrence",
    lambda types: tuple(build.const(number, dtype) for number, dtype in zip((1, 0, 0, 1), types, strict=True)),
    _multiplied,
)
"""Steps of a recurrence of three terms as matrices, so that many of them are a reduction."""

Step = Callable[[Expr], tuple[Expr, Expr]]


def _recurrence(n: Expr, first: Expr, step: Step) -> Expr:
    """p_n of p_0 = 1, p_1 = `first`, p_(k+1) = a p_k + b p_(k-1), where step(k) is (a, b)."""
    count = build.cast(build.minimum(n - 1, _MOST_TERMS), dtypes.i64)
    one, zero = _number(1.0), _number(0.0)

    def matrix(k: Expr) -> tuple[Expr, ...]:
        return (*step(build.cast(k + 1, _F64)), one, zero)

    along, across = (reduce(RECURRENCE, (count,), matrix, result=part) for part in (0, 1))
    result = build.select(n > 1, along * first + across, build.select(build.equal(n, 0), one, first))
    # Products of matrices of infinite elements are NaN where the polynomial is not.
    a, b = step(one)
    result = build.select(build.equal(n, 2), a * first + b, result)
    # NaN is no degree, either.
    return build.select(n >= 0, result, zero)


def _chebyshev(first: Function, closed: Callable[[Expr, Expr], Expr], is_shifted: bool) -> Callable[[Expr, Expr], Expr]:
    """p_(k+1) = 2 x p_k - p_(k-1), from `first`; inside (-1, 1) `closed` of the degree and the angle of cosine x."""

    def value(x: Expr, n: Expr) -> Expr:
        if is_shifted:
            x = x + x - 1
        degree = build.unary("trunc", n)
        uses_angle = build.logical_and(degree > 6, _abs(x) < 1)
        # The reduction is empty where its result is not used.
        reduced = _recurrence(
            build.select(uses_angle, _number(1.0), degree), first(x), lambda k: (x + x, _number(-1.0))
        )
        angle = build.unary("acos", build.maximum(build.minimum(x, 1), -1))
        return build.select(uses_angle, closed(degree, angle), reduced)

    return value


def _ratio(name: str, shift: float, part: float) -> Callable[[Expr, Expr], Expr]:
    """name((n + shift) angle) / name(part * angle)."""
    return lambda n, angle: build.unary(name, (n + shift) * angle) / build.unary(name, angle * part)


_CHEBYSHEV = {
    "t": (lambda x: x, lambda n, angle: build.unary("cos", n * angle), "first"),
    "u": (lambda x: x + x, _ratio("sin", 1, 1), "second"),
    "v": (lambda x: x + x - 1, _ratio("cos", 0.5, 0.5), "third"),
    "w": (lambda x: x + x + 1, _ratio("sin", 0.5, 0.5), "fourth"),
}


def _hermite_h(x: Expr, n: Expr) -> Expr:
    return _recurrence(build.unary("trunc", n), x + x, lambda k: (x + x, k * -2))


def _hermite_he(x: Expr, n: Expr) -> Expr:
    return _recurrence(build.unary("trunc", n), x, lambda k: (x, -k))


def _laguerre(x: Expr, n: Expr) -> Expr:
    return _recurrence(build.unary("trunc", n), 1 - x, lambda k: ((k + k + 1 - x) / (k + 1), -k / (k + 1)))


def _legendre(x: Expr, n: Expr) -> Expr:
    return _recurrence(build.unary("trunc", n), x, lambda k: ((k + k + 1) * x / (k + 1), -k / (k + 1)))


# --- operators -----------------------------------------------------------------------------------------------------


def _in_double(function: Callable[..., Expr]) -> Callable[..., Expr]:
    def value(*elements: Expr, **attrs: int) -> Expr:
        return build.cast(function(*[build.cast(x, _F64) for x in elements], **attrs), elements[0].dtype)

    return value


def _even(function: Function) -> Function:
    return lambda x: function(_abs(x))


_UNARY: dict[str, tuple[Function, str]] = {
    "bessel_i0": (_even(_first_kind(_i0_series, table.I0_TAIL, False)), "Modified Bessel function I0."),
    "bessel_i1": (_odd(_first_kind(_i1_series, table.I1_TAIL, False)), "Modified Bessel function I1."),
    "bessel_i0e": (_even(_first_kind(_i0_series, table.I0_TAIL, True)), "exp(-|x|) I0(x)."),
    "bessel_i1e": (_odd(_first_kind(_i1_series, table.I1_TAIL, True)), "exp(-|x|) I1(x)."),
    "bessel_k0": (
        _second_kind(_k0_near, table.K0_MIDDLE, table.K0_TAIL, False),
        "Modified Bessel function K0; infinite at 0, NaN below.",
    ),
    "bessel_k1": (
        _second_kind(_k1_near, table.K1_MIDDLE, table.K1_TAIL, False),
        "Modified Bessel function K1; infinite at 0, NaN below.",
    ),
    "bessel_k0e": (_second_kind(_k0_near, table.K0_MIDDLE, table.K0_TAIL, True), "exp(x) K0(x)."),
    "bessel_k1e": (_second_kind(_k1_near, table.K1_MIDDLE, table.K1_TAIL, True), "exp(x) K1(x)."),
    "bessel_j0": (_even(_bessel_first(0)), "Bessel function J0."),
    "bessel_j1": (_odd(_bessel_first(1)), "Bessel function J1."),
    "bessel_y0": (_bessel_second(0), "Bessel function Y0; -inf at 0, NaN below."),
    "bessel_y1": (_bessel_second(1), "Bessel function Y1; -inf at 0, NaN below."),
    "spherical_bessel_j0": (_spherical_j0, "sin(x) / x, 1 at 0."),
    "airy_ai": (_airy_ai, "Airy function Ai; NaN of infinities, 0 from 103.892 on, as in torch."),
    "erfcx": (_erfcx, "exp(x * x) (1 - erf(x)), without overflow for positive x."),
    "ndtri": (_ndtri, "The place below which a standard normal number is with probability x; NaN outside of [0, 1]."),
}

_POLYNOMIALS: dict[str, tuple[Callable[[Expr, Expr], Expr], str]] = {
    "hermite_polynomial_h": (_hermite_h, "Hermite polynomial H of degree n (physics)."),
    "hermite_polynomial_he": (_hermite_he, "Hermite polynomial He of degree n (probability)."),
    "laguerre_polynomial_l": (_laguerre, "Laguerre polynomial of degree n."),
    "legendre_polynomial_p": (_legendre, "Legendre polynomial of degree n."),
}
for _letter, (_first, _closed, _kind) in _CHEBYSHEV.items():
    for _prefix, _shifted in (("", False), ("shifted_", True)):
        _POLYNOMIALS[f"{_prefix}chebyshev_polynomial_{_letter}"] = (
            _chebyshev(_first, _closed, _shifted),
            f"Chebyshev polynomial of the {_kind} kind and degree n{', of 2 x - 1' if _shifted else ''}.",
        )

_DEGREE = " n is a whole number in the type of x; 0 below 0."

SPECS: tuple[OperatorSpec, ...] = (
    *(spec_of(ElementwiseRow(name, _in_double(function), doc)) for name, (function, doc) in _UNARY.items()),
    *(
        spec_of(ElementwiseRow(name, _in_double(function), doc + _DEGREE, inputs=("x", "n")))
        for name, (function, doc) in _POLYNOMIALS.items()
    ),
    spec_of(
        ElementwiseRow(
            "zeta",
            _in_double(_zeta),
            "Hurwitz's zeta function, the sum of (q + k) ** -x; inf at x = 1 and whole q below 1, NaN for smaller x.",
            inputs=("x", "q"),
        )
    ),
    spec_of(
        ElementwiseRow(
            "polygamma",
            _in_double(_polygamma),
            "The n-th derivative of digamma.",
            attributes=(Attribute("n"),),
        )
    ),
)
