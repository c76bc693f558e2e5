"""Which rule takes a task: rules are asked in falling priority, each on its own, so that a broken one harms no other.

What a rule raises beside ScheduleError is its plug-in's fault: a PluginWarning names plug-in, rule and task, and the
next rule is asked (HIDET_STRICT_PLUGINS=1 raises). Errors that hidet's own rules word for users end the compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hidet.errors import HidetError, PluginError, ScheduleError
from hidet.plugins.isolation import Failure, attempt
from hidet.records import record
from hidet.schedule.rule import Match, ScheduleRule
from hidet.schedule.task import Task

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.plugins.specs import ScheduleSpec

FALLBACK = "fallback"
"""The name of the rule that takes what no other rule takes."""

Result = TypeVar("Result")


@record
class Answer:
    """What became of asking rule `rule` about a task.

    outcome: it "matched", or "declined" without a reason; it "cannot", or "gave up" after it had matched, with a
        reason; or it "failed", by an error that it should not raise.
    reason: "" where there is none.
    """

    rule: str
    outcome: Literal["matched", "declined", "cannot", "gave up", "failed"]
    reason: str = ""

    def note(self, task: Task) -> str:
        """The answer as a line of the report, which shows those that have a reason."""
        return f"{task.name}: rule {self.rule} {self}"

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A rule that takes a task.

    answers: what rules said that were asked before it, and it.
    """

    spec: ScheduleSpec
    rule: ScheduleRule[Any, Any]
    match: Match[Any]
    answers: tuple[Answer, ...] = ()


def claims(
    task: Task, ctx: CompileContext, answers: list[Answer], specs: tuple[ScheduleSpec, ...] | None = None
) -> Iterator[Claim]:
    """The rules that take `task`, best first; one is asked when those before it are not enough.

    answers: receives what rules say. specs: the rules to ask; None for all.
    """
    for spec in ctx.registry.schedules_for(task.op_name, ctx.target.name) if specs is None else specs:

        def ask(spec: ScheduleSpec = spec) -> tuple[ScheduleRule[Any, Any], Match[Any] | None]:
            rule = rule_of(spec)
            return rule, rule.match(task, ctx)

        asked = tried(spec, task, ctx, answers, "match", ask)
        if asked is None:
            continue
        rule, match = asked
        answers.append(Answer(spec.name, "declined" if match is None else "matched"))
        if match is not None:
            yield Claim(spec, rule, match, tuple(answers))


def rule_of(spec: ScheduleSpec) -> ScheduleRule[Any, Any]:
    """The rule that a spec names; one of it where that is a class. PluginError where it cannot be loaded, or lacks a
    method."""
    loaded: Any = spec.resolve()
    rule: ScheduleRule[Any, Any] = loaded() if isinstance(loaded, type) else loaded
    for method in ("match", "space", "default", "build"):
        if not hasattr(rule, method):
            raise PluginError(
                f"{spec.load} has no {method}()",
                hint="the methods of a rule are those of hidet.schedule.rule.ScheduleRule",
            )
    return rule


def tried(
    spec: ScheduleSpec, task: Task, ctx: CompileContext, answers: list[Answer], what: str, call: Callable[[], Result]
) -> Result | None:
    """What `call`, of the method `what` of a rule, returns; None when it raises, with the reason in `answers`."""
    result = attempt(call)
    if not isinstance(result, Failure):
        return result
    if isinstance(result.error, ScheduleError):
        answers.append(Answer(spec.name, "cannot" if what == "match" else "gave up", result.error.message))
        return None
    if isinstance(result.error, HidetError) and not spec.is_foreign:
        raise result.error
    owner = ctx.registry.owners["schedules", spec.name]
    ctx.registry.complain(owner, f"schedule {spec.name!r}: {what} for {task.summary}", result)
    answers.append(Answer(spec.name, "failed", f"{result} in {what}, of {owner}"))
    return None
