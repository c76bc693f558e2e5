"""Special functions on numpy arrays in double precision: erf, erfc, erfinv, lgamma, digamma.

numpy has none of them. Chebyshev series cover the middle ranges (coefficients by interpolation at 60 digits), classical
expansions the rest: Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, 6.1.40, 6.3.18, 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]

# erf(x) / x over u = x^2 in [0, 1].
_ERF_OVER_X = (
    *(0.9754769393826541, -0.14226120510371365, 0.010035582187599796, -0.0005768764699767485, 2.741993125219606e-05),
    *(-1.1043175507344507e-06, 3.8488755420345036e-08, -1.1808582533875466e-09, 3.2334215826050907e-11),
    *(-7.991015947004549e-13, 1.7990725113961456e-14, -3.718635487818693e-16, 7.103599003714253e-18),
)
# x exp(x^2) erfc(x) for x in [1, 28], over t = (x - 3) / (x + 3) in [-1/2, 25/31].
_ERFC_SCALED = (
    *(0.5238119877608791, 0.060198897563129385, -0.02642764260833986, 0.00765939235341207, -0.0016488212507073314),
    *(0.00026386332111662475, -2.867668578692562e-05, 1.318557075613793e-06, 1.6799023980604545e-07),
    *(-3.282257975271651e-08, 4.0077571744725967e-10, 4.551658815094491e-10, -3.088080592366696e-11),
    *(-6.324312086059022e-12, 7.388272541829159e-13, 1.0289551868690431e-13, -1.5420697537666975e-14),
    *(-2.0802710619666665e-15, 3.0910334431029696e-16, 5.070741196152349e-17, -5.7762092094837186e-18),
)
_ERFC_DOMAIN = (-1 / 2, 25 / 31)
# lgamma(x) / ((x - 1) (x - 2)) over x in [1, 2]; the two zeros are divided out so that the relative error stays small.
_LGAMMA_SCALED = (
    *(0.49141539302938714, -0.07611416167043585, 0.008432324965932778, -0.001079493726328608, 0.00014900748003692963),
    *(-2.1512399888556784e-05, 3.1979329860862186e-06, -4.851693012139927e-07, 7.47148782116316e-08),
    *(-1.1638296700170518e-08, 1.829400437118668e-09, -2.8969180607129607e-10, 4.61570140620909e-11),
    *(-7.392810230497983e-12, 1.1894280008333085e-12, -1.9212068676522805e-13, 3.113975526387164e-14),
    *(-5.0628432984486114e-15, 8.254150281631144e-16, -1.3490578987574844e-16, 2.209876116782623e-17),
)
# Bernoulli numbers B2, B4, ...; eight terms of the asymptotic series suffice from x = 10 on.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_ASYMPTOTIC_FROM = 10.0


def erf(x: Array) -> Array:
    """The error function of f64 values, within a few units of the last place."""
    return _piecewise(x, _erf_near, lambda far: np.copysign(1.0 - _erfc_tail(np.abs(far)), far))


def erfc(x: Array) -> Array:
    """1 - erf(x) of f64 values, with small relative error in the tail."""

    def outside(far: Array) -> Array:
        tail = _erfc_tail(np.abs(far))
        return np.where(far < 0.0, 2.0 - tail, tail)

    return _piecewise(x, lambda near: 1.0 - _erf_near(near), outside)


def _piecewise(x: Array, inside: Function, outside: Function) -> Array:
    """`inside` of the elements below 1 in magnitude, `outside` of the others, NaN of NaN."""
    result = np.array(x, np.float64)
    is_near = np.abs(result) < 1.0
    is_far = np.abs(result) >= 1.0
    result[is_near] = inside(result[is_near])
    result[is_far] = outside(result[is_far])
    return result


def _erf_near(x: Array) -> Array:
    """erf between -1 and 1."""
    return x * _series(x * x, _ERF_OVER_X, (0.0, 1.0))


def _erfc_tail(x: Array) -> Array:
    """erfc for x >= 1."""
    inside = np.minimum(x, 28.0)
    # exp(-x^2) with x^2 split in two: the high part is exact, so rounding of the square does not grow with x.
    high = np.round(inside * 65536.0) / 65536.0
    exponential = np.exp(-high * high) * np.exp(-(inside - high) * (inside + high))
    scaled = _series((inside - 3.0) / (inside + 3.0), _ERFC_SCALED, _ERFC_DOMAIN)
    return np.where(x >= 28.0, 0.0, exponential * scaled / inside)


def erfinv(y: Array) -> Array:
    """The inverse of erf for f64 values: infinite at -1 and 1, NaN outside."""
    size = np.abs(y)
    inner = np.minimum(size, np.nextafter(1.0, 0.0))
    # Winitzki's closed form starts within 0.3%; each Halley step triples the number of right digits.
    log_term = np.log1p(-inner * inner)
    half = 2.0 / (math.pi * 0.147) + log_term / 2.0
    x = np.sqrt(np.maximum(np.sqrt(half * half - log_term / 0.147) - half, 0.0))
    for _ in range(3):
        # Far out, erf(x) - y cancels; the complements do not, and 1 - y is exact for y >= 1/2.
        error = np.where(inner < 0.5, erf(x) - inner, (1.0 - inner) - erfc(x))
        step = error / (2.0 / math.sqrt(math.pi) * np.exp(-x * x))
        x = x - step / (1.0 + x * step)
    x = np.where(inner < 1e-8, inner * (math.sqrt(math.pi) / 2.0), x)
    x = np.where(size == 1.0, np.inf, np.where(size > 1.0, np.nan, x))
    return np.where(np.isnan(y), y, np.copysign(x, y))


def lgamma(x: Array) -> Array:
    """log |gamma(x)| of f64 values; infinite at zero and the negative integers."""
    reflected = x < 0.5
    positive = np.where(reflected, 1.0 - x, x)
    value = _lgamma_positive(np.where(np.isfinite(positive), positive, 1.0))
    # pi / sin(pi x) from the exact distance to the nearest integer, which stays precise beside the poles.
    distance = np.where(np.isfinite(x), np.abs(x - np.rint(x)), 0.0)
    mirrored = -np.log(distance) - np.log(np.sinc(distance)) - value
    value = np.where(reflected, np.where(distance == 0.0, np.inf, mirrored), value)
    return np.where(np.isnan(x), x, np.where(np.isinf(x), np.inf, value))


def _lgamma_positive(x: Array) -> Array:
    """lgamma for finite x >= 1/2."""
    product = np.ones_like(x)
    moved = np.minimum(x, _ASYMPTOTIC_FROM)
    for _ in range(int(_ASYMPTOTIC_FROM)):
        above = moved > 2.0
        moved = np.where(above, moved - 1.0, moved)
        product = np.where(above, product * moved, product)
    below = moved < 1.0
    shift = np.where(below, -np.log(moved), np.log(product))
    moved = np.where(below, moved + 1.0, moved)
    middle = shift + (moved - 1.0) * (moved - 2.0) * _series(moved, _LGAMMA_SCALED, (1.0, 2.0))

    far = np.maximum(x, _ASYMPTOTIC_FROM)
    series = sum(b / (2 * k * (2 * k - 1)) * far ** (1.0 - 2 * k) for k, b in enumerate(_BERNOULLI, 1))
    stirling = (far - 0.5) * (np.log(far) - 1.0) + (0.5 * math.log(2.0 * math.pi) - 0.5) + series
    return np.where(x < _ASYMPTOTIC_FROM, middle, stirling)


def digamma(x: Array) -> Array:
    """The derivative of lgamma for f64 values; -inf at +0, inf at -0, NaN at the negative integers."""
    reflected = x < 0.5
    positive = np.where(reflected, 1.0 - x, x)
    total = np.zeros_like(positive)
    for _ in range(int(_ASYMPTOTIC_FROM)):
        below = positive < _ASYMPTOTIC_FROM
        total = np.where(below, total - 1.0 / positive, total)
        positive = np.where(below, positive + 1.0, positive)
    series = sum(b / (2 * k) * positive ** (-2.0 * k) for k, b in enumerate(_BERNOULLI, 1))
    total = total + np.log(positive) - 0.5 / positive - series
    # The sign of the cotangent is kept right near the integers by reducing the argument first.
    fraction = x - np.round(x)
    cotangent = math.pi / np.tan(math.pi * fraction)
    total = np.where(reflected, np.where(fraction == 0.0, np.nan, total - cotangent), total)
    total = np.where(x == 0.0, np.copysign(np.inf, -x), total)
    return np.where(np.isneginf(x), np.nan, total)


def _series(x: Array, coefficients: tuple[float, ...], domain: tuple[float, float]) -> Array:
    """A Chebyshev series over `domain`."""
    low, high = domain
    mapped = (2.0 * x - (low + high)) / (high - low)
    result: Array = chebyshev.chebval(mapped, coefficients)
    return result
