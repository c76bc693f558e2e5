"""The special functions against Python's libm and known values."""

import math

import numpy as np
import pytest

from hidet.ir import special

POINTS = np.concatenate(
    [
        np.random.default_rng(1).uniform(-6, 6, 500),
        np.random.default_rng(2).uniform(-27, 27, 300),
        [0.0, 1.0, -1.0, 0.999999, 1.000001, 26.5, 1e-300],
    ]
)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    scale = np.where(expected == 0, 1.0, np.abs(expected))
    return float(np.max(np.abs(actual - expected) / scale))


@pytest.mark.parametrize(("function", "reference"), [(special.erf, math.erf), (special.erfc, math.erfc)])
def test_error_functions_agree_with_libm_to_the_last_digits(function, reference):
    assert relative_error(function(POINTS), np.array([reference(x) for x in POINTS])) < 2e-15


def test_error_functions_keep_infinities_and_nan():
    x = np.array([np.inf, -np.inf, np.nan])
    assert np.array_equal(special.erf(x), [1.0, -1.0, np.nan], equal_nan=True)
    assert np.array_equal(special.erfc(x), [0.0, 2.0, np.nan], equal_nan=True)


def test_erfinv_inverts_erf_also_close_to_one():
    y = np.concatenate([np.linspace(-0.999, 0.999, 401), 1 - 10.0 ** np.arange(-15, -1), [1e-200]])
    with np.errstate(all="ignore"):
        x = special.erfinv(y)
    # 1 - erf amplifies an error of x by its own logarithmic slope, 2 x^2 at most.
    assert relative_error(special.erf(x), y) < 1e-15
    assert relative_error(special.erfc(x), 1 - y) < 1e-13


def test_erfinv_is_infinite_at_one_and_nan_beyond():
    with np.errstate(all="ignore"):
        x = special.erfinv(np.array([1.0, -1.0, 1.5, np.nan]))
    assert np.array_equal(x, [np.inf, -np.inf, np.nan, np.nan], equal_nan=True)


def test_lgamma_is_the_logarithm_of_factorials_and_mirrors_below_zero():
    with np.errstate(all="ignore"):
        n = np.arange(3.0, 60.0)
        factorials = [math.log(math.factorial(int(k) - 1)) for k in n]
        assert relative_error(special.lgamma(n), np.array(factorials)) < 1e-15
        x = np.array([-0.5, -1.5, -2.25, 0.25, 0.75, 4.5])
        assert relative_error(special.lgamma(x), np.array([math.lgamma(v) for v in x])) < 1e-14
        poles = special.lgamma(np.array([0.0, -1.0, -7.0, np.inf, -np.inf]))
        assert np.array_equal(poles, [np.inf] * 5)


def test_lgamma_is_precise_beside_its_poles():
    with np.errstate(all="ignore"):
        x = np.array([-5e-324, -1e-300, -1e-30, -1e-10, 1e-30, -1 + 2.0**-40, -3 - 2.0**-40])
        assert relative_error(special.lgamma(x), np.array([math.lgamma(v) for v in x])) < 1e-14


def test_lgamma_keeps_relative_precision_beside_its_zeros():
    # lgamma(1 + e) = -gamma e + pi^2 / 12 e^2, lgamma(2 + e) = (1 - gamma) e + ...
    e = 2.0**-30
    value = special.lgamma(np.array([1 + e, 2 + e]))
    expected = [
        -np.euler_gamma * e + math.pi**2 / 12 * e * e,
        (1 - np.euler_gamma) * e + (math.pi**2 / 12 - 0.5) * e * e,
    ]
    assert relative_error(value, np.array(expected)) < 1e-14


def test_digamma_obeys_its_recurrence_and_known_values():
    x = np.random.default_rng(3).uniform(-8, 20, 400)
    with np.errstate(all="ignore"):
        residual = special.digamma(x + 1) - special.digamma(x) - 1 / x
        assert np.max(np.abs(residual) / np.maximum(1, np.abs(1 / x))) < 1e-11
        known = special.digamma(np.array([1.0, 0.5]))
        assert np.allclose(known, [-np.euler_gamma, -np.euler_gamma - 2 * math.log(2)], rtol=1e-15, atol=0)
        edges = special.digamma(np.array([0.0, -0.0, -3.0]))
        assert np.array_equal(edges, [-np.inf, np.inf, np.nan], equal_nan=True)
