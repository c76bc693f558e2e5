"""How far the functions are from the exact value, and that special values are those of numpy.

Distances are counted in representable numbers between a result and the exact value rounded once.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hidet import dtypes
from hidet.cpu.math.functions import BINARY, UNARY
from hidet.ir import build, special

REFERENCE = json.loads((Path(__file__).parent / "reference.json").read_text())

# f32 functions are one number off the rounded value at most, those of f64 arithmetic hardly ever.
F32_LIMITS = {"expm1": 2}
F64_LIMITS = {"erfc": 3, "erfinv": 3, "expm1": 2, "sinh": 2, "tanh": 2, "tan": 2, "lgamma": 4, "digamma": 4, "asinh": 2}
HALF_TYPES = (dtypes.f16, dtypes.bf16)

IN_DOUBLE = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "lgamma": special.lgamma,
    "digamma": special.digamma,
}


def reference(op, x):
    """The function of f64 values, far more exact than f32 needs."""
    with np.errstate(all="ignore"):
        return IN_DOUBLE.get(op, getattr(np, op, None))(x.astype(np.float64))


def distance(got, expected):
    """Representable numbers between two finite arrays of one float type."""
    integer = np.dtype(f"i{got.dtype.itemsize}")

    def order(a):
        bits = a.view(integer).astype(object if integer.itemsize == 8 else np.int64)
        return np.where(bits < 0, -(bits & np.iinfo(integer).max), bits)

    return np.abs(order(got) - order(expected)).astype(np.float64)


def check(got, expected, limit):
    """Finite values within `limit`; NaN, infinities and signs of zeros where `expected` has them."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    infinite = np.isinf(expected) | np.isinf(got)
    np.testing.assert_array_equal(got[infinite], expected[infinite])
    zero = (expected == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))
    finite = np.isfinite(expected) & np.isfinite(got)
    assert distance(got[finite], expected[finite]).max() <= limit


def singles():
    """f32 numbers of all exponents, ordinary ones, and edges."""
    random = np.random.default_rng(0)
    every = random.integers(0, 2**32, 30000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ordinary = [random.normal(0, 3, 10000), random.uniform(-100, 100, 10000), 1 + random.normal(0, 0.1, 10000)]
    edges = [0, 1, 0.5, np.inf, np.nan, 2.0**-149, 2.0**-126, 3.4028235e38, 88.7, 89, 103.9, 104, 128, 150]
    edges += [-x for x in edges]
    return np.concatenate([every, *(a.astype(np.float32) for a in ordinary), np.array(edges, np.float32)])


@pytest.fixture(scope="module")
def unary_f32(compiled, elementwise):
    f32 = dtypes.f32
    return compiled({op: elementwise(lambda x, op=op: build.unary(op, x), (f32,), f32) for op in UNARY})


@pytest.fixture(scope="module")
def f64_functions(compiled, elementwise):
    f64 = dtypes.f64
    unary = {op: elementwise(lambda x, op=op: build.unary(op, x), (f64,), f64) for op in UNARY}
    binary = {op: elementwise(lambda x, y, op=op: build.binary(op, x, y), (f64, f64), f64) for op in BINARY}
    return compiled({**unary, **binary})


@pytest.mark.parametrize("op", UNARY)
def test_f32_functions_are_next_to_the_exact_value(op, unary_f32):
    x = singles()
    if op == "lgamma":
        # The reference loses tiny negative arguments.
        x = x[(x >= 0) | (x < -1e-6)]
    with np.errstate(over="ignore"):
        expected = reference(op, x).astype(np.float32)
    check(unary_f32(op, x), expected, F32_LIMITS.get(op, 1))


@pytest.mark.parametrize("op", sorted(REFERENCE))
def test_f64_functions_are_close_to_the_exact_value(op, f64_functions):
    columns = np.array([[float.fromhex(v) for v in row] for row in REFERENCE[op]]).T
    check(f64_functions(op, *columns[:-1]), columns[-1], F64_LIMITS.get(op, 1))


@pytest.mark.parametrize("op", UNARY)
def test_f64_special_values_are_those_of_numpy(op, f64_functions):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.75e308])
    if op in ("lgamma", "digamma", "erfinv"):
        x = x[(np.abs(x) > 1e-300) | (x == 0)]
    # The reference itself is some numbers off.
    check(f64_functions(op, x), reference(op, x), 8)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_every_half_value_gives_the_rounded_result(dtype, compiled, elementwise):
    """Computed in f32 or f64 and rounded again, so one number off at most, and hardly ever."""
    kernels = compiled({op: elementwise(lambda x, op=op: build.unary(op, x), (dtype,), dtype) for op in UNARY})
    x = np.arange(2**16, dtype=np.uint16).view(dtype.numpy())
    for op in UNARY:
        with np.errstate(all="ignore"):
            expected = reference(op, x.astype(np.float32))
            if op == "lgamma":
                expected = np.where((x < 0) & (x > -1e-6), -np.log(np.abs(x.astype(np.float64))), expected)
            expected = expected.astype(np.float32).astype(dtype.numpy())
        got = kernels(op, x)
        check(got, expected, 1)


