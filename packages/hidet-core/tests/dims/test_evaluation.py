"""Giving symbols values: evaluation, substitution and generated evaluators."""

from __future__ import annotations

import pytest

from hidet.dims import (
    Symbol,
    compile_evaluator,
    evaluate,
    fold,
    hint_value,
    last_place,
    maximum,
    minimum,
    substitute,
    symbol,
    symbols,
)
from hidet.errors import ShapeError

S, T, E = symbol("s"), symbol("t", lower=1), symbol("e", divisor=4)


def test_evaluation_binds_symbols_by_name() -> None:
    assert evaluate(S * T + S // 2 - 1, {"s": 7, "t": 3}) == 23
    assert evaluate(minimum(S, T) + maximum(S, T) * 10 + S % T, {"s": 7, "t": 3}) == 74
    assert evaluate(E // 4 * 3, {"e": 8}) == 6
    assert evaluate(5, {}) == 5


def test_evaluation_names_the_symbol_without_a_value() -> None:
    with pytest.raises(ShapeError, match=r"symbol s of the size s \+ t has no value[\s\S]*did you mean"):
        evaluate(S + T, {"t": 3, "ss": 3})


def test_evaluation_refuses_a_divisor_out_of_range() -> None:
    for divide in (lambda s, t: evaluate(S // T, {"s": s, "t": t}), lambda *v: compile_evaluator([S // T], "st")(v)):
        assert divide(4, 2) in (2, (2,))
        for t in (0, -2):
            with pytest.raises(ShapeError, match=rf"floordiv\(s, t\) divides by {t} for the sizes of this call"):
                divide(4, t)


def test_substitution_simplifies_anew() -> None:
    assert substitute((S + 1) // 4, {"s": 4 * T + 3}) == T + 1
    assert substitute(S // T, {"s": 12, "t": 4}) == 3
    assert substitute(S + T, {"s": T, "t": S}) == S + T
    assert str(substitute(E // 4, {"e": S})) == "floordiv(s, 4)"


def test_substitution_of_other_symbols_changes_nothing() -> None:
    size = S // 2 + 1
    assert substitute(size, {"t": 4}) is size
    assert substitute(7, {"s": 4}) == 7


def test_substitution_that_breaks_a_divisor_is_refused() -> None:
    with pytest.raises(ShapeError, match="the divisor must be positive"):
        substitute(S // T, {"t": S})


def test_symbols_are_found_inside_nodes_once_each() -> None:
    size = minimum(S // T, E % 5) * S + 3
    assert symbols(size) == (Symbol("e", divisor=4), Symbol("s"), Symbol("t", lower=1))
    assert symbols(4) == ()


def test_the_hint_of_a_size_needs_all_its_symbols_hints() -> None:
    hinted = symbol("h", hint=12)
    assert hint_value(hinted // 5 + 1) == 3
    assert hint_value(hinted + S) is None
    assert hint_value(6) == 6


def test_generated_evaluators_take_values_in_the_order_of_names() -> None:
    evaluator = compile_evaluator([S * T + 1, S // 2, 3, minimum(S, 4), E // 4 * 3], ["t", "s", "e", "unused"])
    assert evaluator((3, 5, 8, 0)) == (16, 2, 3, 4, 6)
    assert evaluator([1, 0, 0, 0]) == (1, 0, 3, 0, 0)


def test_generated_evaluators_may_have_no_input_or_one_output() -> None:
    assert compile_evaluator([4], [])(()) == (4,)
    assert compile_evaluator([], [])(()) == ()
    assert compile_evaluator([S], ["s"])([9]) == (9,)


def test_generated_evaluators_take_sums_of_any_length() -> None:
    names = [f"s{number}" for number in range(1000)]
    assert compile_evaluator([sum(map(symbol, names), 0) // 2 * S], [*names, "s"])([3] * 1001) == (4500,)


def test_generated_evaluators_refuse_unknown_symbols_when_they_are_made() -> None:
    with pytest.raises(ShapeError, match="symbol s of the size s has no value"):
        compile_evaluator([S], ["t"])


def test_generated_code_contains_no_symbol_names() -> None:
    assert compile_evaluator([symbol("__import__") + 1], ["__import__"])([3]) == (4,)


class Steps:
    """An algebra that counts operations."""

    def integer(self, value: int) -> int:
        return 0

    def symbol(self, symbol: Symbol) -> int:
        return 0

    def count(self, a: int, b: int) -> int:
        return a + b + 1

    add = multiply = floordiv = mod = minimum = maximum = count


def test_fold_visits_the_whole_structure() -> None:
    assert fold(2 * S * T - 3, Steps()) == 3
    assert fold(minimum(S // T, E % 5) + maximum(S, T), Steps()) == 5
    assert fold(E // 4, Steps()) == 1


def test_the_last_place_of_a_tensor_follows_from_its_strides() -> None:
    assert last_place((2, 3), (10, 4)) == 18
    assert last_place((), ()) == 0
    assert evaluate(last_place((S, 4), (T, 1)), {"s": 5, "t": 9}) == 39
