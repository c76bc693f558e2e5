"""Which rule takes a task: rules are asked in falling priority, each on its own, so that a broken one harms no other.

What a rule raises beside ScheduleError is its plug-in's fault: a PluginWarning names plug-in, rule and task, and the
next rule is asked (HIDET_STRICT_PLUGINS=1 raises). Errors that hidet's own rules word for users end the compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hidet.errors import HidetError, PluginError, ScheduleError
from hidet.plugins.isolation import Failure, attempt
from hidet.schedule.rule import Match, ScheduleRule
from hidet.schedule.task import Task

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.plugins.specs import ScheduleSpec

FALLBACK = "fallback"
"""The name of the rule that takes what no other rule takes."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A rule that takes a task.

    notes: why rules that were asked before it do not, for the report.
    """

    spec: ScheduleSpec
    rule: ScheduleRule[Any, Any]
    match: Match[Any]
    notes: tuple[str, ...] = ()


def claims(
    task: Task, ctx: CompileContext, notes: list[str], specs: tuple[ScheduleSpec, ...] | None = None
) -> Iterator[Claim]:
    """The rules that take `task`, best first; one is asked when those before it are not enough.

    notes: receives why rules cannot take it, where they say so. specs: the rules to ask; None for all.
    """
    for spec in ctx.registry.schedules_for(task.op_name, ctx.target.name) if specs is None else specs:

        def ask(spec: ScheduleSpec = spec) -> tuple[ScheduleRule[Any, Any], Match[Any] | None]:
            rule = rule_of(spec)
            return rule, rule.match(task, ctx)

        answer = tried(spec, task, ctx, notes, "match", ask)
        if answer is not None and answer[1] is not None:
            yield Claim(spec, answer[0], answer[1], tuple(notes))


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
    spec: ScheduleSpec, task: Task, ctx: CompileContext, notes: list[str], what: str, call: Callable[[], Result]
) -> Result | None:
    """What `call`, of the method `what` of a rule, returns; None when it raises, with the reason in `notes`."""
    result = attempt(call)
    if not isinstance(result, Failure):
        return result
    if isinstance(result.error, ScheduleError):
        verb = "cannot" if what == "match" else "gave up"
        notes.append(f"{task.name}: rule {spec.name} {verb}: {result.error.message}")
        return None
    if isinstance(result.error, HidetError) and not spec.is_foreign:
        raise result.error
    owner = ctx.registry.owners["schedules", spec.name]
    ctx.registry.complain(owner, f"schedule {spec.name!r}: {what} for {task.summary}", result)
    notes.append(f"{task.name}: rule {spec.name} of {owner} raised {result} in {what}")
    return None
