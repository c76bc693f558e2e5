"""A strategy that varies the knobs of the best points so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hidet.tuning.strategy import KnobValue, Measure, Point, Problem, fastest, ranked

_ATTEMPTS = 32
"""Children that are drawn before a point is taken by chance: most combinations of knobs are no points of a space."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """Generations of points: each is made of the best so far, by taking knobs of one or of two of them and changing
    one knob to another of its values.

    trials: how many points at most. generation: points that are measured at once; the first one is half by rank, half
    by chance. parents: the best so many have children. rounds: of each at first. finalists: the best so many meet once
    more. seed: of chance; the search is the same for the same seed and the same measurements.
    """

    trials: int = 96
    generation: int = 12
    parents: int = 6
    rounds: int = 3
    finalists: int = 8
    seed: int = 0

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The fastest of all generations."""
        chance = random.Random(self.seed)
        left = ranked(problem)
        born = left[: self.generation // 2]
        born += chance.sample(left[len(born) :], min(self.generation - len(born), len(left) - len(born)))
        found: dict[int, float] = {}
        tried = 0
        while born and has_time():
            tried += len(born)
            found.update(measure(born, self.rounds))
            left = [number for number in left if number not in set(born)]
            parents = sorted(found, key=found.__getitem__)[: self.parents]
            born = _children(problem.points, parents, left, min(self.generation, self.trials - tried), chance)
        return fastest(found, self.finalists, 2 * self.rounds, measure, has_time)


def _children(
    points: Sequence[Point], parents: Sequence[int], left: Sequence[int], count: int, chance: random.Random
) -> list[int]:
    """Up to `count` of the points that are left, made of the parents' knobs."""
    numbers = {_name(points[number].knobs): number for number in left}
    values: dict[str, list[KnobValue]] = {}
    for point in points:
        for knob, value in point.knobs.items():
            if value not in values.setdefault(knob, []):
                values[knob].append(value)
    free = [knob for knob, given in values.items() if len(given) > 1]
    children: list[int] = []
    while numbers and len(children) < count:
        child = None
        for _ in range(_ATTEMPTS if parents and free else 0):
            mother, father = (points[chance.choice(parents)].knobs for _ in range(2))
            knobs = {knob: chance.choice((mother, father)).get(knob, value) for knob, value in mother.items()}
            changed = chance.choice(free)
            knobs[changed] = chance.choice(values[changed])
            child = numbers.pop(_name(knobs), None)
            if child is not None:
                break
        if child is None:
            child = numbers.pop(chance.choice(list(numbers)))
        children.append(child)
    return children


def _name(knobs: Mapping[str, KnobValue]) -> tuple[tuple[str, str], ...]:
    """The same for the same values: 1 and True are not."""
    return tuple(sorted((knob, repr(value)) for knob, value in knobs.items()))
