"""The memory plan never lets two live buffers overlap, and stays near the smallest arena possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hidet.runtime.plan import ALIGNMENT, plan_memory

LIFETIMES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 5000)).map(lambda t: ((t[0], t[0] + t[1]), t[2])),
    max_size=25,
)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


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
