"""Scans against torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

FLOATS = ("float32", "float16", "bfloat16", "float64")
SHAPES = (((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -2), ((0, 3), 0), ((3, 0), 0), ((), 0), ((1,), 0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ("cumsum", "cumprod", "logcumsumexp"))
def test_scan_agrees_with_torch_in_f64(name: str, dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    for shape, axis in SHAPES:
        x = make(shape, dtype)
        theirs = getattr(torch, name)(x.double(), axis).to(x.dtype)
        assert_matches(apply(name, x, axis=axis), theirs, scale=8)


@pytest.mark.parametrize("dtype", ("int64", "int32", "uint8", "bool"))
def test_scans_of_integers_are_64_bit(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 9), dtype, 0, 1 if dtype == "bool" else 100)
    assert_matches(apply("cumsum", x, axis=1), torch.cumsum(x, 1))
    assert_matches(apply("cumprod", x, axis=0), torch.cumprod(x, 0))


def test_running_sum_goes_backwards_and_may_leave_itself_out(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 6), "int64", -5, 5)
    zeros = torch.zeros((3, 1), dtype=torch.int64)
    forward = torch.cat([zeros, x.cumsum(1)[:, :-1]], 1)
    assert_matches(apply("cumsum", x, axis=1, exclusive=True), forward)
    backward = x.flip(1).cumsum(1).flip(1)
    assert_matches(apply("cumsum", x, axis=1, reverse=True), backward)
    assert_matches(apply("cumsum", x, axis=1, exclusive=True, reverse=True), backward - x)


@pytest.mark.parametrize("dtype", (*FLOATS, "int64", "int8", "uint8", "bool"))
@pytest.mark.parametrize("name", ("cummax", "cummin"))
def test_running_extreme_agrees_with_torch(
    name: str, dtype: str, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axis in SHAPES:
        x = make(shape, dtype, 0, 1 if dtype == "bool" else 4)
        x = x.floor() if x.is_floating_point() else x
        for mine, other in zip(apply_all(name, x, axis=axis), getattr(torch, name)(x, axis), strict=True):
            assert_matches(mine, other)


@pytest.mark.parametrize("name", ("cummax", "cummin"))
def test_running_extreme_keeps_nan_from_where_it_came(name: str, apply_all: Any, assert_matches: Any) -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 3.0, nan, 0.0], [nan, 2.0, 5.0, 5.0, 1.0], [2.0, 2.0, 1.0, 3.0, 3.0]])
    for mine, other in zip(apply_all(name, x, axis=1), getattr(torch, name)(x, 1), strict=True):
        assert_matches(mine, other)


def test_running_logsumexp_of_infinities_agrees_with_torch(apply: Any, assert_matches: Any) -> None:
    low, high = float("-inf"), float("inf")
    x = torch.tensor([[low, low, 1.0, high, 2.0], [800.0, 801.0, low, 1.0, float("nan")]])
    assert_matches(apply("logcumsumexp", x, axis=1), torch.logcumsumexp(x, 1), scale=2)
