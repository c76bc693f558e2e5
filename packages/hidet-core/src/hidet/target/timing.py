"""How long an iteration of a loop takes on a machine that does other things besides.

The fastest of several trials counts: other processes only ever make a loop slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_BUDGET, _TRIAL_SECONDS, _LEAST_TRIALS = 0.05, 0.3e-3, 3


def seconds_of_one(
    run: Callable[[int], object], clock: Callable[[], float] = time.perf_counter, budget: float = _BUDGET
) -> float:
    """Seconds of an iteration of `run(iterations)`, without what a call takes besides.

    A number of iterations is looked for that takes `_TRIAL_SECONDS`, short enough to be left alone by other processes
    most times. It and twice as many are timed in turns for `budget` seconds; what counts is the difference between the
    shortest of both.
    """
    count, taken = 1, 0.0
    run(1)
    while taken < _TRIAL_SECONDS / 2:
        if taken:
            count = max(2 * count, min(64 * count, int(count * _TRIAL_SECONDS / 2 / taken)))
        taken = min(_seconds(run, count, clock), _seconds(run, count, clock))
    short, long, trials, end = taken, 0.0, 0, clock() + budget
    while trials < _LEAST_TRIALS or clock() < end:
        again = _seconds(run, 2 * count, clock)
        long = min(long or again, again)
        short = min(short, _seconds(run, count, clock))
        trials += 1
    # Where all the short trials were disturbed, the long ones alone say more.
    return (long - short) / count if long > 1.5 * short else long / (2 * count)


def _seconds(run: Callable[[int], object], count: int, clock: Callable[[], float]) -> float:
    start = clock()
    run(count)
    return max(clock() - start, 1e-9)
