"""What the normal form makes equal: each row is an expression and the form it takes."""

from __future__ import annotations

import pytest

from hidet.dims import Dim, ceildiv, floordiv, maximum, minimum, mod, parse_dim, symbol
from hidet.errors import ShapeError

SYMBOLS = {
    "s": symbol("s"),
    "n": symbol("n", lower=-5, upper=9),
    "p": symbol("p", lower=1),
    "q": symbol("q", lower=1),
    "small": symbol("small", lower=0, upper=6),
    "e": symbol("e", divisor=8),
    "f": symbol("f", divisor=8),
}


def dim(text: str) -> Dim:
    return parse_dim(text, SYMBOLS)


def check(text: str, expected: str) -> None:
    assert str(dim(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s + 1 - s", "1"),
        ("s + s", "2*s"),
        ("q*p - p*q", "0"),
        ("(s + 1)*(p - 1)", "p*s + p - s - 1"),
        ("2*(s + 3) - 6", "2*s"),
        ("0*s", "0"),
        ("1 - s", "-s + 1"),
        ("s*s*p", "p*s*s"),
    ],
)
def test_sums_and_products_have_one_form(text: str, expected: str) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(6*s)//2", "3*s"),
        ("(6*s + 1)//2", "3*s"),
        ("(7*s)//2", "floordiv(s, 2) + 3*s"),
        ("(s - 3)//2", "floordiv(s + 1, 2) - 2"),
        ("(4*s + 2)//6", "floordiv(2*s + 1, 3)"),
        ("(4*s + 3)//6", "floordiv(2*s + 1, 3)"),
        ("s//1", "s"),
        ("s//4//3", "floordiv(s, 12)"),
        ("(s//4 + 1)//3", "floordiv(s + 4, 12)"),
        ("small//7", "0"),
        ("(small - 7)//7", "-1"),
        ("(14*s + small)//7", "2*s"),
        ("(small*14)//7", "2*small"),
        ("ceildiv(6*s + 1, 2)", "3*s + 1"),
        ("ceildiv(s, 64)", "floordiv(s + 63, 64)"),
        ("(s + 2*1 - 1*(3 - 1) - 1)//2 + 1", "floordiv(s + 1, 2)"),
    ],
)
def test_division_by_a_constant(text: str, expected: str) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e//8*8", "e"),
        ("e//4", "floordiv(e, 4)"),
        ("e//4 + e//4", "floordiv(e, 2)"),
        ("(e + 3)//4", "floordiv(e, 4)"),
        ("(e + 11)//8", "floordiv(e, 8) + 1"),
        ("(e + s*4)//4", "floordiv(e, 4) + s"),
        ("(e*f)//64*64", "e*f"),
        ("s*(e//8)", "floordiv(e*s, 8)"),
        ("(3*e)//16", "floordiv(e, 8) + floordiv(e, 16)"),
        ("e//8//p", "floordiv(floordiv(e, 8), p)"),
        ("(e//8)*s // (e//8 + 1)", "floordiv(floordiv(e*s, 8), floordiv(e, 8) + 1)"),
    ],
)
def test_known_divisors_make_quotients_exact(text: str, expected: str) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(s*p)//p", "s"),
        ("(6*s*p)//(2*p)", "3*s"),
        ("(3*p*s)//(2*p)", "floordiv(s, 2) + s"),
        ("(s*p + s)//p", "floordiv(s, p) + s"),
        ("(p*q + p + q + 1)//(p + 1)", "q + 1"),
        ("(p*p - 1)//(p + 1)", "p - 1"),
        ("ceildiv(s*p, p)", "s"),
        ("(p - 1)//p", "0"),
        ("(2*s)//(2*p)", "floordiv(s, p)"),
        ("(2*s + 1)//(2*p)", "floordiv(s, p)"),
        ("(s*p)//(p*q)", "floordiv(s, q)"),
        ("s//p//q", "floordiv(s, p*q)"),
        ("(p*p + s)//(p + 1)", "floordiv(p*p + s, p + 1)"),
    ],
)
def test_division_by_a_size(text: str, expected: str) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s % 1", "0"),
        ("(4*s) % 2", "0"),
        ("(5*s + 7) % 4", "mod(s + 3, 4)"),
        ("(3*s) % 4", "mod(-s, 4)"),
        ("small % 7", "small"),
        ("(small + 14) % 7", "small"),
        ("(small - 7) % 7", "small"),
        ("e % 8", "0"),
        ("(e + 3) % 4", "3"),
        ("(e + 3) % 16", "mod(e, 16) + 3"),
        ("(6*s) % 8", "2*mod(-s, 4)"),
        ("(6*s + 1) % 8", "2*mod(-s, 4) + 1"),
        ("(s % 8) % 4", "mod(s, 4)"),
        ("(s + s % 8) % 4", "2*mod(s, 2)"),
        ("(s*p) % p", "0"),
        ("(s*p + p - 1) % p", "p - 1"),
        ("-1 % p", "p - 1"),
        ("(s + 3*p) % p", "mod(s, p)"),
    ],
)
def test_remainders(text: str, expected: str) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min(s, s + 1)", "s"),
        ("max(s, s + 1)", "s + 1"),
        ("max(s, 0)", "s"),
        ("max(s, -3)", "s"),
        ("min(small, 6)", "small"),
        ("min(s, p)", "min(p, s)"),
        ("min(min(s, p), min(p, s + 2))", "min(p, s)"),
        ("max(p, max(q, s), 0)", "max(p, q, s)"),
        ("min(s, s)", "s"),
        ("min(s, 4, 9)", "min(s, 4)"),
    ],
)
def test_extrema_drop_what_ranges_decide(text: str, expected: str) -> None:
    check(text, expected)


def test_plain_integers_stay_plain_integers() -> None:
    assert (floordiv(-7, 2), ceildiv(-7, 2), mod(-7, 2)) == (-4, -3, 1)
    assert (minimum(3, 4), maximum(3, 4)) == (3, 4)


@pytest.mark.parametrize(
    ("numerator", "divisor"),
    [(8, 0), (8, -2), (symbol("p", 1), 0), (8, symbol("s")), (symbol("p", 1), symbol("s") - 1)],
    ids=str,
)
def test_divisors_that_may_not_be_positive_are_refused(numerator: Dim, divisor: Dim) -> None:
    for divide in (floordiv, ceildiv, mod):
        with pytest.raises(
            ShapeError, match=r"the divisor must be positive for every value of its symbols[\s\S]*lower"
        ):
            divide(numerator, divisor)


def test_divisors_may_need_a_proof_to_be_positive() -> None:
    p, q = symbol("p", lower=1), symbol("q", lower=1)
    assert str(floordiv(q, p * q - p + 1)) == "floordiv(q, p*q - p + 1)"


def test_operators_are_the_functions() -> None:
    s, p = symbol("s"), symbol("p", lower=1)
    assert s // p == floordiv(s, p)
    assert 7 // p == floordiv(7, p)
    assert s % p == mod(s, p)
    assert 7 % p == mod(7, p)
    assert 7 - s == -(s - 7)
    assert +s == s
