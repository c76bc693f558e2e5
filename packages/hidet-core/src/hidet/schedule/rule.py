"""What a schedule rule is: match a task, offer parameters, build a program."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hidet.dims import Dim
from hidet.ir.func import Module

if TYPE_CHECKING:
    from hidet.schedule.task import Task
    from hidet.target import Target

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A rule's claim on a task. `data` is what `build` needs (immutable, private to the rule)."""

    task: Task
    data: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A scheduled task as thread IR.

    module: its entry is a host function whose parameters are pointers to the task's inputs, then its outputs, then
        scratch buffers, then the i64 `arguments`.
    arguments: sizes and strides passed at every call. Programs that differ only here share one compiled kernel.
    scratch: bytes of each scratch buffer, aligned to 64.
    """

    module: Module
    arguments: tuple[Dim, ...] = ()
    scratch: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Named parameters and the values a tuner may try for each."""

    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


class ScheduleRule(Protocol):
    """A schedule. `match` is cheap and exact about shapes, dtypes and layouts; None means "not mine"."""

    def match(self, task: Task, target: Target) -> Match | None:
        """Whether this rule can schedule `task`."""

    def space(self, match: Match, target: Target) -> SearchSpace:
        """Parameters a tuner may choose."""

    def default(self, match: Match, target: Target) -> Params:
        """Good parameters without tuning."""

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """The program. ScheduleError when the task turns out impossible, with the reason."""


@runtime_checkable
class SharingRule(ScheduleRule, Protocol):
    """A schedule whose parameters often matter little, so that tasks of a graph may share programs
    (`hidet.schedule.sharing`)."""

    def rivals(self, match: Match, target: Target) -> Sequence[Params]:
        """Other parameters by which a task takes a few per cent longer at most than by the default ones, the best
        first."""

    def code_of(self, params: Params) -> Hashable:
        """What the code of programs depends on; the rest of the parameters are numbers that programs are called
        with."""
