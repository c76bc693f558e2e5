"""Fewer programs for a graph: tasks take parameters that are about as good when others use their program already."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hidet.errors import ScheduleError
from hidet.ir.structural import structural_hash
from hidet.schedule.rule import Match, Params, Program, SharingRule

if TYPE_CHECKING:
    from hidet.target import Target

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A rule's match for a task with the parameters to build it with."""

    rule_name: str
    rule: Any
    match: Match
    params: Params


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A task's program, the choice that it was built by, and the hash of its module.

    is_default: whether its parameters are the rule's own; those that somebody else chose are not exchanged.
    """

    choice: Choice
    program: Program
    digest: str
    is_default: bool = True


def build(choice: Choice, target: Target, *, is_default: bool = True) -> Built:
    """The program of a choice. ScheduleError when it turns out impossible."""
    program: Program = choice.rule.build(choice.match, choice.params, target)
    return Built(choice, program, structural_hash(program.module), is_default)


def share_programs(built: Mapping[Key, Built], target: Target) -> dict[Key, Built]:
    """The tasks' programs, as few modules as rivals of their parameters allow.

    Modules that few tasks use are given up first, each only if every task that uses it finds another one in use.
    """
    found = dict(built)
    users: dict[str, list[Key]] = {}
    for key, own in built.items():
        users.setdefault(own.digest, []).append(key)
    for digest in sorted(users, key=lambda digest: len(users[digest])):
        in_use = [found[keys[0]] for other, keys in users.items() if other != digest]
        moved: dict[Key, Built] = {}
        for key in users[digest]:
            other = next(_in_use(found[key], in_use, target), None)
            if other is None:
                break
            moved[key] = other
        else:
            del users[digest]
            found.update(moved)
            for key, other in moved.items():
                users[other.digest].append(key)
    return found


@functools.cache
def _shares(kind: Any) -> bool:
    """Whether rules of a class can share programs. Asking a protocol takes as long as scheduling a small task."""
    return issubclass(kind, SharingRule)


def _in_use(own: Built, in_use: list[Built], target: Target) -> Iterator[Built]:
    """Programs by rivals of a task's parameters whose modules are in use, the best first."""
    rule, match = own.choice.rule, own.choice.match
    kind: Any = type(rule)
    if not own.is_default or not _shares(kind):
        return
    # Only rivals by whose parameters something is built can make a module that is there.
    digests: dict[Hashable, set[str]] = {}
    for other in in_use:
        if other.choice.rule_name == own.choice.rule_name:
            digests.setdefault(rule.code_of(other.choice.params), set()).add(other.digest)
    for params in rule.rivals(match, target):
        known = digests.get(rule.code_of(params))
        if known is None:
            continue
        try:
            rival = build(Choice(own.choice.rule_name, rule, match, params), target)
        except ScheduleError:
            continue
        if rival.digest in known:
            yield rival
