"""Cases of a test that run by default."""

from __future__ import annotations

import itertools
import math

import pytest

from tests.sampling import chosen_cases


def product(**extents: int) -> list[dict[str, int]]:
    """Cases of a test with so many values of each parameter, the last of which varies fastest."""
    return [dict(zip(extents, values, strict=True)) for values in itertools.product(*map(range, extents.values()))]


@pytest.mark.parametrize("every", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    "extents", [{"a": 7}, {"a": 6, "b": 2}, {"a": 5, "b": 3}, {"a": 4, "b": 4}, {"a": 3, "b": 2, "c": 2}], ids=str
)
def test_one_case_in_so_many_runs_and_every_value_that_there_is_room_for(extents: dict[str, int], every: int) -> None:
    cases = product(**extents)
    chosen = chosen_cases(cases, every)
    assert len(chosen) == len(set(chosen)) == math.ceil(len(cases) / every)
    for name, extent in extents.items():
        assert len({cases[number][name] for number in chosen}) == min(extent, len(chosen))


def test_cases_are_the_same_each_time_and_in_order() -> None:
    cases = product(a=5, b=4, c=3)
    chosen = chosen_cases(cases, 4)
    assert chosen == chosen_cases(cases, 4) == sorted(chosen)


def test_a_single_case_runs() -> None:
    assert chosen_cases([{"a": 3, "b": 1}], 8) == [0]
    assert chosen_cases([{}], 8) == [0]
