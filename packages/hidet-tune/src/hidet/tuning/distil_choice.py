"""Choices as data: small decision trees over sizes, which a wheel ships and a compilation follows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hidet.context import CompileContext
from hidet.errors import PluginWarning
from hidet.schedule.rule import Choice
from hidet.schedule.shortlist import space_of
from hidet.schedule.task import Task
from hidet.tuning.meaning import meaning_of
from hidet.tuning.store import known_choices, store_path

REACH = 2.0
"""How many times smaller or larger than those of the measured tasks sizes may be."""


@dataclass(frozen=True, slots=True)
class If:
    """A question: is the size called `size` at most so large?"""

    size: str
    at_most: int
    then: Tree
    otherwise: Tree


Tree = If | str | None
"""A question, or its answer: the `repr` of parameters, None for those that the rule chooses by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a rule chooses for tasks of some kind.

    rule, version: the rule, and the version of its wheel. arch: target, machine and threads that were measured.
    tensors: types of what a task reads and writes, with names for sizes: "f32[s0, s1], f32[s2]". sizes: by name, the
    least and the most of the measured tasks. tree: over those.
    """

    rule: str
    version: str
    arch: str
    tensors: str
    sizes: Mapping[str, tuple[int, int]]
    tree: Tree

    def answer(self, sizes: Mapping[str, int]) -> str | None:
        """The `repr` of parameters; None for those of the rule, and where sizes are far from all that was measured."""
        for name, (least, most) in self.sizes.items():
            if not least / REACH <= sizes[name] <= most * REACH:
                return None
        return answer_of(self.tree, sizes)


def answer_of(tree: Tree, sizes: Mapping[str, int]) -> str | None:
    """What a tree answers."""
    while isinstance(tree, If):
        tree = tree.then if sizes[tree.size] <= tree.at_most else tree.otherwise
    return tree


def named_sizes(types: str) -> tuple[str, dict[str, int]]:
    """Types with names for sizes, and the sizes by name: "f32[8, 64]" gives "f32[s0, s1]" and {"s0": 8, "s1": 64}.
    Strides are left out."""
    sizes: dict[str, int] = {}

    def name(found: re.Match[str]) -> str:
        sizes[f"s{len(sizes)}"] = int(found[0])
        return f"s{len(sizes) - 1}"

    without_strides = re.sub(r"\{[^}]*\}", "{}", types)
    return re.sub(r"\[[^]]*\]", lambda part: re.sub(r"\d+", name, part[0]), without_strides), sizes


def choose(
    decisions: Sequence[Decision], task: Task, candidates: Sequence[Choice[Any, Any]], ctx: CompileContext
) -> Choice[Any, Any] | None:
    """The first candidate with the parameters that a decision has for it; None where there is none, and for a task that
    the store knows better.

    Parameters are never made from text: they are found among the points of the rule's space. PluginWarning for
    decisions that were made for another version of the rule; they are not followed.
    """
    candidate = candidates[0]
    of_rule = [decision for decision in decisions if decision.rule == candidate.rule_name]
    meaning = meaning_of(task, candidate.rule_name, ctx) if of_rule else None
    if meaning is None:
        return None
    tensors, sizes = named_sizes(meaning.sizes)
    for decision in of_rule:
        if (decision.arch, decision.tensors) != (meaning.arch, tensors):
            continue
        if decision.version != meaning.version:
            made = f"decisions for rule {decision.rule} were distilled for version {decision.version!r} of its wheel"
            message = f"{made}, and {meaning.version!r} is installed: they are not followed"
            warnings.warn(PluginWarning(message, hint="tune and distil again"), stacklevel=2)
            continue
        answer = decision.answer(sizes)
        if answer is None or answer == repr(candidate.params):
            return None
        path = store_path(str(ctx.option("tune.store")))
        if path is not None and meaning in known_choices(path):
            return None
        for params in space_of(candidate.rule, candidate.match, ctx):
            if repr(params) == answer:
                return replace(candidate, params=params)
        return None
    return None
