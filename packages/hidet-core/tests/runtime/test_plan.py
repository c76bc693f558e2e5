"""The memory plan never lets two live buffers overlap, and stays near the smallest arena possible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hidet.runtime import plan as planning
from hidet.runtime.plan import ALIGNMENT, MemoryPlan, plan_memory

LIFETIMES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 5000)).map(lambda t: ((t[0], t[0] + t[1]), t[2])),
    max_size=25,
)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@pytest.fixture(params=["largest first", "earliest first"], autouse=True, scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways of planning: that of few buffers that live together, and that of many."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "earliest first":
            patch.setattr(planning, "MAX_PAIRS", -1)
        yield request.param


@given(LIFETIMES)
def test_buffers_that_live_at_the_same_time_do_not_overlap(buffers: list[tuple[tuple[int, int], int]]) -> None:
    plan = plan_memory([lifetime for lifetime, _ in buffers], [size for _, size in buffers])
    placed = [
        (offset, offset + size, *lifetime) for offset, (lifetime, size) in zip(plan.offsets, buffers, strict=True)
    ]
    for number, (start, end, first, last) in enumerate(placed):
        for other_start, other_end, other_first, other_last in placed[:number]:
            alive_together = first <= other_last and other_first <= last
            assert not alive_together or end <= other_start or other_end <= start


@given(LIFETIMES)
def test_every_buffer_is_aligned_and_lies_in_the_arena(buffers: list[tuple[tuple[int, int], int]]) -> None:
    plan = plan_memory([lifetime for lifetime, _ in buffers], [size for _, size in buffers])
    for offset, (_, size) in zip(plan.offsets, buffers, strict=True):
        assert offset % ALIGNMENT == 0
        assert size == 0 or offset + size <= plan.nbytes


@given(LIFETIMES)
def test_the_arena_is_at_least_the_peak_of_live_bytes_and_at_most_their_sum(
    buffers: list[tuple[tuple[int, int], int]],
) -> None:
    plan = plan_memory([lifetime for lifetime, _ in buffers], [size for _, size in buffers])
    peak = max((sum(_rounded(s) for (a, b), s in buffers if a <= step <= b) for step in range(30)), default=0)
    assert peak <= plan.nbytes <= sum(_rounded(size) for _, size in buffers)


def test_a_chain_of_equal_layers_needs_two_buffers() -> None:
    plan = plan_memory([(n, n + 1) for n in range(10)], [1024] * 10)
    assert plan.nbytes == 2 * 1024


class Step(int):
    """A number of a step that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Step.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Step.compared += 1
        return int(self) > int(other)

    def __le__(self, other: int) -> bool:
        Step.compared += 1
        return int(self) <= int(other)


def _comparisons(lifetimes: list[tuple[int, int]]) -> tuple[int, MemoryPlan]:
    Step.compared = 0
    plan = plan_memory(
        [(Step(first), Step(last)) for first, last in lifetimes], [64 + n % 7 for n in range(len(lifetimes))]
    )
    return Step.compared, plan


@pytest.mark.parametrize("reach", (1, 3))
def test_the_time_for_a_chain_grows_with_its_length(reach: int) -> None:
    """red-team.md finding 9."""
    short, long = ([(n, n + reach) for n in range(count)] for count in (500, 4000))
    few, _ = _comparisons(short)
    many, _ = _comparisons(long)
    # Eight times as many buffers, and trees that are three levels deeper.
    assert many < 8 * 2 * few


def test_thousands_of_buffers_that_live_together_are_not_compared_in_pairs() -> None:
    count = 4000
    compared, plan = _comparisons([(n, count) for n in range(count)])
    assert compared < count * 100
    assert plan.nbytes == count * 128 - sum(64 for n in range(count) if n % 7 == 0)
