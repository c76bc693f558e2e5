"""What was measured of the tasks of a model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one call of a model.

    seconds: by segment, of all its runs in the call; runs: how many. host: seconds beside. call: of a call of the model
    as it is. calls: how many of both were measured. timeline: when segments ran in one call, from its start.
    """

    seconds: Mapping[str, float]
    runs: Mapping[str, int]
    host: float
    call: float
    calls: int
    timeline: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True)
class OneCall:
    """A measured call.

    total: its seconds. disturbances: how often the system took a processor from the process meanwhile. runs: when each
    segment began and ended, from the start of the call; of a call of the model as it is, none.
    """

    total: float
    disturbances: int = 0
    runs: Sequence[tuple[str, float, float]] = ()


def quietest(calls: Sequence[OneCall]) -> list[OneCall]:
    """The half of the calls that was disturbed least, at least one: by other processes first, then the fastest. What is
    added up over the same calls adds up."""
    ordered = sorted(calls, key=lambda call: (call.disturbances, call.total))
    return ordered[: max(len(ordered) // 2, 1)]


def mean_seconds(calls: Sequence[OneCall]) -> float:
    """Of a call."""
    return statistics.fmean(call.total for call in calls)
