"""Common divisors and multiples against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import DTypeError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", ("gcd", "lcm"))
@pytest.mark.parametrize("dtype", ("int32", "int64", "int16", "uint8"))
def test_divisors_and_multiples_are_those_of_torch(
    dtype: str, name: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    low, high = (0, 15) if dtype == "uint8" else (-60, 60)
    for first, second in (((4, 7), (4, 7)), ((3, 1, 5), (4, 1)), ((), (3,)), ((0, 2), (2,))):
        a, b = make(first, dtype, low, high), make(second, dtype, low, high, seed=1)
        assert_matches(apply(name, a, b), getattr(torch, name)(a, b))


def test_two_zeros_have_neither(apply: Any) -> None:
    zero = torch.tensor([0])
    assert apply("gcd", zero, zero).item() == apply("lcm", zero, zero).item() == 0


def test_floats_have_no_divisors(apply: Any, make: Any) -> None:
    with pytest.raises(DTypeError, match="an integer type"):
        apply("gcd", make((2,)), make((2,)))
