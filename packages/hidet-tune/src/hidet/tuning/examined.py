"""What every rule says of a task: whether it takes it, what may be chosen, what it predicts, why its default won."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.schedule.claims import Answer, Claim, claims
from hidet.schedule.shortlist import predicted, space_of
from hidet.schedule.space import Space
from hidet.schedule.task import Task

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Parameters with the values of their knobs, and the seconds that the rule's cost model expects; None without one.

    knobs: {} where the space does not have the parameters.
    """

    params: Any
    knobs: Mapping[str, Any]
    seconds: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """What a rule says of a task.

    plugin: that the rule is of. answer: to whether it takes the task. space, default: None where it does not. points:
    all that are valid, those that are expected to be the fastest first, those without a prediction last and in the
    order of the space. reason: why the rule chooses its default, in its own words.
    """

    rule: str
    plugin: str
    priority: int
    answer: Answer
    space: Space[Any] | None = None
    default: Point | None = None
    points: tuple[Point, ...] = ()
    reason: str = ""

    @property
    def why(self) -> str:
        """Why the default won, and how it compares with what was predicted of other points."""
        best = self.points[0] if self.points else None
        if self.default is None or self.default.seconds is None or best is None or best.seconds is None:
            return f"{self.reason} It predicts no times, so that points are not ranked." if self.space else self.reason
        rank = 1 + sum(point.seconds is not None and point.seconds < self.default.seconds for point in self.points)
        beside = "" if rank == 1 else f", at {self.default.seconds / best.seconds:.2f} times the first's time"
        return f"{self.reason} Its model ranks it {rank} of {len(self.points)}{beside}."


def examine(task: Task, ctx: CompileContext) -> tuple[Examined, ...]:
    """Every rule that is asked about a task, in the order in which they are asked; the first that takes it wins."""
    answers: list[Answer] = []
    taken = {claim.spec.name: claim for claim in claims(task, ctx, answers)}
    specs = {spec.name: spec for spec in ctx.registry.schedules_for(task.op_name, ctx.target.name)}
    return tuple(_examined(answer, specs[answer.rule].priority, taken.get(answer.rule), ctx) for answer in answers)


def chosen(examined: Sequence[Examined]) -> Examined | None:
    """The rule that wins; None where none takes the task."""
    return next((each for each in examined if each.default is not None), None)


def _examined(answer: Answer, priority: int, claim: Claim | None, ctx: CompileContext) -> Examined:
    plugin = str(ctx.registry.owners["schedules", answer.rule])
    if claim is None:
        return Examined(answer.rule, plugin, priority, answer)
    rule, match = claim.rule, claim.match
    space, params = space_of(rule, match, ctx), rule.default(match, ctx)
    points = [Point(each, knobs, predicted(rule, match, each, ctx)) for knobs, each in space.points()]
    points.sort(key=lambda point: math.inf if point.seconds is None else point.seconds)
    default = next((point for point in points if point.params == params), None)
    if default is None:
        default = Point(params, {}, predicted(rule, match, params, ctx))
    reason, _, _ = inspect.cleandoc(rule.default.__doc__ or "").partition("\n\n")
    reason = " ".join(reason.split())
    return Examined(answer.rule, plugin, priority, answer, space, default, tuple(points), reason)
