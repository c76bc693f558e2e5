"""A strategy that learns from measurements, of other sizes too, which points are worth one."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hidet.errors import OptionError
from hidet.tuning.strategy import KnobValue, Measure, Point, Problem, fastest, ranked

_MODEL = {
    "objective": "l2",
    "num_leaves": 15,
    "learning_rate": 0.1,
    # Rows are few: by default a leaf needs 20 of them.
    "min_data_in_leaf": 2,
    "min_data_in_bin": 1,
    "deterministic": True,
    "force_row_wise": True,
    # The other cores may be measuring.
    "num_threads": 1,
    "verbosity": -1,
}
_TREES = 120


class Learned:
    """Trees (gradient boosting by lightgbm) that learn the logarithm of a point's time over the default's from its
    knobs and the logarithms of the task's sizes. They begin with what is known of other sizes, where nothing is with
    the points that rank first, and learn anew from each batch.

    trials: how many points at most. batch: points that are measured at once, one of them by chance. rounds: of each at
    first. finalists: the best so many meet once more. seed: of chance; the search is the same for the same seed and the
    same measurements.
    OptionError where lightgbm is not installed.
    """

    def __init__(self, trials: int = 64, batch: int = 8, rounds: int = 3, finalists: int = 6, seed: int = 0) -> None:
        try:
            import lightgbm
        except ImportError as error:
            raise OptionError(
                "tuning strategy 'learned' needs lightgbm, which is not installed",
                hint="pip install 'hidet-tune[learned]'",
            ) from error
        self._lightgbm: Any = lightgbm
        self.trials, self.batch, self.rounds, self.finalists, self.seed = trials, batch, rounds, finalists, seed

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The fastest of all batches."""
        chance = random.Random(self.seed)
        features = _Features(problem)
        known = [row for row in problem.known if len(row.sizes) == len(problem.sizes) and row.ratio > 0]
        rows = [features.row(each.sizes, each.knobs) for each in known]
        targets = [math.log(each.ratio) for each in known]
        left = ranked(problem)
        found: dict[int, float] = {}
        tried = 0
        while left and tried < self.trials and has_time():
            count = min(self.batch, self.trials - tried)
            best = self._order(problem.points, features, rows, targets, left)[: max(1, count - 1)]
            others = [number for number in left if number not in set(best)]
            batch = best + chance.sample(others, min(count - len(best), len(others)))
            measured = measure(batch, self.rounds)
            found.update(measured)
            tried += len(batch)
            left = [number for number in left if number not in set(batch)]
            for number, ratio in measured.items():
                rows.append(features.row(problem.sizes, problem.points[number].knobs))
                targets.append(math.log(ratio))
        return fastest(found, self.finalists, 2 * self.rounds, measure, has_time)

    def _order(
        self,
        points: Sequence[Point],
        features: _Features,
        rows: Sequence[Sequence[float]],
        targets: Sequence[float],
        left: Sequence[int],
    ) -> list[int]:
        """The points that are left, those first that seem the fastest; as they are where nothing is known yet."""
        if len(rows) < self.batch:
            return list(left)
        data = self._lightgbm.Dataset(np.array(rows), np.array(targets))
        model = self._lightgbm.train({**_MODEL, "seed": self.seed}, data, num_boost_round=_TREES)
        asked = np.array([features.row(features.sizes, points[number].knobs) for number in left])
        expected = model.predict(asked, num_threads=1)
        return [left[place] for place in np.argsort(expected, kind="stable")]


class _Features:
    """Rows of numbers, of which there are as many for every point and for what is known."""

    def __init__(self, problem: Problem) -> None:
        self.sizes = problem.sizes
        given: dict[str, list[KnobValue]] = {}
        for knobs in (*(point.knobs for point in problem.points), *(each.knobs for each in problem.known)):
            for knob, value in knobs.items():
                if value not in given.setdefault(knob, []):
                    given[knob].append(value)
        self._columns = {knob: _Columns(values) for knob, values in sorted(given.items())}

    def row(self, sizes: Iterable[int], knobs: Mapping[str, KnobValue]) -> list[float]:
        """Columns of each knob, then the logarithms of sizes."""
        row = [number for knob, columns in self._columns.items() for number in columns.of(knobs.get(knob))]
        return [*row, *(math.log2(max(size, 1)) for size in sizes)]


class _Columns:
    """What stands for a knob: its value; for text its place in the alphabet, and the numbers in it ("6x4 vectors")."""

    def __init__(self, values: Sequence[KnobValue]) -> None:
        texts = sorted(value for value in values if isinstance(value, str))
        self._places = {text: float(place) for place, text in enumerate(texts)}
        self._count = 1 + max((len(_numbers(text)) for text in texts), default=0)

    def of(self, value: KnobValue | None) -> list[float]:
        """As many numbers for every value; NaN where there are fewer, and for None, which is no such knob."""
        found: list[float] = []
        if isinstance(value, str):
            found = [self._places[value], *_numbers(value)]
        elif value is not None:
            found = [float(value)]
        return found + [math.nan] * (self._count - len(found))


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+", text)]
