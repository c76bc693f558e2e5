"""Every scalar operation and conversion of every element type, compiled, against its meaning on numpy arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.ir import build
from hidet.ir.scalar_numpy import apply_binary, apply_unary, convert
from hidet.ir.scalar_ops import BINARY_OPS

INTEGERS = (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
SMALL_FLOATS = (dtypes.f8e4m3, dtypes.f8e4m3fnuz, dtypes.f8e5m2, dtypes.f8e5m2fnuz, dtypes.f8e8m0, dtypes.f4e2m1)
SMALL_INTEGERS = (dtypes.i2, dtypes.i4, dtypes.u2, dtypes.u4)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
INTEGER_OPS = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "truncdiv",
    "rem",
    "min",
    "max",
    "and",
    "or",
    "xor",
    *COMPARISONS,
)
FLOAT_OPS = ("add", "sub", "mul", "div", "min", "max", "copysign", *COMPARISONS)


@pytest.fixture(autouse=True)
def quiet_numpy():
    """Overflow, division by zero and NaN are what is tested."""
    with np.errstate(all="ignore"):
        yield


def integers(dtype, count=512, seed=0):
    """Random numbers, small ones, and the edges of the type against each other."""
    random = np.random.default_rng(seed)
    corners = [dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, 0, 1, 2, 7, *([-1, -2] if dtype.is_signed else [])]
    edges = np.array(corners, dtype.numpy())
    pairs = np.stack(np.meshgrid(edges, edges)).reshape(2, -1)
    wide = random.integers(dtype.min, dtype.max, (2, count), dtype.numpy(), endpoint=True)
    small = random.integers(0 if dtype.min == 0 else -9, 9, (2, count)).astype(dtype.numpy())
    x, y = np.concatenate([pairs, wide, small, np.stack([wide[0], small[1]])], axis=1)
    return whole_vectors(x), whole_vectors(y)


def floats(dtype, count=512, seed=0):
    """Numbers of all exponents, ordinary ones, zeros, infinities and NaN."""
    random = np.random.default_rng(seed)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 3.0], np.float64)
    pairs = np.stack(np.meshgrid(edges, edges)).reshape(2, -1)
    ordinary = random.normal(0, 100, (2, count))
    given = np.concatenate([pairs, ordinary], axis=1).astype(dtype.numpy())
    codes = random.integers(0, 2 ** min(dtype.bits, 8), (2, count * dtype.nbytes), dtype=np.uint8)
    every = codes.view(dtype.numpy())
    x, y = np.concatenate([given, every], axis=1)
    return whole_vectors(x), whole_vectors(y)


def whole_vectors(x):
    return np.concatenate([x, x[: -len(x) % 8]])


def assert_same(got, expected):
    """Equal, NaN included; the sign of a zero may differ."""
    if got.dtype.kind not in "fV":
        np.testing.assert_array_equal(got, expected)
        return
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_operations_wrap_and_never_trap(dtype, lanes, compiled, elementwise):
    x, y = integers(dtype)
    rows = {
        op: elementwise(
            lambda a, b, op=op: build.binary(op, a, b),
            (dtype, dtype),
            dtypes.boolean if BINARY_OPS[op].result == "bool" else dtype,
        )
        for op in INTEGER_OPS
    }
    kernels = compiled(rows, lanes)
    for op, row in rows.items():
        assert_same(kernels(op, x, y), apply_binary(op, x, y, row.output))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_constant_divisors_and_shifts_need_no_guard_and_mean_the_same(dtype, compiled, elementwise):
    x, _ = integers(dtype)
    constants = {
        "floordiv": (0, 1, 3, 8, dtype.max),
        "mod": (0, 1, 3, 8, dtype.max),
        "rem": (0, 5),
        "truncdiv": (0, 5),
        "shl": (0, 1, dtype.bits - 1, dtype.bits),
        "shr": (0, 1, dtype.bits - 1, dtype.bits),
    }
    if dtype.is_signed:
        constants = {op: (*values, *(() if op.startswith("sh") else (-1, -3))) for op, values in constants.items()}
    cases = [(op, value) for op, values in constants.items() for value in values]
    rows = {
        f"k{n}": elementwise(lambda a, op=op, v=v: build.binary(op, a, v), (dtype,), dtype)
        for n, (op, v) in enumerate(cases)
    }
    kernels = compiled(rows)
    for name, (op, value) in zip(rows, cases, strict=True):
        other = np.full_like(x, value)
        assert_same(kernels(name, x), apply_binary(op, x, other, dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_shifts_by_any_count_act_as_on_unbounded_numbers(dtype, lanes, compiled, elementwise):
    x, _ = integers(dtype)
    counts = np.resize(np.array([0, 1, dtype.bits - 1, dtype.bits, 100], dtype.numpy()), x.shape)
    rows = {op: elementwise(lambda a, b, op=op: build.binary(op, a, b), (dtype, dtype), dtype) for op in ("shl", "shr")}
    kernels = compiled(rows, lanes)
    for op in rows:
        assert_same(kernels(op, x, counts), apply_binary(op, x, counts, dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_powers_of_integers_wrap_around(dtype, compiled, elementwise):
    x, y = integers(dtype)
    if dtype.is_signed:
        y = np.where(y == dtype.min, dtype.max, y)
    kernels = compiled({"k": elementwise(lambda a, b: build.binary("pow", a, b), (dtype, dtype), dtype)})
    assert_same(kernels("k", x, y), apply_binary("pow", x, y, dtype))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [*FLOATS, *SMALL_FLOATS], ids=str)
@pytest.mark.thorough(every=3)
def test_float_operations_are_those_of_numpy(dtype, lanes, compiled, elementwise):
    x, y = floats(dtype)
    if dtype.has_one_zero:
        y = y[~np.isnan(y)]  # their only NaN has no sign to copy
        x, y = x[: len(y) // 8 * 8], y[: len(y) // 8 * 8]
    rows = {
        op: elementwise(
            lambda a, b, op=op: build.binary(op, a, b),
            (dtype, dtype),
            dtypes.boolean if BINARY_OPS[op].result == "bool" else dtype,
        )
        for op in FLOAT_OPS
    }
    kernels = compiled(rows, lanes)
    for op, row in rows.items():
        assert_same(kernels(op, x, y), apply_binary(op, x, y, row.output))


@pytest.mark.parametrize("lanes", [1, 8])
def test_the_sign_of_a_number_rounded_twice_is_copied(lanes, compiled, elementwise):
    """Random program 305188: LLVM rounded such a number once more, by a function that nothing defines."""

    def rounded(x):
        for dtype in (dtypes.f32, dtypes.f16, dtypes.f32):
            x = build.cast(x, dtype)
        return x

    def copied(x):
        return build.cast(build.binary("copysign", rounded(x) * rounded(x), rounded(x)), dtypes.f16)

    x, _ = floats(dtypes.f64)
    kernels = compiled({"sign": elementwise(copied, (dtypes.f64,), dtypes.f16)}, lanes)
    size = x.astype(np.float32).astype(np.float16).astype(np.float32)
    assert_same(kernels("sign", x), np.copysign(size * size, size).astype(np.float16))


@pytest.mark.parametrize("op", ["neg", "abs", "sqrt", "floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite"])
def test_float_functions_with_instructions_are_exact(op, compiled, elementwise):
    rows = {
        d.name: elementwise(lambda a: build.unary(op, a), (d,), dtypes.boolean if op.startswith("is") else d)
        for d in (*FLOATS, *SMALL_FLOATS)
    }
    kernels = compiled(rows)
    for dtype in (*FLOATS, *SMALL_FLOATS):
        x, _ = floats(dtype)
        expected = apply_unary(op, x, rows[dtype.name].output)
        assert_same(kernels(dtype.name, x), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_integers_keep_the_type(dtype, compiled, elementwise):
    x, _ = integers(dtype)
    ops = {"not": np.invert(x), "neg": np.negative(x), "abs": np.abs(x), "floor": x}
    kernels = compiled({op: elementwise(lambda a, op=op: build.unary(op, a), (dtype,), dtype) for op in ops})
    for op, expected in ops.items():
        assert_same(kernels(op, x), expected)


@pytest.mark.parametrize("lanes", [1, 8])
def test_truth_values_add_as_or_and_multiply_as_and(lanes, compiled, elementwise):
    b = dtypes.boolean
    x, y = np.array([False, False, True, True] * 4), np.array([False, True] * 8)
    expected = {
        "add": x | y, "mul": x & y, "land": x & y, "lor": x | y, "xor": x ^ y, "max": x | y, "min": x & y,
        "eq": x == y, "lt": ~x & y,
    }  # fmt: skip
    rows = {op: elementwise(lambda p, q, op=op: build.binary(op, p, q), (b, b), b) for op in expected}
    kernels = compiled({**rows, "lnot": elementwise(lambda p: build.unary("lnot", p), (b,), b)}, lanes)
    for op, value in expected.items():
        np.testing.assert_array_equal(kernels(op, x, y), value)
    np.testing.assert_array_equal(kernels("lnot", x), ~x)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("source", [dtypes.boolean, *INTEGERS, *FLOATS], ids=str)
@pytest.mark.thorough(every=3)
def test_conversions_between_all_types_are_those_of_numpy(source, lanes, compiled, elementwise):
    if source.is_bool:
        x = np.array([True, False] * 8)
    else:
        x, _ = floats(source) if source.is_float else integers(source)
    targets = (dtypes.boolean, *INTEGERS, *FLOATS)
    kernels = compiled({t.name: elementwise(lambda a, t=t: build.cast(a, t), (source,), t) for t in targets}, lanes)
    for target in targets:
        fitting = x
        if source.is_float and target.is_int:
            # Out of range, numpy gives what the machine gives.
            wide = x.astype(np.float64)
            fitting = x[(wide > max(float(target.min), -(2.0**62))) & (wide < min(float(target.max), 2.0**62))]
            fitting = whole_vectors(fitting)
        expected = convert(fitting, source, target)
        if target.name in ("float16", "bfloat16") and source.name != "float32":
            # By way of f32, as torch converts.
            expected = fitting.astype(np.float32).astype(target.numpy())
        assert_same(kernels(target.name, fitting), expected)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
def test_floats_out_of_range_become_the_nearest_integer_and_nan_becomes_0(dtype, lanes, compiled, elementwise):
    x = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 3e9, -3e9, 1.5], dtype.numpy())
    targets = (dtypes.i32, dtypes.i64, dtypes.u32, dtypes.u64)
    kernels = compiled({t.name: elementwise(lambda a, t=t: build.cast(a, t), (dtype,), t) for t in targets}, lanes)
    for target in targets:
        expected = [0 if np.isnan(v) else int(min(max(v, target.min), target.max)) for v in x.astype(object)]
        np.testing.assert_array_equal(kernels(target.name, x), np.array(expected, target.numpy()))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_every_small_float_is_widened_exactly(dtype, lanes, compiled, elementwise):
    x = np.arange(2**dtype.bits, dtype=np.uint8).view(dtype.numpy())
    targets = (dtypes.f32, dtypes.f64, dtypes.bf16)
    kernels = compiled({t.name: elementwise(lambda a, t=t: build.cast(a, t), (dtype,), t) for t in targets}, lanes)
    for target in targets:
        expected = x.astype(np.float32).astype(target.numpy())
        assert_same(kernels(target.name, x), expected)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_small_floats_round_as_ml_dtypes_rounds(dtype, lanes, compiled, elementwise):
    every = np.arange(2**dtype.bits, dtype=np.uint8).view(dtype.numpy()).astype(np.float32)
    every = np.unique(every[np.isfinite(every)])
    ties = (every[1:] + every[:-1]) / 2
    x, _ = floats(dtypes.f32, 4096)
    random = np.random.default_rng(0).normal(0, 50, 4096).astype(np.float32)
    around = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    x = whole_vectors(np.concatenate([x, every, *around, every * np.float32(1.5), random]))
    kernels = compiled({"k": elementwise(lambda a: build.cast(a, dtype), (dtypes.f32,), dtype)}, lanes)
    expected = x.astype(dtype.numpy())
    got = kernels("k", x)
    plain = ~np.isnan(x)
    np.testing.assert_array_equal(got.view(np.uint8)[plain], expected.view(np.uint8)[plain])
    assert np.isnan(got.astype(np.float32)[~plain]).all() or not dtype.has_nan
    assert (got.view(np.uint8) < 2**dtype.bits).all()


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", SMALL_INTEGERS, ids=str)
def test_integers_below_8_bits_take_a_byte_and_keep_their_low_bits(dtype, lanes, compiled, elementwise):
    every = whole_vectors(np.arange(dtype.min, dtype.max + 1).astype(dtype.numpy()))
    wide = (dtypes.i8, dtypes.u8, dtypes.i64, dtypes.f32, dtypes.f16, dtypes.boolean, *SMALL_FLOATS)
    rows = {t.name: elementwise(lambda a, t=t: build.cast(a, t), (dtype,), t) for t in wide}
    sources = (dtypes.i64, dtypes.f32)
    narrowing = {f"from_{t}": elementwise(lambda a: build.cast(a, dtype), (t,), dtype) for t in sources}
    kernels = compiled({**rows, **narrowing}, lanes)
    for target in wide:
        assert_same(kernels(target.name, every), convert(every, dtype, target))
    for source in sources:
        x = np.arange(-32, 32).astype(source.numpy())
        got = kernels(f"from_{source}", x)
        np.testing.assert_array_equal(got, np.arange(-32, 32).astype(dtype.numpy()))
        assert (got.view(np.uint8) < 2**dtype.bits).all()


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.f16], ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_a_limit_on_either_side_keeps_nan(dtype, lanes, compiled, elementwise):
    x, _ = floats(dtype)
    rows = {
        "relu": elementwise(lambda a: build.maximum(a, 0), (dtype,), dtype),
        "left": elementwise(lambda a: build.maximum(0, a), (dtype,), dtype),
        "ceiling": elementwise(lambda a: build.minimum(a, 6), (dtype,), dtype),
        "nan": elementwise(lambda a: build.minimum(a, float("nan")), (dtype,), dtype),
    }
    kernels = compiled(rows, lanes)
    for name, expected in {
        "relu": np.maximum(x, 0), "left": np.maximum(x, 0), "ceiling": np.minimum(x, 6), "nan": x * np.nan
    }.items():  # fmt: skip
        assert_same(kernels(name, x), expected.astype(dtype.numpy()))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_random_integer_expressions_compute_what_numpy_computes(compiled, elementwise, data):
    dtype = data.draw(st.sampled_from(INTEGERS))
    ops = data.draw(
        st.lists(st.sampled_from(("add", "sub", "mul", "floordiv", "mod", "max", "xor", "shr")), max_size=6)
    )
    lanes = data.draw(st.sampled_from((1, 8)))
    x, y = integers(dtype, 64, data.draw(st.integers(0, 9)))

    def chain(a, b):
        for op in ops:
            a, b = build.binary(op, a, b), a
        return a

    kernels = compiled({"k": elementwise(chain, (dtype, dtype), dtype)}, lanes)
    a, b = x, y
    for op in ops:
        a, b = apply_binary(op, a, b, dtype), a
    assert_same(kernels("k", x, y), a)
