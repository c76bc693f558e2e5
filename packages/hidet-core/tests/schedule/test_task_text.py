"""Tasks, and the schedules chosen for them with the reasons, as dumps show them."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.errors import PluginWarning, ScheduleError
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.plugins.isolation import Owner
from hidet.plugins.specs import ScheduleSpec
from hidet.schedule.fallback import FallbackRule
from hidet.schedule.schedule_text import print_schedules
from hidet.schedule.select import select_schedules
from hidet.schedule.task_text import key_digest, print_tasks
from hidet.testing.golden import without_digests

LAYER = """
symbol n: 1..64
graph layer(%x: f32[n, 8], param %w: f32[8, 4], param %b: f32[4]):
  %0: f32[n, 8] = neg(%x)
  %1: f32[n, 4] = matmul(%0, %w)  # model.py:41 (fc)
  %2: f32[n, 4] = add(%1, %b)
  %3: f32[n, 4] = silu(%2)
  %4: f32[4, n] = transpose(%3, perm=[1, 0])
  %5: f32[4, n] = exp(%4)
  %6: f32[4, n] = exp(%4)
  return %4, %5, %6
"""


class Declines(FallbackRule):
    def match(self, task, target):
        return None


class Refuses(FallbackRule):
    def match(self, task, target):
        raise ScheduleError("8 columns are too few")


class GivesUp(FallbackRule):
    def build(self, match, params, target):
        raise ScheduleError("registers are too few")


class Fails(FallbackRule):
    def match(self, task, target):
        raise ZeroDivisionError("division by zero")


class Takes(FallbackRule):
    def default(self, match, target):
        return {"rows": 8, "unrolled": True}


RULES = {"declines": Declines, "refuses": Refuses, "gives_up": GivesUp, "fails": Fails, "takes": Takes}


def context(*rules: str) -> CompileContext:
    """Of a target for which the fallback nest is offered, and before it these rules, in order."""
    sys.modules["rules_of_this_test"] = sys.modules[__name__]
    specs = {
        name: ScheduleSpec(
            name=name,
            ops=("matmul",),
            targets=("none",),
            load=f"rules_of_this_test:{RULES[name].__name__}",
            prologue="load",
            epilogue="element-wise",
        )
        for name in rules
    }
    registry = load_registry()
    owners = {("schedules", name): Owner("mine", "mine-dist", "1.0") for name in rules}
    registry = replace(
        registry,
        schedules={**registry.schedules, **specs},
        owners={**registry.owners, **owners},
        is_strict=False,
    )
    target = SimpleNamespace(name="none", prefers_channels_last=False, vector_bits=0, work_item="rows")
    return CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))


def tasks_of(text: str, ctx: CompileContext):
    return fuse(parse_graph(text, ctx.registry.operators), ctx)


TASKS = """\
task 0 matmul_fused4, key #
  %0: f32[n, 8] = neg(%x)
  %1: f32[n, 4] = matmul(%0, %w)  # model.py:41 (fc)
  %2: f32[n, 4] = add(%1, %b)
  %3: f32[n, 4] = silu(%2)
  read x0 = %x: f32[n, 8]
  read x1 = %w: f32[8, 4] weight
  read x2 = %b: f32[4] weight
  prologue a[i0, i1] = -x0[i0, i1]
  anchor matmul(a=prologue, b=x1)
    matmul[i0, i1] = reduce("sum", [r0], [8], [a[i0, r0] * b[r0, i1]], 0)
  epilogue t0 = matmul[i0, i1] + x2[i1]
  epilogue y0[i0, i1] = t0 / (exp(-t0) + 1.0)
  write %3 = y0: f32[n, 4] aligned

task 1 exp, key #
  %5: f32[4, n] = exp(%4)
  read x0 = %4: f32[4, n]{1, 4} aligned
  epilogue y0[i0, i1] = exp(x0[i0, i1])
  write %5 = y0: f32[4, n]

task 2 exp, key #
  %6: f32[4, n] = exp(%4)
  read x0 = %4: f32[4, n]{1, 4} aligned
  epilogue y0[i0, i1] = exp(x0[i0, i1])
  write %6 = y0: f32[4, n]

aliases
  %4: f32[4, n] in %3
"""

SCHEDULES = """\
task 0 matmul_fused4, key #: rule takes of mine-dist, priority 100, the first rule that takes it
  parameters: {'rows': 8, 'unrolled': True}
  asked declines: declined
  asked refuses: cannot: 8 columns are too few
  asked gives_up: matched
  asked gives_up: gave up: registers are too few
  asked fails: failed: ZeroDivisionError: division by zero in match, of mine-dist 1.0 (plugin "mine")
  asked takes: matched
  not asked: fallback
  program matmul_fused4_#, arguments [8, 4, 4, n, 4, 4, n, 8, 4, 4, n, 4, 4, n], scratch [16*n]

task 1 exp, key #: rule fallback of hidet-core, priority -1000, the first rule that takes it
  asked fallback: matched
  program exp_#, arguments [4, n, 4, 4], scratch []

task 2 exp, key #: as task 1
"""


def test_a_task_shows_its_nodes_tensors_prologue_anchor_and_epilogue():
    assert without_digests(print_tasks(tasks_of(LAYER, context("takes")))) == TASKS


def test_equal_tasks_have_equal_keys():
    _, first, second = tasks_of(LAYER, context("takes")).tasks
    assert key_digest(first.key) == key_digest(second.key)


def test_a_schedule_shows_its_rule_parameters_and_what_the_others_said():
    ctx = context("declines", "refuses", "gives_up", "fails", "takes")
    tasks = tasks_of(LAYER, ctx)
    with pytest.warns(PluginWarning):
        text = print_schedules(select_schedules(tasks, ctx), ctx)
    assert without_digests(text) == SCHEDULES


def test_parts_of_a_formula_that_are_used_several_times_are_written_once():
    chain = "".join(f"  %{n + 1}: f32[4] = silu(%{n})\n" for n in range(14))
    tasks = tasks_of(f"graph g(%0: f32[4]):\n{chain}  return %14\n", context())
    assert len(tasks.tasks) == 1
    assert len(print_tasks(tasks)) < 5000
