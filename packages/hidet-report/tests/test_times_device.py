"""How the time of a recorded call is shared among the tasks that it runs."""

from __future__ import annotations

import math
import random

import pytest

from hidet.report.times_device import ends_of_groups, parts_of_groups


def test_tasks_that_take_long_are_groups_of_their_own() -> None:
    assert ends_of_groups([100e-6, 50e-6, 70e-6]) == [1, 2, 3]


def test_short_tasks_are_grouped_with_what_follows_and_the_last_ones_with_what_precedes() -> None:
    assert ends_of_groups([1e-6, 1e-6, 100e-6, 100e-6, 1e-6]) == [3, 5]


def test_a_call_shorter_than_any_group_is_one() -> None:
    assert ends_of_groups([1e-6, 1e-6]) == [2]
    assert ends_of_groups([]) == [0]


def test_groups_take_what_a_call_takes_longer_with_them_and_their_tasks_shares_of_it() -> None:
    parts = parts_of_groups([10e-6, 30e-6, 50e-6], [2, 3], [1e-6, 51e-6, 101e-6])
    assert parts == pytest.approx([12.5e-6, 37.5e-6, 50e-6])


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_never_negative_and_add_up_to_the_longest_call(seed: int) -> None:
    source = random.Random(seed)
    alone = [source.choice((1e-6, 4e-6, 90e-6)) * source.random() for _ in range(source.randint(1, 60))]
    ends = ends_of_groups(alone)
    found = [source.uniform(-1e-6, 3e-6)]
    for _ in ends:
        found.append(found[-1] + source.uniform(-2e-6, 40e-6))
    parts = parts_of_groups(alone, ends, found)
    assert len(parts) == len(alone)
    assert min(parts) >= 0
    assert math.fsum(parts) == pytest.approx(max(0.0, *found) - max(found[0], 0.0), abs=1e-12)
