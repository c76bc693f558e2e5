"""In what order points of a space are measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Measure = Callable[[int, int], float | None]
"""Measures a point, by its number, for some rounds: its time over the default's; None where it failed."""


class Strategy(Protocol):
    """A way to look for the best point."""

    def search(self, points: int, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The number of the point that seems to be the fastest, out of `points`; None where none has run.

        It is measured once more against the default before it is used. has_time: whether the task's share of the
        budget lasts; a measurement should not be begun when it does not.
        """


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """All points for a few rounds, the better half for twice as many, and so on."""

    rounds: int = 3

    def search(self, points: int, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The survivor; where time runs out, the best of those that were measured last."""
        alive, rounds = list(range(points)), self.rounds
        best: int | None = None
        while alive:
            found: dict[int, float] = {}
            for point in alive:
                ratio = measure(point, rounds) if has_time() else None
                if ratio is not None:
                    found[point] = ratio
            order = sorted(found, key=found.__getitem__)
            best = order[0] if order else best
            if len(order) <= 1 or not has_time():
                return best
            alive, rounds = order[: (len(order) + 1) // 2], rounds * 2
        return best
