"""Codes and what they stand for, against numpy and the type tables of ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.compute.evaluate import evaluate
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import define_node
from hidet.graph.types import TensorType

INTEGERS = (dtypes.u8, dtypes.i8, dtypes.u16, dtypes.i16, dtypes.u4, dtypes.i4, dtypes.u2, dtypes.i2)
FLOATS = (dtypes.f8e4m3, dtypes.f8e4m3fnuz, dtypes.f8e5m2, dtypes.f8e5m2fnuz, dtypes.f4e2m1)


@pytest.fixture(scope="session")
def run(operators: Any) -> Any:
    """`run(name, *arrays, **attrs)`: the only output, by evaluating the definition."""

    def evaluated(name: str, *arrays: Any, **attrs: Any) -> Any:
        spec = operators[name]
        types = [None if a is None else TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
        definition = define_node(spec, types, spec.attrs(attrs))
        assert definition is not None
        return evaluate(definition, arrays)[0]

    return evaluated


def values(*shape: int, spread: float = 3.0, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * spread).astype(np.float32)


def spread_out(entries: Any, shape: tuple[int, ...], axis: int, block: int) -> Any:
    """Scales or zero points for every element of `shape`, block by block."""
    if entries.ndim == 0:
        return np.broadcast_to(entries, shape)
    if block:
        whole = np.repeat(entries, block, axis=axis)
        return whole[tuple(slice(0, n) for n in shape)]
    return np.broadcast_to(entries.reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape)


SHAPES = {
    "one number": ((), 1, 0),
    "a number an entry of axis 1": ((5,), 1, 0),
    "a number an entry of axis 0": ((3,), 0, 0),
    "blocks of 2 along axis 1": ((3, 3, 4), 1, 2),
    "blocks of 4 along the last axis": ((3, 5, 1), -1, 4),
}


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_codes_are_rounded_quotients_within_the_range_of_the_type(dtype: Any, form: str, run: Any) -> None:
    shape, axis, block = SHAPES[form]
    x = values(3, 5, 4, spread=dtype.max / 4 * 0.3)
    x[0, 0] = [np.inf, -np.inf, 1e30, -1e30]
    scale = (np.random.default_rng(1).random(shape) * 0.2 + 0.2).astype(np.float32)
    zero = np.full(shape, 1 if dtype.min == 0 else -1).astype(dtype.numpy())
    got = run("quantize", x, scale, zero, dtype=dtype, axis=axis, block_size=block)
    whole = [spread_out(a.astype(np.float32), x.shape, axis % 3, block) for a in (scale, zero)]
    expected = np.clip(np.rint(x / whole[0]).astype(np.float64) + whole[1], dtype.min, dtype.max)
    np.testing.assert_array_equal(got.astype(np.float64), expected)
    back = run("dequantize", got, scale, zero, axis=axis, block_size=block)
    np.testing.assert_array_equal(back, (expected - whole[1]).astype(np.float32) * whole[0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_small_float_codes_are_cut_to_the_largest_value(dtype: Any, run: Any) -> None:
    x = np.concatenate([values(64, spread=dtype.max / 2), np.array([np.inf, -np.inf, 1e6], np.float32)])
    got = run("quantize", x, np.array(0.5, np.float32), dtype=dtype)
    expected = np.clip(x / np.float32(0.5), -dtype.max, dtype.max).astype(dtype.numpy())
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))
    assert np.isfinite(run("dequantize", got, np.array(2, np.float32))).all()


def test_small_float_codes_that_are_not_cut_follow_the_cast(run: Any) -> None:
    x = np.array([1e6, -1e6, np.inf, 3.0], np.float32)
    got = run("quantize", x, np.array(1, np.float32), dtype=dtypes.f8e5m2, saturate=False)
    np.testing.assert_array_equal(got.view(np.uint8), x.astype(dtypes.f8e5m2.numpy()).view(np.uint8))


def test_the_quotient_is_rounded_to_the_precision_asked_for(run: Any) -> None:
    x, scale = np.array([2049.0], np.float32), np.array(2.0, np.float16)
    assert run("quantize", x, scale, dtype=dtypes.i16).tolist() == [1024]
    assert run("quantize", x + 1000, scale, dtype=dtypes.i16, precision=dtypes.f16).tolist() == [1524]


def test_a_dequantized_code_has_the_type_of_the_scale_or_the_one_asked_for(run: Any) -> None:
    codes = np.arange(4, dtype=np.uint8)
    assert run("dequantize", codes, np.array(0.5, np.float16)).dtype == np.float16
    assert run("dequantize", codes, np.array(0.5, np.float16), dtype=dtypes.f32).dtype == np.float32


@pytest.mark.parametrize("dtype", [dtypes.u4, dtypes.i4, dtypes.u2, dtypes.i2, dtypes.f4e2m1], ids=str)
def test_packed_elements_come_low_bits_first(dtype: Any, run: Any) -> None:
    packed = np.arange(256, dtype=np.uint8).reshape(2, 128)
    count = 8 // dtype.bits
    digits = np.stack([(packed >> (n * dtype.bits)) & (2**dtype.bits - 1) for n in range(count)], axis=-1)
    got = run("unpack", packed, dtype=dtype)
    assert got.dtype == dtype.numpy()
    np.testing.assert_array_equal(got.view(np.uint8), digits.reshape(2, 128 * count))


def test_scales_that_fit_nothing_are_refused(run: Any) -> None:
    x, zero = values(2, 6), np.zeros(2, np.int8)
    with pytest.raises(ShapeError, match="scales against axis 1"):
        run("quantize", x, np.ones(5, np.float32), dtype=dtypes.i8)
    with pytest.raises(ShapeError, match="blocks of 4 along axis 1"):
        run("quantize", x, np.ones((2, 3), np.float32), dtype=dtypes.i8, block_size=4)
    with pytest.raises(ShapeError, match="zero point of shape"):
        run("quantize", x, np.ones(6, np.float32), zero, dtype=dtypes.i8)
    with pytest.raises(DTypeError, match="zero point of i8"):
        run("quantize", x, np.ones(2, np.float32), zero, dtype=dtypes.u8, axis=0)
    with pytest.raises(DTypeError, match="1, 2 or 4 bits"):
        run("unpack", np.zeros(2, np.uint8), dtype=dtypes.u8)
