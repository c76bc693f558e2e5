"""Tasks take parameters that are about as good when others use their program already."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from hidet.context import make_context
from hidet.errors import ScheduleError
from hidet.ir import build as make
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Seq
from hidet.schedule.rule import Choice, Match, Program
from hidet.schedule.shared_programs import Built, build, share_programs
from hidet.schedule.space import Space

Data = tuple[str, list[str]]


@dataclass(frozen=True)
class Tiled:
    """A rule for tasks that say which tiles are about as good, the best first; tile "broken" builds nothing."""

    built: list[tuple[str, str]]

    def match(self, task: Any, ctx: Any) -> Match[Data] | None:
        return None

    def space(self, match: Match[Data], ctx: Any) -> Space[str]:
        return Space.empty()

    def default(self, match: Match[Data], ctx: Any) -> str:
        return match.data[1][0]

    def build(self, match: Match[Data], params: str, ctx: Any) -> Program:
        kind, tile = match.data[0], params
        self.built.append((kind, tile))
        if tile == "broken":
            raise ScheduleError("this tile does not fit")
        return Program(Module((Function(f"{kind}_{tile}", (make.size_var("n"),), Seq(()), "host"),), f"{kind}_{tile}"))

    def rivals(self, match: Match[Data], ctx: Any) -> Sequence[str]:
        return match.data[1]

    def code_of(self, params: str) -> Hashable:
        return params


class Stubborn(Tiled):
    """The same rule without rivals."""

    rivals = None  # type: ignore[assignment]  # no method


def chosen(tasks: Mapping[str, tuple[str, str]], rule: Any = None, *, is_default: bool = True) -> dict[str, str]:
    """The tile of each task, given by name as (what it computes, good tiles)."""
    rule = rule or Tiled([])
    built: dict[str, Built] = {}
    for name, (kind, tiles) in tasks.items():
        # Of a task its anchor and its tensors are looked at; what it computes may still be something else.
        task = SimpleNamespace(op_name=kind.partition(" ")[0], inputs=(), outputs=())
        match = Match(task, (kind, tiles.split()))  # type: ignore[arg-type]
        choice = Choice("tiled", rule, match, rule.default(match, None))
        built[name] = build(choice, make_context("cpu"), is_default=is_default)
    shared = share_programs(built, make_context("cpu"))
    assert list(shared) == list(built)
    return {name: own.choice.params for name, own in shared.items()}


def test_a_task_takes_the_program_that_more_tasks_use() -> None:
    assert chosen({"a": ("conv", "big"), "b": ("conv", "small big"), "c": ("conv", "big")}) == dict.fromkeys(
        "abc", "big"
    )


def test_a_task_keeps_the_fastest_parameters_where_no_rival_is_in_use() -> None:
    assert chosen({"a": ("conv", "big"), "b": ("conv", "small middle")}) == {"a": "big", "b": "small"}


@pytest.mark.parametrize("kind", ["linear", "conv relu"])
def test_tasks_that_compute_something_else_share_nothing(kind: str) -> None:
    assert chosen({"a": ("conv", "big"), "b": (kind, "small big")}) == {"a": "big", "b": "small"}


def test_a_program_is_given_up_by_all_of_its_tasks_or_by_none() -> None:
    tasks = {"a": ("conv", "small big"), "b": ("conv", "small"), **dict.fromkeys("cde", ("conv", "big"))}
    assert chosen(tasks)["a"] == "small"


def test_the_best_one_of_several_rivals_in_use_is_taken() -> None:
    tasks = {"a": ("conv", "small middle big"), "b": ("conv", "big"), "c": ("conv", "big"), "d": ("conv", "middle")}
    assert chosen({**tasks, "e": ("conv", "middle")})["a"] == "middle"


def test_a_task_that_moved_keeps_its_new_program_in_use() -> None:
    tasks = {"a": ("conv", "small middle"), "b": ("conv", "middle big"), "c": ("conv", "big")}
    assert chosen(tasks) == {"a": "middle", "b": "middle", "c": "big"}


def test_parameters_that_somebody_chose_are_kept() -> None:
    tasks = {"a": ("conv", "big"), "b": ("conv", "small big"), "c": ("conv", "big")}
    assert chosen(tasks, is_default=False)["b"] == "small"


def test_rules_without_rivals_are_left_alone() -> None:
    tasks = {"a": ("conv", "big"), "b": ("conv", "small big"), "c": ("conv", "big")}
    assert chosen(tasks, Stubborn([]))["b"] == "small"


def test_a_rival_that_cannot_be_built_is_passed_over() -> None:
    class Fragile(Tiled):
        def code_of(self, params: str) -> Hashable:
            return "big"

    tasks = {"a": ("conv", "big"), "b": ("conv", "small broken big"), "c": ("conv", "big")}
    assert chosen(tasks, Fragile([]))["b"] == "big"


def test_only_what_may_be_in_use_is_built() -> None:
    rule = Tiled([])
    chosen({"a": ("conv", "big"), "b": ("conv", "small middle other big"), "c": ("conv", "big")}, rule)
    assert rule.built == [("conv", "big"), ("conv", "small"), ("conv", "big"), ("conv", "big")]
    other = Tiled([])
    chosen({"a": ("conv", "big"), "b": ("linear", "small big")}, other)
    assert other.built == [("conv", "big"), ("linear", "small")], "programs of other anchors are not tried"
