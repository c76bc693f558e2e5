"""Scalar operations on arrays: rounding of integer divisions, powers, and conversions."""

import ml_dtypes
import numpy as np
import pytest

from hidet import dtypes
from hidet.errors import UnsupportedOp
from hidet.ir.scalar_numpy import apply_binary, apply_unary, convert, numpy_function, round_to_tf32
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS

A = np.array([7, -7, 7, -7, 5, 0], np.int32)
B = np.array([2, 2, -2, -2, 0, 3], np.int32)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("floordiv", [3, -4, -4, 3, 0, 0]),
        ("mod", [1, 1, -1, -1, 0, 0]),
        ("truncdiv", [3, -3, -3, 3, 0, 0]),
        ("rem", [1, -1, 1, -1, 0, 0]),
    ],
)
def test_integer_divisions_round_as_named_and_survive_zero(op, expected):
    result = apply_binary(op, A, B, dtypes.i32)
    assert result.dtype == np.int32
    assert result.tolist() == expected


def test_integer_powers_with_negative_exponents_truncate():
    base = np.array([2, 1, -1, -1, 0, 3], np.int64)
    exponent = np.array([-1, -5, -3, -2, -1, 4], np.int64)
    assert apply_binary("pow", base, exponent, dtypes.i64).tolist() == [0, 1, -1, 1, 0, 81]


@pytest.mark.parametrize("op", sorted({*UNARY_OPS} - {"not", "lnot"}))
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64])
def test_every_unary_operation_keeps_its_float_type(op, dtype):
    x = np.array([0.25, 0.5, 0.75]).astype(dtype.numpy())
    result_type = dtypes.boolean if UNARY_OPS[op].result == "bool" else dtype
    result = apply_unary(op, x, result_type)
    assert result.dtype == result_type.numpy()
    wide = np.asarray(numpy_function(UNARY_OPS[op].numpy)(x.astype(np.float64)), np.float64)
    tolerance = 4 * dtype.epsilon * np.abs(wide) + 1e-30
    same = (result.astype(np.float64) == wide) | (np.abs(result.astype(np.float64) - wide) <= tolerance)
    assert same[np.isfinite(wide)].all()


@pytest.mark.parametrize("op", sorted({*BINARY_OPS} - {"and", "or", "xor", "shl", "shr"}))
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64])
def test_every_binary_operation_keeps_its_float_type(op, dtype):
    a, b = np.array([0.5, 3.0]).astype(dtype.numpy()), np.array([2.0, 2.0]).astype(dtype.numpy())
    result_type = dtypes.boolean if BINARY_OPS[op].result == "bool" else dtype
    result = apply_binary(op, a, b, result_type)
    assert result.dtype == result_type.numpy()
    assert np.isfinite(result.astype(np.float64)).all()


def test_nextafter_steps_in_the_narrow_type():
    one, two = (np.array([v], ml_dtypes.bfloat16) for v in (1.0, 2.0))
    assert float(apply_binary("nextafter", one, two, dtypes.bf16)[0]) == 1.0 + 2.0**-7


def test_bf16_arithmetic_rounds_once():
    a, b = np.array([1.0], ml_dtypes.bfloat16), np.array([2.0**-8], ml_dtypes.bfloat16)
    assert float(apply_binary("add", a, b, dtypes.bf16)[0]) == 1.0


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (-1.7, dtypes.f32, dtypes.i32, -1),
        (0.5, dtypes.f32, dtypes.boolean, True),
        (3, dtypes.i32, dtypes.boolean, True),
        (257.0, dtypes.f32, dtypes.bf16, 256.0),
        (1 + 2j, dtypes.c64, dtypes.f32, 1.0),
        (2j, dtypes.c64, dtypes.boolean, True),
        (1.0 + 2.0**-12, dtypes.f32, dtypes.tf32, 1.0),
    ],
)
def test_conversions_follow_the_cast_of_the_ir(value, source, target, expected):
    result = convert(np.array([value]).astype(source.numpy()), source, target)
    assert result.dtype == target.numpy()
    assert result[0] == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (dtypes.i32, [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 300, -1]),
        (dtypes.i64, [0, 2**63 - 1, -(2**63), 2**63 - 1, -(10**10), 300, -1]),
        (dtypes.u32, [0, 2**32 - 1, 0, 2**32 - 1, 0, 300, 0]),
        (dtypes.u8, [0, 255, 0, 255, 0, 44, 255]),
        (dtypes.i8, [0, -1, 0, -1, 0, 44, -1]),
    ],
)
def test_floats_out_of_range_saturate_and_narrow_integers_keep_low_bits(dtype, expected):
    values = np.array([np.nan, np.inf, -np.inf, 1e30, -1e10, 300.7, -1.2])
    assert convert(values, dtypes.f64, dtype).tolist() == expected


def test_tf32_rounds_ties_to_even_and_keeps_infinity_and_nan():
    a = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, np.inf, np.nan], np.float32)
    expected = np.array([1, 1 + 2 * 2.0**-10, np.inf, np.nan], np.float32)
    assert np.array_equal(round_to_tf32(a), expected, equal_nan=True)


def test_an_unknown_function_is_refused_by_name():
    with pytest.raises(UnsupportedOp, match=r"'scalar\.erg' has no numpy meaning"):
        numpy_function("scalar.erg")
