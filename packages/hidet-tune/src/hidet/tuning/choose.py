"""What a compilation takes from the store: the parameters that were measured to be the fastest for a task."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hidet.context import CompileContext
from hidet.errors import PluginWarning
from hidet.schedule.rule import Choice
from hidet.schedule.shortlist import space_of
from hidet.schedule.task import Task
from hidet.tuning.meaning import meaning_of
from hidet.tuning.store import known_choices, store_path


def choose(task: Task, candidates: Sequence[Choice[Any, Any]], ctx: CompileContext) -> Choice[Any, Any] | None:
    """The first candidate with the parameters that the store has for it; None where it has none, or the default ones.

    Parameters are never made from text: they are found among the points of the rule's space. PluginWarning where the
    space does not have them any more.
    """
    path = store_path(str(ctx.option("tune.store")))
    known = {} if path is None else known_choices(path)
    if not known:
        return None
    candidate = candidates[0]
    meaning = meaning_of(task, candidate.rule_name, ctx)
    entry = None if meaning is None else known.get(meaning)
    if entry is None or entry.params == repr(candidate.params):
        return None
    for params in space_of(candidate.rule, candidate.match, ctx):
        if repr(params) == entry.params:
            return replace(candidate, params=params, reason=f"measured parameters from the store {path}")
    message = f"{path} has parameters {entry.params} for {task.summary}, which rule {entry.meaning.rule} does not offer"
    warnings.warn(PluginWarning(message, hint="the default ones are used; tune again"), stacklevel=2)
    return None
