"""Which parameters of a rule's space are worth trying, by its cost model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from hidet.errors import PluginError
from hidet.schedule.rule import Data, Match, ScheduleRule
from hidet.schedule.space import Params, Space

if TYPE_CHECKING:
    from hidet.context import CompileContext

SearchLevel = Literal[0, 1, 2]
"""How much is tried: 0 the default alone, 1 the default and what the cost model ranks first, 2 everything valid."""


def shortlist(
    rule: ScheduleRule[Data, Params],
    match: Match[Data],
    ctx: CompileContext,
    count: int,
    *,
    level: SearchLevel = 1,
) -> list[Params]:
    """Parameters to try for a task: the default, then others, those first that the rule's cost model expects to be the
    fastest, those without a prediction last: first what differs from the default in one knob, then in two.

    level: 0 gives the default alone, 1 the best `count` others as well, 2 all others.
    PluginError for a rule whose `space` is none.
    """
    default = rule.default(match, ctx)
    if level == 0:
        return [default]
    points = list(space_of(rule, match, ctx).points())
    usual: Mapping[str, Any] = next((knobs for knobs, params in points if params == default), {})

    def key(point: tuple[Mapping[str, Any], Params]) -> tuple[float, int]:
        knobs, params = point
        seconds = predicted(rule, match, params, ctx)
        changed = sum(usual.get(name) != value for name, value in knobs.items())
        return math.inf if seconds is None else seconds, changed

    ranked = [params for _, params in sorted(points, key=key) if params != default]
    return [default, *(ranked if level == 2 else ranked[:count])]


def space_of(rule: ScheduleRule[Data, Params], match: Match[Data], ctx: CompileContext) -> Space[Params]:
    """The space of a rule for a task. PluginError where the rule gives something else."""
    space: object = rule.space(match, ctx)
    if isinstance(space, Space):
        return space
    raise PluginError(
        f"space() of rule {type(rule).__name__} returned a {type(space).__name__}, expected a Space",
        hint="a rule without choices returns Space.empty() of hidet.schedule.space",
    )


def predicted(
    rule: ScheduleRule[Data, Params], match: Match[Data], params: Params, ctx: CompileContext
) -> float | None:
    """Seconds that the cost model of a rule expects; None where it has none. Rules need not have the method."""
    predict: Any = getattr(rule, "predict", None)
    return None if predict is None else predict(match, params, ctx)
