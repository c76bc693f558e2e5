"""What a compilation takes from the store: the parameters that were measured to be the fastest for a task."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from hidet.context import CompileContext
from hidet.errors import PluginWarning
from hidet.schedule.rule import Choice
from hidet.schedule.shortlist import space_of
from hidet.schedule.task import Task
from hidet.tuning.meaning import Meaning, meaning_of
from hidet.tuning.nearest import nearest
from hidet.tuning.store import Entry, Same, known_choices, store_path


def choose(task: Task, candidates: Sequence[Choice[Any, Any]], ctx: CompileContext) -> Choice[Any, Any] | None:
    """The first candidate with the parameters that the store has for it, or for the nearest sizes that were measured;
    None where it has none, or the default ones.

    Parameters are never made from text: they are found among the points of the rule's space. PluginWarning where the
    space does not have those of a task any more; those of other sizes need not be there.
    """
    path = store_path(str(ctx.option("tune.store")))
    known = {} if path is None else known_choices(path)
    if not known:
        return None
    candidate = candidates[0]
    meaning = meaning_of(task, candidate.rule_name, ctx)
    if meaning is None:
        return None
    entry = chosen_entry(meaning, known, ctx)
    if entry is None or entry.params == repr(candidate.params):
        return None
    is_near = entry.meaning != meaning
    if is_near and entry.params == entry.default_params:
        return None  # nothing is faster there, so that the default of these sizes is as good a guess
    for params in space_of(candidate.rule, candidate.match, ctx):
        if repr(params) == entry.params:
            source = f"for {entry.meaning.sizes}, the nearest sizes in" if is_near else "from"
            return replace(candidate, params=params, reason=f"measured parameters {source} the store {path}")
    if not is_near:
        what = f"{path} has parameters {entry.params} for {task.summary}"
        message = f"{what}, which rule {entry.meaning.rule} does not offer"
        warnings.warn(PluginWarning(message, hint="the default ones are used; tune again"), stacklevel=2)
    return None


def choices_digest(ctx: CompileContext) -> str:
    """The store, and a digest of all that it knows; "" where that is nothing. Graphs are kept under it in the cache."""
    path = store_path(str(ctx.option("tune.store")))
    known = {} if path is None else known_choices(path)
    return f"{path} {_digest(Same(known))}" if known else ""


@lru_cache(maxsize=4)
def _digest(same: Same) -> str:
    entries = sorted(repr((meaning, entry.params, entry.default_params)) for meaning, entry in same.known.items())
    return blake2b("\n".join(entries).encode(), digest_size=16).hexdigest()


def chosen_entry(meaning: Meaning, known: Mapping[Meaning, Entry], ctx: CompileContext) -> Entry | None:
    """What the store says of a task, or of its nearest sizes where option tune.nearest_sizes allows it."""
    entry = known.get(meaning)
    return nearest(meaning, known) if entry is None and ctx.option("tune.nearest_sizes") else entry
