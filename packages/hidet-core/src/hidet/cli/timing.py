"""How long a call takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of repeated calls: their median, the fastest, and how many there were."""

    median: float
    fastest: float
    calls: int


def time_calls(run: Callable[[], object], seconds: float, least_calls: int = 3, warm_calls: int = 1) -> list[float]:
    """Return the durations, in seconds, of calls made for about `seconds`, but at least `least_calls` of them."""
    for _ in range(warm_calls):
        run()
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while len(durations) < least_calls or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        durations.append(time.perf_counter() - start)
    return durations


def measure_alternately(
    runs: dict[str, Callable[[], object]],
    seconds: float,
    rounds: int,
    pause: float = 0.05,
    time_turn: Callable[[Callable[[], object], float], list[float]] = time_calls,
) -> dict[str, Latency]:
    """Time several functions in turns, so that a disturbance of the machine meets all of them; each round begins with
    another one, so that what comes first, behind a rest, is not always the same.

    seconds: for each function and round. pause: seconds of rest before a turn, in which the worker threads of the
    previous function go to sleep instead of spinning beside the next one. time_turn: durations of calls made for some
    seconds; a device has a clock of its own.
    """
    durations: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            time.sleep(pause)
            durations[name] += time_turn(runs[name], seconds)
    return {
        name: Latency(median=statistics.median(values), fastest=min(values), calls=len(values))
        for name, values in durations.items()
    }
