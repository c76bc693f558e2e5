"""1 + erf(a) and 1 + tanh(a), as gelu needs them: functions in CUDA C++, checked by numpy."""

from __future__ import annotations

import math

import numpy as np

from hidet.cuda.codegen.error_function import COEFFICIENTS, one_plus_erf
from hidet.cuda.testing.schedules import sources_of

GRAPH = """
graph g(%x: {dtype}[8, 64]):
  %0: {dtype}[8, 64] = {op}(%x)
  return %0
"""

TANH_GELU = """
graph g(%x: {dtype}[8, 64]):
  %0: {dtype}[8, 64] = gelu(%x, approximate="tanh")
  return %0
"""


def computed(a: np.ndarray) -> np.ndarray:
    """What the function computes, every step rounded to f32 as the device rounds it."""
    x = np.abs(a)
    p = np.full_like(x, COEFFICIENTS[-1])
    with np.errstate(over="ignore"):
        for coefficient in reversed(COEFFICIENTS[:-1]):
            p = (p.astype(np.float64) * x + np.float32(coefficient)).astype(np.float32)
        q = np.exp2(p * x)
    return np.where(a < 0, q, np.float32(2) - q)


def test_gelu_of_narrow_floats_and_f32_uses_it_and_erf_itself_does_not() -> None:
    for dtype in ("f16", "bf16", "f32"):
        assert all(
            "one_plus_erf(" in text and "erff(" not in text for text in sources_of(GRAPH.format(dtype=dtype, op="gelu"))
        )
    assert all(
        "erf(" in text and "one_plus_erf" not in text for text in sources_of(GRAPH.format(dtype="f64", op="gelu"))
    )
    assert all(
        "erff(" in text and "one_plus_erf" not in text for text in sources_of(GRAPH.format(dtype="f32", op="erf"))
    )


def test_the_sum_is_as_exact_as_adding_to_a_rounded_erf() -> None:
    a = np.linspace(-13, 13, 100001).astype(np.float32)
    exact = np.array([math.erfc(-float(value)) for value in a])
    rounded = np.array([math.erf(float(value)) for value in a]).astype(np.float32) + np.float32(1)
    error, other = np.abs(computed(a) - exact), np.abs(rounded - exact)
    assert error.max() < 1.5e-7
    assert np.sqrt(np.mean(error**2)) < np.sqrt(np.mean(other.astype(np.float64) ** 2))
    negative = (a < 0) & (a > -4)
    assert (error[negative] / exact[negative]).max() < 1e-5


def test_it_ends_at_0_and_2_and_keeps_nan() -> None:
    a = np.array([-np.inf, -1e38, -20, 0, 20, 1e38, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(computed(a), np.array([0, 0, 0, 1, 2, 2, 2, np.nan], np.float32))


def one_plus_tanh(a: np.ndarray) -> np.ndarray:
    """What the function of that name computes, every step rounded to f32, and two of them as far off as they may be
    (PTX ISA, ex2.approx and rcp.approx)."""
    with np.errstate(over="ignore", under="ignore"):
        q = np.exp2(a * np.float32(-2.8853900817779268)) * np.float32(1 + 2**-22)
        return np.float32(2) * (np.float32(1) / (np.float32(1) + q.astype(np.float32)) * np.float32(1 + 2**-23))


def test_tanh_plus_one_is_one_function_whose_small_values_have_digits() -> None:
    for dtype in ("f16", "f32"):
        sources = sources_of(TANH_GELU.format(dtype=dtype))
        assert all("one_plus_tanh(" in text and "tanhf(" not in text for text in sources)
    a = np.linspace(-40, 40, 80001).astype(np.float32)
    exact = 2 / (1 + np.exp(-2 * a.astype(np.float64)))
    error = np.abs(one_plus_tanh(a) - exact)
    assert error.max() < 7e-7
    assert (error / exact)[a > -8].max() < 2e-6
    ends = np.array([-np.inf, -1e38, -90, 0, 90, 1e38, np.inf, np.nan], np.float32)
    near = one_plus_tanh(ends)
    np.testing.assert_allclose(near, np.array([0, 0, 0, 1, 2, 2, 2, np.nan]), rtol=1e-6)


def test_the_text_has_all_coefficients() -> None:
    assert all(repr(coefficient) in one_plus_erf() for coefficient in COEFFICIENTS)