def test_cosines_of_the_hardest_f32_arguments_are_right(unary_f32):
    """16367173 * 2^72 is the f32 nearest to a multiple of pi / 2 (Muller et al., 2018, 10.2)."""
    x = np.array([16367173.0 * 2.0**72, 2.0**127, 3.4028235e38, 51.8362785, 1.5707964, 1e10], np.float32)
    # Computed with 400 digits.
    expected = [
        -1.6147697982476211e-09,
        0.78191463871496,
        0.8530210398303042,
        1.7761749478086997e-06,
        -4.371139000186241e-08,
        0.873119622676856,
    ]
    np.testing.assert_array_equal(unary_f32("cos", x), np.array(expected, np.float32))


@pytest.mark.parametrize("lanes", [4, 16])
def test_vectors_give_what_scalars_give(lanes, compiled, elementwise):
    f32 = dtypes.f32
    rows = {op: elementwise(lambda x, op=op: build.unary(op, x), (f32,), f32) for op in UNARY}
    scalar, vector = compiled(rows), compiled(rows, lanes=lanes)
    x = singles()[: 16 * 500]
    for op in UNARY:
        np.testing.assert_array_equal(vector(op, x), scalar(op, x))


def test_f64_trigonometry_works_on_vectors(compiled, elementwise):
    f64 = dtypes.f64
    rows = {op: elementwise(lambda x, op=op: build.unary(op, x), (f64,), f64) for op in ("sin", "cos", "tan")}
    scalar, vector = compiled(rows), compiled(rows, lanes=8)
    x = np.concatenate([10.0 ** np.arange(-20, 300), np.linspace(-10, 10, 320)])
    for op in rows:
        np.testing.assert_array_equal(vector(op, x), scalar(op, x))


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell"])
def test_processors_without_avx_512_get_the_same_accuracy(cpu, compiled, elementwise):
    """x86-64-v2 has no fused multiply-add: `fma` is built from products and sums there."""
    arch = pytest.importorskip("hidet.cpu.arch")
    if arch.host_arch().isa != "x86_64" or not arch.host_arch().has("avx2"):
        pytest.skip("this machine cannot run the code")
    f64, ops = dtypes.f64, ("exp", "log2", "sin", "erfc", "asin", "expm1")
    kernels = compiled({op: elementwise(lambda x, op=op: build.unary(op, x), (f64,), f64) for op in ops}, cpu=cpu)
    for op in ops:
        x, expected = np.array([[float.fromhex(v) for v in row] for row in REFERENCE[op]]).T
        check(kernels(op, x), expected, F64_LIMITS.get(op, 1))
