"""What is folded when a program is built is what the interpreter computes from the same values in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.stmt import Store
from hidet.ir.structural import structural_equal
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module

INTEGERS = [entry for entry in dtypes.ALL_DTYPES if entry.is_int and entry.is_compute]
FLOATS = [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64, dtypes.f8e4m3, dtypes.f8e5m2]
TYPES = [dtypes.boolean, *INTEGERS, *FLOATS]
INTERESTING = (0.1, 65519.9, 65520.0, 70000.0, 448.0, 465.0, 16777217.0, 2.0**31, 2.0**63, 1e-45, 6e-8, 1e300)

quick = settings(max_examples=200, deadline=None, derandomize=True)


def in_memory(values: list[tuple[Any, DType]], result: DType, body: Any) -> np.ndarray:
    """What the interpreter makes of `body` on values that it reads from memory."""
    pointers = [Var(f"x{number}", PointerType(dtype)) for number, (_, dtype) in enumerate(values)]
    out = Var("out", PointerType(result))
    value = body(*(build.load(pointer, 0) for pointer in pointers))
    function = Function("f", (*pointers, out), Store(out, (build.index(0),), value), kind="host")
    module = Module((function,), "f")
    verify_module(module)
    made = np.zeros(1, result.numpy())
    with np.errstate(all="ignore"):
        run_module(module, [*(np.asarray([v]).astype(dtype.numpy()) for v, dtype in values), made])
    return made


def require_same(values: list[tuple[Any, DType]], result: DType, body: Any) -> Expr:
    """Assert that `body` of literals means what `body` of the same values in memory gives; the folded expression."""
    folded = body(*(build.const(value, dtype) for value, dtype in values))
    with np.errstate(all="ignore"):
        expected = in_memory(values, result, body)
    found = in_memory([], result, lambda: folded)
    assert found.tobytes() == expected.tobytes() or (found != found and expected != expected), (found, expected)
    return folded


@st.composite
def numbers(draw: st.DrawFn) -> tuple[Any, DType]:
    dtype = draw(st.sampled_from(TYPES))
    if dtype.is_bool:
        return draw(st.booleans()), dtype
    if dtype.is_int:
        ends = st.sampled_from([dtype.min, dtype.max, 0, 1])
        return draw(st.integers(int(dtype.min), int(dtype.max)) | ends), dtype
    signed = st.sampled_from(INTERESTING).flatmap(lambda x: st.sampled_from([x, -x]))
    return draw(st.floats() | signed | st.floats(-300, 300)), dtype


@quick
@given(numbers(), st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
def test_casts_of_constants_wrap_and_round_as_casts_of_values(number: tuple[Any, DType], targets: list[DType]) -> None:
    def chain(x: Expr) -> Expr:
        for target in targets:
            x = build.cast(x, target)
        return x

    require_same([number], targets[-1], chain)


@quick
@given(numbers())
def test_a_constant_is_negated_as_its_value_is(number: tuple[Any, DType]) -> None:
    require_same([number], number[1], lambda x: build.unary("lnot" if number[1].is_bool else "neg", x))


@quick
@given(
    *(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) for _ in range(3)),
    st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "min", "max", "lt", "eq"]),
    st.sampled_from(["add", "sub", "mul"]),
)
def test_arithmetic_of_indices_wraps_however_it_is_folded(x: int, y: int, z: int, last: str, first: str) -> None:
    """`x` is known or not: constants are merged in both cases."""
    result = dtypes.boolean if last in ("lt", "eq") else dtypes.i64

    def of(a: Expr) -> Expr:
        return build.binary(last, build.binary(first, build.binary(first, a, y), z), z)

    require_same([(x, dtypes.i64)], result, of)
    unfolded = in_memory(
        [(v, dtypes.i64) for v in (x, y, z)],
        result,
        lambda a, b, c: build.binary(last, build.binary(first, build.binary(first, a, b), c), c),
    )
    with np.errstate(all="ignore"):
        assert in_memory([(x, dtypes.i64)], result, of).tobytes() == unfolded.tobytes()


@pytest.mark.parametrize(
    ("value", "types", "expected"),
    [
        (-1, (dtypes.i32, dtypes.u32, dtypes.i64), 2**32 - 1),
        (200, (dtypes.u8, dtypes.i8), -56),
        (0.1, (dtypes.f32, dtypes.f16, dtypes.f64), float(np.float16(0.1))),
        (70000.0, (dtypes.f32, dtypes.f16, dtypes.f64), math.inf),
        (16777217, (dtypes.i64, dtypes.f32, dtypes.i64), 16777216),
        (0.5, (dtypes.f32, dtypes.boolean, dtypes.i64), 1),
        (-7.9, (dtypes.f32, dtypes.u8), 249),
        (1e10, (dtypes.f32, dtypes.i32), 2**31 - 1),
    ],
)
def test_casts_of_constants_are_folded(value: Any, types: tuple[DType, ...], expected: Any) -> None:
    folded: Expr = build.const(value, types[0])
    for target in types[1:]:
        folded = build.cast(folded, target)
    assert isinstance(folded, Const) and folded.value == expected and type(folded.value) is type(expected)


def test_negated_unsigned_constants_and_large_offsets_are_values_of_their_types() -> None:
    n = build.size_var("n")
    assert structural_equal(build.unary("neg", build.const(7, dtypes.u8)), build.const(249, dtypes.u8))
    offset = build.binary("add", build.binary("add", n, 2**63 - 1), 1)
    assert structural_equal(offset, build.binary("add", n, -(2**63)))


def test_a_choice_between_equal_literals_is_no_choice() -> None:
    x = Var("x", dtypes.i32)
    zero, other = build.const(0.0, dtypes.f32), build.const(0.0, dtypes.f32)
    assert build.select(x < 1, zero, other) is zero
    negative = build.const(-0.0, dtypes.f32)
    assert build.select(x < 1, zero, negative).b is negative
