"""Strategies that settle beforehand in what order points are measured: by rank, all of them, or by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hidet.tuning.strategy import Measure, Problem, fastest, ranked, survivor


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """Points by falling rank, a wave at a time; the better half of a wave is measured for twice as many rounds, and so
    on, and the survivor meets the next wave.

    wave: points that compete at once. rounds: of each at first. patience: where rules have predicted times, a search
    ends after so many waves without a point that is faster by `gain` than all before, and than the default.
    """

    wave: int = 8
    rounds: int = 3
    patience: int = 2
    gain: float = 0.01

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The survivor of the waves that there was time for."""
        order = ranked(problem)
        is_predicted = any(point.predicted is not None for point in problem.points)
        ratios: dict[int, float] = {}

        def measure_and_keep(places: Sequence[int], rounds: int) -> Mapping[int, float]:
            found = measure(places, rounds)
            ratios.update(found)
            return found

        best: int | None = None
        fastest_so_far, vain = 1.0, 0
        for start in range(0, len(order), self.wave):
            wave = order[start : start + self.wave]
            found = survivor(wave if best is None else [best, *wave], self.rounds, measure_and_keep, has_time)
            best = best if found is None else found
            ratio = inf if best is None else ratios[best]
            vain = vain + 1 if ratio > (1 - self.gain) * fastest_so_far else 0
            fastest_so_far = min(fastest_so_far, ratio)
            if not has_time() or (is_predicted and vain >= self.patience):
                break
        return best


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Every point, for the same number of rounds."""

    rounds: int = 9

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The fastest of those that there was time for."""
        found = measure(ranked(problem), self.rounds)
        return min(found, key=found.__getitem__, default=None)


@dataclass(frozen=True, slots=True)
class RandomSearch:
    """Points by chance; the best few meet once more.

    trials: how many points at most. rounds: of each at first. finalists: the best few. seed: of the order, which is the
    same for the same seed.
    """

    trials: int = 64
    rounds: int = 3
    finalists: int = 8
    seed: int = 0

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The survivor of the best few."""
        order = list(range(len(problem.points)))
        random.Random(self.seed).shuffle(order)
        found = measure(order[: self.trials], self.rounds)
        return fastest(found, self.finalists, 2 * self.rounds, measure, has_time)
