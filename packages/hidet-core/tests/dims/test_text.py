"""The text of sizes: reading it back, and messages for text that is no size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hidet.dims import Dim, Symbol, floordiv_unchecked, mod_unchecked, parse_dim, symbol
from hidet.dims import text as dims_text
from hidet.errors import ShapeError

SYMBOLS = {"s0": Symbol("s0"), "s1": Symbol("s1", lower=1), "batch": symbol("batch", divisor=4)}


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-3",
        "s0",
        "-s0",
        "2*s0 + 1",
        "s0*s1 - 3*s0 - 1",
        "floordiv(s0 + 3, 4)",
        "3*floordiv(batch, 4) + 2",
        "floordiv(s0, s1)*s1",
        "mod(s0 - 2*s1, 5)",
        "min(s0, s1, 128)",
        "max(floordiv(s0, 2), s1) - 7",
    ],
)
def test_printed_sizes_read_back_as_the_same_text(text: str) -> None:
    size = parse_dim(text, SYMBOLS)
    assert str(size) == text
    assert parse_dim(str(size), SYMBOLS) == size


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("  2 *s0+ 1 ", "2*s0 + 1"),
        ("s0//4%2", "mod(floordiv(s0, 4), 2)"),
        ("-s0//2", "floordiv(-s0, 2)"),
        ("ceildiv(s0, 4)", "floordiv(s0 + 3, 4)"),
        ("--3", "3"),
        ("2*(s0 + (s1 - 1))", "2*s0 + 2*s1 - 2"),
        ("min(s0, s1, s0*s1, 4)", "min(s0, min(s1, min(s0*s1, 4)))"),
    ],
)
def test_other_spellings_are_understood(text: str, same: str) -> None:
    assert parse_dim(text, SYMBOLS) == parse_dim(same, SYMBOLS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: found the end, expected a number, a name or"),
        ("2*", "column 3: found the end"),
        ("2 s0", "column 2: found 's0', expected an operator or the end"),
        ("(s0", "found the end, expected '\\)'"),
        ("s0 + ?", "found '\\?', expected a number, a name or an operator"),
        ("s0 / 2", "found '/'"),
        ("mod(s0)", "expected mod to have two arguments"),
        ("min(s0)", "expected min to have two or more arguments"),
        ("floordiv(s0, 2, 3)", "expected floordiv to have two arguments"),
        ("floor(s0, 2)", "'floor' is no function; functions: floordiv, ceildiv, mod, min, max"),
        ("bach + 1", r"column 1: found 'bach', expected a known symbol\nhint: did you mean 'batch'"),
        ("s0 // 0", "the divisor must be positive"),
    ],
)
def test_malformed_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        parse_dim(text, SYMBOLS)


def test_deeply_nested_text_is_refused() -> None:
    with pytest.raises(ShapeError, match="levels of nesting"):
        parse_dim("(" * 100_000 + "s0" + ")" * 100_000, SYMBOLS)


def test_long_texts_are_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """red-team.md finding 13: a message about the whole text was made for each name in it."""

    def made(*_: object) -> ShapeError:
        raise AssertionError("a message is made")

    monkeypatch.setattr(dims_text._Parser, "error", made)
    assert parse_dim(" + ".join(["s0"] * 5000), SYMBOLS) == 5000 * parse_dim("s0", SYMBOLS)


@pytest.mark.parametrize("divide", [floordiv_unchecked, mod_unchecked])
def test_divisors_that_were_taken_to_be_positive_read_back(divide: Callable[[Dim, Dim], Dim]) -> None:
    n, m = symbol("n"), symbol("m")
    size = divide(n * m, m * m + n)
    names = {"n": n, "m": m}
    assert parse_dim(str(size), names, is_printed=True) == size
    with pytest.raises(ShapeError, match="divisor must be positive"):
        parse_dim(str(size), names)
    with pytest.raises(ShapeError, match="divisor must be positive"):
        parse_dim("floordiv(n, 0)", names, is_printed=True)


def test_repr_shows_that_it_is_a_size() -> None:
    assert repr(symbol("s0") + 1) == "<dim s0 + 1>"
