"""Rules of tasks: what fusion makes keeps them, and what breaks one is named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hidet import dtypes
from hidet.cache import open_cache
from hidet.compute.definition import Operand, compute
from hidet.context import CompileContext, Options
from hidet.errors import VerifyError
from hidet.fusion.fuse import fuse
from hidet.fusion.task_verify import verify_tasks
from hidet.graph.parser import parse_graph
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.plugins.host import load_registry

LAYER = """
graph layer(%x: f32[2, 8], param %w: f32[8, 4], param %b: f32[4]):
  %0: f32[2, 8] = neg(%x)
  %1: f32[2, 4] = matmul(%0, %w)  # model.py:41 (fc)
  %2: f32[2, 4] = add(%1, %b)
  %3: f32[2, 4] = softmax(%2)
  %4: f32[4, 2] = transpose(%3, perm=[1, 0])
  return %4
"""


@pytest.fixture
def tasks():
    registry = load_registry()
    target = SimpleNamespace(name="none", prefers_channels_last=False, vector_bits=0, work_item="rows")
    ctx = CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))
    return fuse(parse_graph(LAYER, registry.operators), ctx)


def with_first(tasks, **changes):
    first, *rest = tasks.steps
    return replace(tasks, steps=(replace(first, **changes), *rest))


def wrong_formula(tasks, make):
    """The first task, with this instead of its epilogue."""
    (epilogue,) = tasks.steps[0].epilogues
    return with_first(tasks, epilogues=(make(epilogue),))


def reads_another(tasks):
    stranger = Operand("stranger", dtypes.f32, (2, 4))
    return wrong_formula(tasks, lambda e: replace(e, value=stranger[e.axes]))


def without_alias(tasks):
    return replace(tasks, aliases={})


CHANGES = {
    "task softmax: it reads 2, which no step before it writes": lambda t: replace(t, steps=t.steps[1:]),
    "the graph returns 3, which no step before it writes": lambda t: replace(
        t, steps=t.steps[:1], graph=replace(t.graph, outputs=t.graph.nodes[3].outputs)
    ),
    "the graph returns 4, which no step before it writes": without_alias,
    "task matmul_fused3: its anchor is none of its nodes": lambda t: with_first(t, nodes=t.steps[0].nodes[:1]),
    "0 epilogues for 1 outputs": lambda t: with_first(t, epilogues=()),
    "epilogue of y0 reads stranger, which it does not have": reads_another,
    "epilogue of y0 has 2 axes and elements of f16, expected 2 and f32": lambda t: wrong_formula(
        t, lambda e: replace(e, value=build.cast(e.value, dtypes.f16))
    ),
    "epilogue of y0 has 1 axes": lambda t: wrong_formula(t, lambda e: replace(e, axes=e.axes[:1])),
    "epilogue of other stands where output y0 does": lambda t: wrong_formula(
        t, lambda e: compute("other", (2, 4), lambda i, j: build.const(0, dtypes.f32))
    ),
    "anchor input 0 is neither one tensor nor one prologue": lambda t: with_first(t, prologues=(None, None)),
    "output 1 overwrites input 0, of which one is not there": lambda t: with_first(t, in_place=((1, 0),)),
    "x has type f32[2, 8], in memory f32[2, 8]{1, 2}": lambda t: replace(
        t, types={**t.types, t.graph.inputs[0]: TensorType(dtypes.f32, (2, 8), (1, 2))}
    ),
}


def test_what_fusion_makes_keeps_the_rules(tasks):
    verify_tasks(tasks)


@pytest.mark.parametrize("message", CHANGES)
def test_tasks_that_break_a_rule_are_refused(tasks, message):
    with pytest.raises(VerifyError) as caught:
        verify_tasks(CHANGES[message](tasks))
    assert message in str(caught.value)
