"""The time of an iteration, on a machine that does other things besides."""

from __future__ import annotations

import pytest

from hidet.target.timing import seconds_of_one


class Clock:
    """Time that passes by work alone: so much for a call, so much for each iteration."""

    def __init__(self, call: float, iteration: float, disturbed: int = 0) -> None:
        self.now, self.call, self.iteration, self.disturbed = 0.0, call, iteration, disturbed
        self.calls = 0

    def __call__(self) -> float:
        return self.now

    def run(self, count: int) -> None:
        self.calls += 1
        delay = 1e-2 if self.disturbed and self.calls % self.disturbed == 0 else 0.0
        self.now += self.call + count * self.iteration + delay


@pytest.mark.parametrize("iteration", [1e-9, 1e-6, 1e-2])
def test_what_a_call_takes_besides_is_not_part_of_an_iteration(iteration) -> None:
    clock = Clock(call=5e-6, iteration=iteration)
    assert seconds_of_one(clock.run, clock, 0.02) == pytest.approx(iteration)


def test_disturbed_trials_do_not_count() -> None:
    clock = Clock(call=1e-6, iteration=1e-8, disturbed=3)
    assert seconds_of_one(clock.run, clock, 0.2) == pytest.approx(1e-8, rel=0.05)
