"""What the provers decide, and what they leave to run time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hidet.dims import (
    Dim,
    floordiv_unchecked,
    mod_unchecked,
    parse_dim,
    product,
    prove_equal,
    prove_le,
    prove_lt,
    symbol,
)
from hidet.errors import SizeDivisionError

SYMBOLS = {
    "s": symbol("s"),
    "p": symbol("p", lower=1),
    "q": symbol("q", lower=1),
    "r": symbol("r", lower=2, upper=64),
    "e": symbol("e", divisor=8),
    "n": symbol("n", lower=-5, upper=9),
}


def dim(text: str) -> Dim:
    return parse_dim(text, SYMBOLS)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("p*q", "q*p"),
        ("s//2 + (s + 1)//2", "s"),
        ("s//3 + (s + 1)//3 + (s + 2)//3", "s"),
        ("(-s)//2", "s//2 - s"),
        ("s%64 + 64*(s//64)", "s"),
        ("n%2 + 2*(n//2)", "n"),
        ("s%p + p*(s//p)", "s"),
        ("(s%8)//4", "(s//4)%2"),
        ("(e%16)//8", "(e//8)%2"),
        ("min(s, p) + max(s, p)", "s + p"),
        ("max(s, 3) - max(s - 3, 0)", "3"),
        ("min(2*s, 2*p)", "2*min(s, p)"),
    ],
)
def test_equalities_that_hold_for_all_values_are_proved(a: str, b: str) -> None:
    assert prove_equal(dim(a), dim(b)) is True
    assert prove_equal(dim(b), dim(a)) is True


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("s", "s + 1"),
        ("2*s", "2*p + 1"),
        ("e", "8*s + 4"),
        ("r", "1"),
        ("p", "0"),
        ("p*q", "0"),
        ("s//2", "s + 1"),
        ("s%p", "p"),
        ("s//2 + (s + 1)//2", "s + 1"),
    ],
)
def test_equalities_that_hold_for_no_value_are_refuted(a: str, b: str) -> None:
    assert prove_equal(dim(a), dim(b)) is False


@pytest.mark.parametrize(("a", "b"), [("s", "p"), ("s", "1"), ("s//2", "s"), ("p*q", "p"), ("s%p", "0"), ("2*s", "e")])
def test_equalities_that_depend_on_the_values_stay_unknown(a: str, b: str) -> None:
    assert prove_equal(dim(a), dim(b)) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("p", "p*q"),
        ("s//2", "s"),
        ("s//p", "s"),
        ("s//4", "s//2"),
        ("s//4", "(s + p)//4"),
        ("p*(s//p)", "s"),
        ("q*(s//2)", "q*s"),
        ("(p + q)//2", "p*q"),
        ("s", "64*ceildiv(s, 64)"),
        ("64*ceildiv(s, 64)", "s + 63"),
        ("s%p", "p - 1"),
        ("s%8", "s"),
        ("r*p", "64*p"),
        ("min(s, 5)", "s"),
        ("s", "max(s, 5)"),
        ("min(s, p)", "max(s, p)"),
        ("min(s, p) + min(p, q)", "2*p"),
        ("n", "9"),
    ],
)
def test_inequalities_that_hold_for_all_values_are_proved(a: str, b: str) -> None:
    assert prove_le(dim(a), dim(b)) is True
    assert prove_lt(dim(a), dim(b) + 1) is True
    assert prove_lt(dim(b), dim(a)) is False


@pytest.mark.parametrize(("a", "b"), [("p*q", "p"), ("s", "p"), ("s", "s//2"), ("max(s, p)", "min(s, p)")])
def test_inequalities_that_depend_on_the_values_stay_unknown(a: str, b: str) -> None:
    assert prove_le(dim(a), dim(b)) is None


def test_a_strict_inequality_excludes_equality() -> None:
    assert prove_lt(dim("s"), dim("s + 1")) is True
    assert prove_lt(dim("s"), dim("s")) is False
    assert prove_le(dim("s"), dim("s")) is True
    assert prove_lt(dim("p"), dim("p*q")) is None


def test_integers_are_decided() -> None:
    assert prove_equal(3, 3) is True
    assert prove_equal(3, 4) is False
    assert prove_le(3, 3) is True
    assert prove_lt(3, 3) is False


def test_differences_beyond_the_limits_stay_unknown() -> None:
    left = product([sum((symbol(f"{letter}{index}") for index in range(40)), 0) for letter in "ab"])
    right = product([sum((symbol(f"{letter}{index}") for index in range(40)), 0) for letter in "cd"])
    assert prove_equal(left, right) is None
    assert prove_le(left, right) is None


def test_cases_that_a_divisor_excludes_decide_nothing() -> None:
    """`x.unflatten(0, (-1, 3))` of two or three rows: the divisor s // 3 is taken to be positive, so that s is 3."""
    s = symbol("s", lower=2, upper=3)
    rows = s // 3
    assert prove_equal(floordiv_unchecked(s, rows) * rows, s) is True
    assert prove_equal(floordiv_unchecked(s, rows) * rows, s + 1) is False


@pytest.mark.parametrize("divide", [floordiv_unchecked, mod_unchecked])
@pytest.mark.parametrize("divisor", [0, symbol("s", lower=2, upper=3) - 3])
def test_divisors_that_are_never_positive_are_refused(divide: Callable[[Dim, Dim], Dim], divisor: Dim) -> None:
    with pytest.raises(SizeDivisionError, match="must be positive, and it is at most 0"):
        divide(symbol("t"), divisor)
