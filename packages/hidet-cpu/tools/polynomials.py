"""The polynomials of hidet.cpu.math: which function each is close to, where, and how errors count."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath as mp  # type: ignore[import-untyped]  # it has no type hints
from remez import Function, Number

TINY = mp.mpf(10) ** -18


@dataclass(frozen=True)
class Polynomial:
    """A polynomial p(x) close to `function` on an interval: max |weight * (p - function)| is minimal.

    degrees: degree of the polynomial of each level. doc: what the polynomial is, in the code's terms.
    """

    name: str
    doc: str
    function: Function
    weight: Function
    interval: tuple[Number, Number]
    degrees: dict[str, int]


def with_limit(function: Function, limit: Number) -> Function:
    """`function`, and `limit` near zero where it cannot be evaluated."""
    return lambda x: mp.mpf(limit) if abs(x) < TINY else function(x)


def of_square(function: Function) -> Function:
    """`function` of sqrt(z)."""
    return lambda z: function(mp.sqrt(abs(z)))


def power_weight(power: int, scale: Number = 1) -> Function:
    """|x|^power * scale, kept above zero."""
    return lambda x: abs(x) ** power * scale + mp.mpf(10) ** -9


def constant_weight(value: Number = 1) -> Function:
    return lambda _: mp.mpf(value)


def reciprocal(function: Function) -> Function:
    return lambda x: 1 / function(x)


def erfc_scaled(u: Number) -> Number:
    """(1 + 2x) exp(x^2) erfc(x) at x = 3 (1 + u) / (1 - u)."""
    x = 3 * (1 + u) / (1 - u)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def inverse_erf_over_x(w: Number) -> Number:
    """erfinv(x) / x at x = sqrt(1 - exp(-w))."""
    if w < TINY:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    complement = mp.exp(-w) / (1 + x)
    y = mp.erfinv(x) if x < 0.9 else mp.sqrt(w)
    for _ in range(100):
        error = mp.erfc(y) - complement
        step = error / (2 / mp.sqrt(mp.pi) * mp.exp(-y * y))
        step = step / (1 - y * step) if abs(y * step) < 0.5 else step / (2 * abs(y * step))
        y += step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return y / x


def _stirling(u: Number) -> Number:
    x = 1 / mp.sqrt(u)
    return (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2) * x


def _digamma_tail(u: Number) -> Number:
    x = 1 / mp.sqrt(u)
    return (mp.digamma(x) - mp.log(x) + 1 / (2 * x)) / u


def polynomials() -> list[Polynomial]:
    """Every polynomial of the package."""
    ln2, pi = mp.log(2), mp.pi
    half_ln2 = ln2 / 2 * mp.mpf("1.002")
    quarter = pi / 4 * mp.mpf("1.001")
    log_low, log_high = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1
    s_square = (log_high / (2 + log_high)) ** 2
    eighth = mp.mpf(1) / 8
    third = mp.mpf(1) / 3
    tenth_pi = mp.tan(pi / 8) ** 2

    def erf_near(z: Number) -> Number:
        return 2 / mp.sqrt(pi) - 1 if z < TINY else mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1

    def log2_erfc(t: Number) -> Number:
        return mp.log(mp.erfc(t)) / ln2

    def far_inverse(s: Number) -> Number:
        return inverse_erf_over_x(s * s)

    return [
        Polynomial(
            "EXP",
            "(exp(r) - 1 - r) / r^2, |r| <= ln(2) / 2",
            with_limit(lambda r: (mp.expm1(r) - r) / r**2, mp.mpf(1) / 2),
            power_weight(1),
            (-half_ln2, half_ln2),
            {"single": 4, "short": 5, "double": 10},
        ),
        Polynomial(
            "EXP2",
            "(2^f - 1) / f, |f| <= 1/2",
            with_limit(lambda f: (2**f - 1) / f, ln2),
            constant_weight(mp.mpf(1) / 2),
            (-0.5, 0.5),
            {"single": 5, "short": 6, "double": 11},
        ),
        Polynomial(
            "LOG",
            "(log(1 + f) - f + f^2 / 2) / f^3, 1 + f from sqrt(1/2) to sqrt(2)",
            with_limit(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, third),
            power_weight(2),
            (log_low, log_high),
            {"single": 8},
        ),
        Polynomial(
            "LOG_QUOTIENT",
            "(log((1 + s) / (1 - s)) - 2 s) / s^3 over s^2, s as of (1 + s) / (1 - s) = sqrt(2)",
            with_limit(of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3), 2 * third),
            power_weight(1, mp.mpf(1) / 2),
            (0, s_square),
            {"short": 3, "double": 6},
        ),
        Polynomial(
            "LOG_TAIL",
            "(3 atanh(s) / s - 3 - s^2) / s^4 over s^2, for the power function",
            with_limit(of_square(lambda s: (3 * mp.atanh(s) / s - 3 - s**2) / s**4), mp.mpf(3) / 5),
            power_weight(2, third),
            (0, s_square),
            {"double": 6},
        ),
        Polynomial(
            "SIN",
            "(sin(r) - r) / r^3 over r^2, |r| <= pi / 4",
            with_limit(of_square(lambda r: (mp.sin(r) - r) / r**3), -mp.mpf(1) / 6),
            power_weight(1),
            (0, quarter**2),
            {"short": 3, "double": 5},
        ),
        Polynomial(
            "COS",
            "(cos(r) - 1 + r^2 / 2) / r^4 over r^2, |r| <= pi / 4",
            with_limit(of_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4), mp.mpf(1) / 24),
            power_weight(2),
            (0, quarter**2),
            {"short": 2, "double": 5},
        ),
        Polynomial(
            "SIN_PI",
            "sin(pi f) / f over f^2, |f| <= 1/2",
            with_limit(of_square(lambda f: mp.sin(pi * f) / f), pi),
            constant_weight(mp.mpf(1) / 2),
            (0, 0.25),
            {"double": 8},
        ),
        Polynomial(
            "COS_PI",
            "cos(pi f) over f^2, |f| <= 1/2",
            of_square(lambda f: mp.cos(pi * f)),
            constant_weight(),
            (0, 0.25),
            {"double": 9},
        ),
        Polynomial(
            "ATAN",
            "(atan(t) - t) / t^3 over t^2, |t| <= tan(pi / 8)",
            with_limit(of_square(lambda t: (mp.atan(t) - t) / t**3), -third),
            power_weight(1),
            (0, tenth_pi),
            {"short": 5, "double": 11},
        ),
        Polynomial(
            "ASIN",
            "(asin(t) - t) / t^3 over t^2, |t| <= 1/2",
            with_limit(of_square(lambda t: (mp.asin(t) - t) / t**3), mp.mpf(1) / 6),
            power_weight(1),
            (0, 0.25),
            {"short": 5, "double": 12},
        ),
        Polynomial(
            "TANH",
            "(tanh(x) - x) / x^3 over x^2, |x| <= 3/4",
            with_limit(of_square(lambda x: (mp.tanh(x) - x) / x**3), -third),
            power_weight(1),
            (0, mp.mpf(9) / 16),
            {"single": 5},
        ),
        Polynomial(
            "ERF",
            "erf(x) / x - 1 over x^2, |x| <= 1",
            erf_near,
            constant_weight(),
            (0, 1),
            {"single": 6, "short": 7, "double": 12},
        ),
        Polynomial(
            "LOG2_ERFC",
            "log2(erfc(x)), x from 7/8 to 4",
            log2_erfc,
            lambda t: ln2 * mp.erfc(t) / mp.erf(t),
            (7 * eighth, 4),
            {"single": 7},
        ),
        Polynomial(
            "ERFC",
            "(1 + 2x) exp(x^2) erfc(x) over u = (x - 3) / (x + 3), x from 1/2 to 28",
            erfc_scaled,
            reciprocal(erfc_scaled),
            (mp.mpf(-5) / 7, mp.mpf(25) / 31),
            {"short": 12, "double": 22},
        ),
        Polynomial(
            "ERFINV_NEAR",
            "erfinv(x) / x over w - 5/2, w = -log(1 - x^2) from 0 to 5",
            lambda u: inverse_erf_over_x(abs(u + mp.mpf(5) / 2)),
            lambda u: 1 / inverse_erf_over_x(abs(u + mp.mpf(5) / 2)),
            (mp.mpf(-5) / 2, mp.mpf(5) / 2),
            {"short": 10, "double": 22},
        ),
        Polynomial(
            "ERFINV_MIDDLE",
            "erfinv(x) / x over sqrt(w) - 3, w from 5 to 16.8",
            lambda u: far_inverse(u + 3),
            lambda u: 1 / far_inverse(u + 3),
            (mp.sqrt(5) - 3, mp.sqrt(mp.mpf("16.8")) - 3),
            {"short": 10, "double": 21},
        ),
        Polynomial(
            "ERFINV_FAR",
            "erfinv(x) / x over sqrt(w) - 5, w from 16 to 37",
            lambda u: far_inverse(u + 5),
            lambda u: 1 / far_inverse(u + 5),
            (mp.mpf(-1), mp.sqrt(37) - 5),
            {"double": 18},
        ),
        Polynomial(
            "LGAMMA",
            "lgamma(2 + z) / z, |z| <= 1/2",
            with_limit(lambda z: mp.loggamma(2 + z) / z, 1 - mp.euler),
            constant_weight(),
            (-0.5, 0.5),
            {"double": 18},
        ),
        Polynomial(
            "STIRLING",
            "(lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2) x over 1 / x^2, x >= 8",
            with_limit(_stirling, mp.mpf(1) / 12),
            constant_weight(eighth**2),
            (mp.mpf(10) ** -12, eighth**2),
            {"double": 6},
        ),
        Polynomial(
            "DIGAMMA",
            "(digamma(x) - log(x) + 1 / (2 x)) x^2 over 1 / x^2, x >= 8",
            with_limit(_digamma_tail, -mp.mpf(1) / 12),
            constant_weight(eighth**2),
            (mp.mpf(10) ** -12, eighth**2),
            {"double": 6},
        ),
    ]
