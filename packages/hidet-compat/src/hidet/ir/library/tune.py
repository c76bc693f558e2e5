"""Several programs for a task, of which the fastest is taken.

    @tune.space(1, block=[64, 128], stages=[2, 3])
    def schedule(task, block=128, stages=2):
        tune.check(block * stages <= 256, "too much shared memory")
        ...
        return module.ir_module()

    def implement_cuda(self, working_dir):
        return tune.extract_ir_modules(schedule, self)

`hidet.option.search_space` says how many are made: the one of the defaults at 0, those of the space at its level.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hidet import option
from hidet.errors import ScheduleError
from hidet.ir.func import Module

Schedule = TypeVar("Schedule", bound=Callable[..., Any])

MAX_SPACE_SIZE = 1_200_000
"""Points of a space at most."""
_SPACES = "__hidet_spaces__"


def space(level: int, /, **choices: Any) -> Callable[[Schedule], Schedule]:
    """The decorator of a function that gives a program for a task: what its parameters may be at a level, 1 or 2.

    choices: the values of a parameter, or, under a name of several parameters with a comma between, tuples of values.
    """

    def mark(schedule: Schedule) -> Schedule:
        spaces: dict[int, Mapping[str, Any]] = {**getattr(schedule, _SPACES, {}), level: choices}
        setattr(schedule, _SPACES, spaces)
        return schedule

    return mark


def extract_ir_modules(schedule: Callable[..., Any], *arguments: Any) -> list[Module]:
    """The programs that a function gives for the points of its space at the level of `hidet.option.search_space`.

    arguments: what the function takes before its choices. Points that `check` refuses are left out; ScheduleError where
    all are.
    """
    made: list[Module] = []
    refused: ScheduleError | None = None
    for point in _points(schedule):
        try:
            given = schedule(*arguments, **point)
        except ScheduleError as error:
            refused = error
            continue
        made += [given] if isinstance(given, Module) else given
    if not made:
        raise ScheduleError(f"no point of the space of {schedule.__name__} gives a program") from refused
    return made


def _points(schedule: Callable[..., Any]) -> list[dict[str, Any]]:
    """The choices at the level that is set, or the nearest one below; one point without choices at 0."""
    level = option.get_search_space() or 0
    levels = [known for known in getattr(schedule, _SPACES, {}) if known <= level]
    if not level or not levels:
        return [{}]
    choices: Mapping[str, Sequence[Any]] = getattr(schedule, _SPACES)[max(levels)]
    size = 1
    for values in choices.values():
        size *= len(values)
    if size > MAX_SPACE_SIZE:
        raise ScheduleError(f"the space of {schedule.__name__} has {size} points, at most {MAX_SPACE_SIZE} are tried")
    points = (dict(zip(choices, point, strict=True)) for point in itertools.product(*choices.values()))
    return [_single(point) for point in points]


def _single(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point with each parameter by itself."""
    found: dict[str, Any] = {}
    for name, value in point.items():
        names = [part.strip() for part in name.split(",")]
        found.update(zip(names, value if len(names) > 1 else [value], strict=True))
    return found


def check(cond: bool, msg: str = "") -> None:
    """Leave a point of a space out unless a condition holds. ScheduleError, which `extract_ir_modules` takes."""
    if not cond:
        caller = inspect.stack()[1]
        raise ScheduleError(msg or f"a point of the space of {caller.function} is not possible")


def metric(name: str, value: Any) -> None:
    """Tell a number of the point that is being made, such as the bytes it takes, to those who read `hidet.logging`."""
    logging.getLogger("hidet").debug("%s: %s = %s", inspect.stack()[1].function, name, value)


__all__ = ["MAX_SPACE_SIZE", "check", "extract_ir_modules", "metric", "space"]
