"""Random expressions against plain integer arithmetic: simplification keeps values, and facts and proofs are true."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hidet.dims import (
    Dim,
    Symbol,
    as_dim,
    bounds,
    ceildiv,
    compile_evaluator,
    divisibility,
    evaluate,
    floordiv,
    floordiv_unchecked,
    maximum,
    minimum,
    mod,
    mod_unchecked,
    parse_dim,
    prove_equal,
    prove_le,
    prove_lt,
    substitute,
)
from hidet.errors import ShapeError

SYMBOLS = (
    Symbol("a"),
    Symbol("b", lower=1),
    Symbol("c", lower=1, upper=9),
    Symbol("d", divisor=4),
    Symbol("e", lower=6, upper=60, divisor=6),
    Symbol("f", lower=-7, upper=5),
    Symbol("g", lower=2, upper=3),
)
BY_NAME = {symbol.name: symbol for symbol in SYMBOLS}

Binary = tuple[Callable[[int, int], int], Callable[[Dim, Dim], Dim]]
OPERATORS: dict[str, Binary] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "min": (min, minimum),
    "max": (max, maximum),
    "floordiv": (operator.floordiv, floordiv),
    "ceildiv": (lambda x, y: -(-x // y), ceildiv),
    "mod": (operator.mod, mod),
    "trusted floordiv": (lambda x, y: operator.floordiv(x, _trusted(y)), floordiv_unchecked),
    "trusted mod": (lambda x, y: operator.mod(x, _trusted(y)), mod_unchecked),
}
DIVISIONS = ["floordiv", "ceildiv", "mod"]
TRUSTED_DIVISIONS = ["trusted floordiv", "trusted mod"]


class _Unfit(Exception):
    """These values are excluded: a divisor that was taken to be positive is not."""


def _trusted(divisor: int) -> int:
    if divisor <= 0:
        raise _Unfit
    return divisor


@dataclass(frozen=True)
class Leaf:
    """An int, or the symbol of that name."""

    content: int | str

    def value(self, bindings: Mapping[str, int]) -> int:
        return self.content if isinstance(self.content, int) else bindings[self.content]

    def dim(self) -> Dim:
        return self.content if isinstance(self.content, int) else as_dim(BY_NAME[self.content])


@dataclass(frozen=True)
class Tree:
    """An expression as it was written."""

    name: str
    left: Expression
    right: Expression

    def value(self, bindings: Mapping[str, int]) -> int:
        return OPERATORS[self.name][0](self.left.value(bindings), self.right.value(bindings))

    def dim(self) -> Dim:
        return OPERATORS[self.name][1](self.left.dim(), self.right.dim())


Expression = Leaf | Tree


def simplified(*expressions: Expression) -> list[Dim]:
    """The simplified forms; the example is skipped when a divisor is not provably positive."""
    try:
        return [expression.dim() for expression in expressions]
    except ShapeError as error:
        assume("divisor must be positive" not in error.message)
        raise


def _grow(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    plain = st.builds(Tree, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
    divided = st.builds(Tree, st.sampled_from(DIVISIONS), inner, POSITIVE)
    freely_divided = st.builds(Tree, st.sampled_from(DIVISIONS), inner, inner)
    return st.one_of(plain, divided, freely_divided)


CONSTANTS = st.builds(Leaf, st.one_of(st.integers(-12, 24), st.sampled_from([2, 3, 4, 6, 8, 12])))
NAMES = st.builds(Leaf, st.sampled_from([symbol.name for symbol in SYMBOLS]))
POSITIVE = st.builds(Leaf, st.one_of(st.integers(1, 12), st.sampled_from(["b", "c", "e"])))
# Divisors that may be taken to be positive, though their bounds do not tell: a // 3, c - 2.
DIVISORS = st.builds(Tree, st.sampled_from(["floordiv", "-"]), NAMES, st.builds(Leaf, st.integers(2, 4)))
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(st.one_of(NAMES, CONSTANTS), _grow, max_leaves=8)


def _values(symbol: Symbol) -> st.SearchStrategy[int]:
    upper = symbol.lower + 40 * symbol.divisor if symbol.upper is None else symbol.upper
    return st.integers(symbol.lower // symbol.divisor, upper // symbol.divisor).map(lambda n: n * symbol.divisor)


BINDINGS = st.lists(st.fixed_dictionaries({symbol.name: _values(symbol) for symbol in SYMBOLS}), min_size=6, max_size=6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(EXPRESSIONS, BINDINGS)
def test_simplification_keeps_the_value(expression: Expression, bindings: list[dict[str, int]]) -> None:
    (size,) = simplified(expression)
    evaluator = compile_evaluator([size], list(BY_NAME))
    for binding in bindings:
        value = expression.value(binding)
        assert evaluate(size, binding) == value
        assert evaluator([binding[name] for name in BY_NAME]) == (value,)
        assert substitute(size, binding) == value


@settings(max_examples=150, deadline=None, derandomize=True)
@given(EXPRESSIONS, BINDINGS)
def test_bounds_and_divisibility_are_true(expression: Expression, bindings: list[dict[str, int]]) -> None:
    (size,) = simplified(expression)
    lower, upper = bounds(size)
    divisor = divisibility(size)
    for binding in bindings:
        value = expression.value(binding)
        assert lower is None or lower <= value
        assert upper is None or value <= upper
        assert value == 0 if divisor == 0 else value % divisor == 0


@settings(max_examples=150, deadline=None, derandomize=True)
@given(EXPRESSIONS)
def test_text_reads_back_as_the_same_size(expression: Expression) -> None:
    (size,) = simplified(expression)
    assert parse_dim(str(size), BY_NAME) == size


@settings(max_examples=100, deadline=None, derandomize=True)
@given(EXPRESSIONS, EXPRESSIONS, BINDINGS)
def test_equal_sizes_hash_alike_and_have_the_same_values(
    one: Expression, other: Expression, bindings: list[dict[str, int]]
) -> None:
    swapped, straight = simplified(Tree("+", Tree("*", one, other), one), Tree("+", one, Tree("*", other, one)))
    assert swapped == straight
    assert hash(swapped) == hash(straight)


EVERY_PROVER = pytest.mark.parametrize(
    ("prove", "relation"),
    [(prove_equal, operator.eq), (prove_le, operator.le), (prove_lt, operator.lt)],
    ids=["equal", "le", "lt"],
)


@EVERY_PROVER
@settings(max_examples=80, deadline=None, derandomize=True)
@given(one=EXPRESSIONS, other=EXPRESSIONS, shared=EXPRESSIONS, combine=st.sampled_from(["+", "*"]), bindings=BINDINGS)
def test_provers_never_lie(
    prove: Callable[[Dim, Dim], bool | None],
    relation: Callable[[int, int], bool],
    one: Expression,
    other: Expression,
    shared: Expression,
    combine: str,
    bindings: list[dict[str, int]],
) -> None:
    # Sizes that share a part are related often enough for proofs to be found.
    left, right = Tree(combine, one, shared), Tree(combine, shared, other)
    answer = prove(*simplified(left, right))
    for binding in bindings:
        assert answer is None or relation(left.value(binding), right.value(binding)) is answer


@EVERY_PROVER
@settings(max_examples=150, deadline=None, derandomize=True)
@given(one=NAMES, divisor=DIVISORS, divide=st.sampled_from(TRUSTED_DIVISIONS), other=NAMES, bindings=BINDINGS)
def test_provers_do_not_lie_about_divisors_that_are_taken_to_be_positive(
    prove: Callable[[Dim, Dim], bool | None],
    relation: Callable[[int, int], bool],
    one: Expression,
    divisor: Expression,
    divide: str,
    other: Expression,
    bindings: list[dict[str, int]],
) -> None:
    """An equality is tried for every remainder of a symbol, some of which a divisor excludes."""
    left = Tree("*", Tree(divide, one, divisor), divisor)
    assume(bounds(divisor.dim())[1] not in (-1, 0))
    answer = prove(left.dim(), other.dim())
    for binding in bindings:
        try:
            holds = relation(left.value(binding), other.value(binding))
        except _Unfit:
            continue
        assert answer is None or holds is answer
