"""Interval arithmetic against every pair of members of small intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from hidet.dims import interval
from hidet.dims.interval import Interval

ENDS = [-5, -2, -1, 0, 1, 2, 4]
# Stands in for infinity: far beyond any finite end, so that a result in reach of it has to be unbounded.
FAR = 60


def intervals() -> Iterator[Interval]:
    for lower, upper in itertools.product([None, *ENDS], [*ENDS, None]):
        if lower is None or upper is None or lower <= upper:
            yield (lower, upper)


def members(span: Interval) -> list[int]:
    lower = -FAR if span[0] is None else span[0]
    upper = FAR if span[1] is None else span[1]
    return [lower, *range(max(lower, -7), min(upper, 7) + 1), upper]


def contains(span: Interval, value: int) -> bool:
    return (span[0] is None or span[0] <= value) and (span[1] is None or value <= span[1])


EXACT: list[tuple[Callable[[Interval, Interval], Interval], Callable[[int, int], int]]] = [
    (interval.add, lambda x, y: x + y),
    (interval.multiply, lambda x, y: x * y),
    (lambda a, b: interval.minimum([a, b]), min),
    (lambda a, b: interval.maximum([a, b]), max),
]


@pytest.mark.parametrize(("operation", "meaning"), EXACT, ids=["add", "multiply", "minimum", "maximum"])
def test_bounds_are_the_extremes_of_all_results(
    operation: Callable[[Interval, Interval], Interval], meaning: Callable[[int, int], int]
) -> None:
    for a, b in itertools.product(intervals(), repeat=2):
        results = [meaning(x, y) for x in members(a) for y in members(b)]
        lower, upper = operation(a, b)
        assert (lower is None) == (min(results) < -FAR // 2), (a, b)
        assert (upper is None) == (max(results) > FAR // 2), (a, b)
        assert lower is None or lower == min(results), (a, b)
        assert upper is None or upper == max(results), (a, b)


def test_quotients_and_remainders_by_positive_members_stay_inside() -> None:
    for a, b in itertools.product(intervals(), repeat=2):
        divisors = [y for y in members(b) if y > 0]
        if not divisors:
            continue
        quotient, remainder = interval.floordiv(a, b), interval.modulo(a, b, 1)
        for x, y in itertools.product(members(a), divisors):
            assert contains(quotient, x // y), (a, b, x, y)
            assert contains(remainder, x % y), (a, b, x, y)


def test_quotients_of_finite_intervals_are_tight() -> None:
    for a in intervals():
        if None in a:
            continue
        results = [x // y for x in members(a) for y in (2, 3)]
        assert interval.floordiv(a, (2, 3)) == (min(results), max(results))


def test_a_known_divisor_of_the_remainder_tightens_its_upper_bound() -> None:
    assert interval.modulo((None, None), (16, 16), step=4) == (0, 12)
