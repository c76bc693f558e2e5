"""What a strategy is: it sees the points of a space, has some of them measured, and names the one to choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hidet.context import CompileContext
from hidet.errors import PluginError
from hidet.plugins.registry import Registry
from hidet.schedule.rule import Data, Match, ScheduleRule
from hidet.schedule.shortlist import predicted, space_of
from hidet.schedule.space import Params
from hidet.schedule.task import Task

KnobValue = bool | int | float | str
"""A value of a knob: what is none of these is its text."""

Measure = Callable[[Sequence[int], int], Mapping[int, float]]
"""Measures points, by their numbers, for some rounds each: the time of a call over the default's. What failed is left
out, and so is what the task's share of the budget was too short for; those named first come first. Naming many at once
lets them be compiled ahead."""


MOST_ROUNDS = 24
"""Of a measurement: more tell apart what differs by less than a choice needs as a gain."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a rule's space.

    knobs: its values by name. predicted: seconds of a call as its rule expects them; None where it says nothing.
    """

    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an earlier search has found out about a point, on whatever sizes.

    sizes: of its task, as `Problem.sizes` has them. ratio: the time of a call over the default's. params: the `repr` of
    its parameters.
    """

    sizes: tuple[int, ...]
    knobs: Mapping[str, KnobValue]
    ratio: float
    params: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A space to search.

    points: those that differ from the default and make programs of their own; a point is named by its number here.
    sizes: extents of what the task reads and writes, in order. known: measurements of the same rule on this machine.
    first: points that others should not come before: what was the best in an earlier search.
    """

    points: Sequence[Point]
    sizes: tuple[int, ...] = ()
    known: Sequence[Measurement] = ()
    first: Sequence[int] = ()


class Strategy(Protocol):
    """A way to look for the fastest point. It must not keep anything from one search to the next."""

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        """The number of the point that seems to be the fastest; None where none has run.

        It is measured once more against the default before it is used. has_time: whether the task's share of the
        budget lasts; from then on `measure` gives nothing any more. Coming back earlier leaves time to other tasks.
        """


def sizes_of(task: Task) -> tuple[int, ...]:
    """The extents of what a task reads and writes, tensor by tensor; those known at run time alone are left out."""
    extents = (extent for tensor in (*task.inputs, *task.outputs) for extent in tensor.type.shape)
    return tuple(extent for extent in extents if isinstance(extent, int))


def points_of(
    rule: ScheduleRule[Data, Params], match: Match[Data], ctx: CompileContext
) -> Iterator[tuple[Params, Point]]:
    """The parameters of a rule's space for a task, each with what strategies see of it."""
    for knobs, params in space_of(rule, match, ctx).points():
        values = {name: value if isinstance(value, KnobValue) else str(value) for name, value in knobs.items()}
        yield params, Point(values, predicted(rule, match, params, ctx))


def strategy_named(name: str, registry: Registry) -> Strategy:
    """A new strategy of that name, of hidet-tune or of another plug-in.

    OptionError for a name that nobody offers; PluginError for one that cannot be loaded or made.
    """
    spec = registry.tuning_strategy(name)
    make: Any = spec.resolve()
    made: Strategy = make()
    if not callable(getattr(made, "search", None)):
        owner = registry.owners["tuning_strategies", spec.name]
        raise PluginError(
            f"{owner}: tuning strategy {spec.name!r} is {made!r}, which has no method `search`",
            hint="`load` of its StrategySpec names a class of hidet.tuning.Strategy, or a function that gives one",
        )
    return made


def ranked(problem: Problem) -> list[int]:
    """Numbers of points: `first`, then the others by what their rules predict, the fastest first; behind them those
    without a prediction, in their order."""
    expected = [math.inf if point.predicted is None else point.predicted for point in problem.points]
    others = sorted(set(range(len(expected))) - set(problem.first), key=lambda number: (expected[number], number))
    return [*problem.first, *others]


def survivor(points: Sequence[int], rounds: int, measure: Measure, has_time: Callable[[], bool]) -> int | None:
    """The fastest of a few points: all are measured for `rounds`, the better half for twice as many, and so on.

    Where time runs out, the best of those that were measured last. None where none has run.
    """
    alive, best = list(points), None
    while alive:
        found = measure(alive, rounds)
        alive = sorted(found, key=found.__getitem__)
        best = alive[0] if alive else best
        if len(alive) <= 1 or not has_time():
            break
        alive, rounds = alive[: (len(alive) + 1) // 2], min(rounds * 2, MOST_ROUNDS)
    return best


def fastest(
    found: Mapping[int, float], count: int, rounds: int, measure: Measure, has_time: Callable[[], bool]
) -> int | None:
    """The fastest of the points that were measured shortly: the best `count` of them meet once more (`survivor`)."""
    best = sorted(found, key=found.__getitem__)[:count]
    winner = survivor(best, rounds, measure, has_time) if len(best) > 1 and has_time() else None
    return next(iter(best), None) if winner is None else winner
