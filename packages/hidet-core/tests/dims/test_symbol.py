"""Symbols: the facts they carry, and the sizes that are made of them."""

from __future__ import annotations

import copy
import pickle

import pytest

from hidet.dims import Dim, DimExpr, Symbol, as_dim, bounds, divisibility, product, symbol
from hidet.errors import ShapeError


def test_bounds_are_tightened_to_multiples_of_the_divisor() -> None:
    assert (Symbol("s", 1, 30, 8).lower, Symbol("s", 1, 30, 8).upper) == (8, 24)
    assert bounds(symbol("s", -3, 30, 8)) == (0, 24)


def test_symbols_with_the_same_facts_are_equal_whatever_their_hint() -> None:
    assert Symbol("s", 1, 30, 8, hint=8) == Symbol("s", 2, 24, 8)
    assert hash(Symbol("s", 1, 30, 8, hint=8)) == hash(Symbol("s", 2, 24, 8))
    assert Symbol("s", lower=1) != Symbol("s")
    assert symbol("s", lower=1) != symbol("s")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "batch size"}, "symbol name 'batch size' is not an identifier"),
        ({"name": "s", "divisor": 0}, "symbol s has divisor 0: expected at least 1"),
        ({"name": "s", "lower": 9, "upper": 15, "divisor": 8}, r"no multiple of 8 lies in \[9, 15\]"),
        ({"name": "s", "lower": 2, "hint": 1}, "symbol s has hint 1, which is not one of its values: 2 <= s"),
        ({"name": "s", "upper": 9, "divisor": 2, "hint": 3}, "0 <= s <= 8, a multiple of 2"),
    ],
    ids=["name", "divisor", "range", "hint below", "hint not a multiple"],
)
def test_impossible_symbols_are_refused(arguments: dict[str, int | str], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Symbol(**arguments)  # type: ignore[arg-type]


def test_a_symbol_admits_what_fits_its_facts() -> None:
    even = Symbol("s", lower=2, upper=8, divisor=2)
    assert [value for value in range(-2, 12) if even.admits(value)] == [2, 4, 6, 8]


def test_a_symbol_with_one_possible_value_is_that_int() -> None:
    assert symbol("s", lower=7, upper=7) == 7
    assert as_dim(Symbol("s", lower=1, upper=15, divisor=8)) == 8
    assert as_dim(5) == 5


def test_a_size_has_neither_truth_value_nor_order() -> None:
    size = symbol("s")
    with pytest.raises(ShapeError, match="the symbolic size s has no truth value"):
        bool(size)
    with pytest.raises(TypeError):
        size < 3  # type: ignore[operator]  # noqa: B015


def test_a_size_combines_with_integers_and_sizes_only() -> None:
    size = symbol("s")
    with pytest.raises(TypeError):
        size + 1.5  # type: ignore[operator]
    with pytest.raises(TypeError):
        "2" * size  # type: ignore[operator]


def test_a_size_never_equals_an_int() -> None:
    assert symbol("s") != 3
    assert not isinstance(symbol("s"), int)


@pytest.mark.parametrize(
    "size",
    [
        symbol("s"),
        symbol("s", 1, 64, 4, hint=8) * 3 + 1,
        (symbol("s", divisor=4) + symbol("t", 1)) // 4 % symbol("t", 1),
    ],
    ids=str,
)
def test_copies_are_equal(size: Dim) -> None:
    assert copy.deepcopy(size) == size
    copied = pickle.loads(pickle.dumps(size))
    assert copied == size
    assert hash(copied) == hash(size)
    assert bounds(copied) == bounds(size)


def test_sizes_are_immutable() -> None:
    size = symbol("s")
    assert isinstance(size, DimExpr)
    with pytest.raises(AttributeError):
        size.constant = 3  # type: ignore[misc]


def test_divisibility_collects_coefficients_and_divisors() -> None:
    s, t = symbol("s", divisor=8), symbol("t")
    assert divisibility(s * t) == 8
    assert divisibility(6 * t + 4) == 2
    assert divisibility(3 * s + 12 * t) == 12
    assert divisibility(12) == 12
    assert divisibility(0) == 0
    assert divisibility(t) == 1


def test_the_product_of_no_sizes_is_one() -> None:
    assert product([]) == 1
    assert product([symbol("s"), 4, 0]) == 0


def test_products_beyond_the_limit_are_refused_quickly() -> None:
    sums = [symbol(f"a{index}") + symbol(f"b{index}") + symbol(f"c{index}") for index in range(9)]
    with pytest.raises(ShapeError, match=r"the product of two symbolic sizes with \d+ and 3 terms is too large"):
        product(sums)


def test_nesting_beyond_the_limit_is_refused() -> None:
    size = symbol("s")
    with pytest.raises(ShapeError, match="nests 151 levels"):
        for _ in range(200):
            size = (size // 2 + symbol("t")) % 1000
