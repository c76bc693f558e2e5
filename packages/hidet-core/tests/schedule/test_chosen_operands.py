"""Rules that compute operands of their anchors themselves: what is joined to an anchor for them, and when not."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.errors import PluginWarning
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.plugins.isolation import Owner
from hidet.plugins.specs import ScheduleSpec
from hidet.schedule.fallback import FallbackRule

WEIGHTS = """
graph g(%x: f32[2, 65536], %c: i8[4, 65536], %b: f32[2, 4]):
  %0: f32[2, 65536] = neg(%x)
  %1: f32[4, 65536] = cast(%c, dtype=f32)
  %2: f32[2, 4] = linear(%0, %1)
  %3: f32[2, 4] = add(%2, %b)
  return %3
"""


class Plain(FallbackRule):
    """Takes what lies in memory."""

    def match(self, task, ctx):
        return super().match(task, ctx) if all(prologue is None for prologue in task.prologues) else None


class Converts(FallbackRule):
    """Takes weights that are computed from i8."""

    def computed_operands(self, anchor, producer, ctx):
        node = producer.get(anchor.inputs[1])
        return frozenset((1,)) if node is not None and node.op.name == "cast" else frozenset()

    def match(self, task, ctx):
        return super().match(task, ctx) if task.prologues[1] is not None else None


class ChangesItsMind(Converts):
    def match(self, task, ctx):
        return None


class Fails(Converts):
    def computed_operands(self, anchor, producer, ctx):
        raise ZeroDivisionError("division by zero")


def context(rule: type[FallbackRule]) -> CompileContext:
    """Of a target with a rule that chooses operands before one that takes no prologues."""
    sys.modules["rules_of_this_test"] = sys.modules[__name__]
    kinds = {"chooses": (rule, "chosen", 200), "plain": (Plain, "none", 100)}
    specs = {
        name: ScheduleSpec(
            name=name,
            ops=("linear",),
            targets=("none",),
            load=f"rules_of_this_test:{kind.__name__}",
            prologue=prologue,
            epilogue="element-wise",
            priority=priority,
        )
        for name, (kind, prologue, priority) in kinds.items()
    }
    registry = load_registry()
    owners = {("schedules", name): Owner("mine", "mine-dist", "1.0") for name in specs}
    registry = replace(
        registry, schedules={**registry.schedules, **specs}, owners={**registry.owners, **owners}, is_strict=False
    )
    target = SimpleNamespace(name="none", prefers_channels_last=False, vector_bits=0, work_item="rows")
    return CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))


def groups(rule: type[FallbackRule], text: str = WEIGHTS) -> list[list[str]]:
    """The operators of each task."""
    ctx = context(rule)
    tasks = fuse(parse_graph(textwrap.dedent(text), ctx.registry.operators), ctx).tasks
    return [[node.op.name for node in task.nodes] for task in tasks]


def test_the_operands_that_a_rule_names_are_computed_with_the_anchor_and_no_others() -> None:
    assert groups(Converts) == [["neg"], ["cast", "linear", "add"]]


def test_a_rule_that_does_not_match_after_all_changes_nothing() -> None:
    assert groups(ChangesItsMind) == [["neg"], ["cast"], ["linear", "add"]]


def test_an_anchor_of_which_a_rule_names_no_operand_is_that_of_the_next_rule() -> None:
    text = WEIGHTS.replace("linear(%0, %1)", "linear(%0, %d)").replace("%b: f32", "%d: f32[4, 65536], %b: f32")
    assert groups(Converts, text.replace("return %3", "return %3, %1")) == [["neg"], ["cast"], ["linear", "add"]]


def test_an_operand_that_others_read_stays_in_memory() -> None:
    assert groups(Converts, WEIGHTS.replace("return %3", "return %3, %1")) == [["neg"], ["cast"], ["linear", "add"]]


def test_a_rule_that_fails_is_named_and_takes_nothing() -> None:
    with pytest.warns(PluginWarning, match="computed_operands"):
        assert groups(Fails) == [["neg"], ["cast"], ["linear", "add"]]
