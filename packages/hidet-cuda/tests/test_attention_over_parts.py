"""Attention of few queries over keys and values that are put together of two parts, which are read where they lie."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet.cuda.testing.schedules import context_for
from hidet.fusion.fuse import fuse
from hidet.gpu.passes.attention_over_parts import AttentionOverParts
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret

STEP = """
graph g(%q: {dtype}[2, 4, {queries}, 8], %k1: {dtype}[2, 2, {past}, 8], %k2: {dtype}[2, 2, {new}, 8],
    %v1: {dtype}[2, 2, {past}, 8], %v2: {dtype}[2, 2, {new}, 8]):
  %0: {dtype}[2, 2, {all}, 8] = concat(%k1, %k2, axis={axis})
  %1: {dtype}[2, 2, {all}, 8] = concat(%v1, %v2, axis=2)
  %2: {dtype}[2, 4, {queries}, 8] = attention(%q, %0, %1, scale=0.5, enable_gqa=True{more})
  return %2{also}
"""


def step(
    dtype: str = "f16", *, queries: int = 1, past: int = 40, new: int = 1, axis: int = 2, more: str = "", also: str = ""
) -> str:
    text = STEP.format(
        dtype=dtype, queries=queries, past=past, new=new, all=past + new, axis=axis, more=more, also=also
    )
    return text.replace(",\n    %v1", ", %v1")


def parsed(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text), load_registry().operators)


def over_parts(text: str, least_bytes: int = 0) -> Graph:
    return AttentionOverParts(least_bytes).run(parsed(text), context_for("sm_90a"))


def names_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize(
    "text",
    [
        step(),
        step("bf16", queries=3, new=5),
        step("f32", axis=-2),
        step(past=0),
        step("f32", past=3, new=40, queries=16),
    ],
)
def test_both_parts_together_give_what_attention_over_all_keys_gives(text: str) -> None:
    graph, changed = parsed(text), over_parts(text)
    assert names_of(changed).count("attention_with_logsumexp") == 2 and "attention" not in names_of(changed)
    random = np.random.default_rng(0)
    given = [random.standard_normal(value.tensor.shape).astype(value.tensor.dtype.numpy()) for value in graph.inputs]
    (old,), (new,) = interpret(graph, given), interpret(changed, given)
    # Both are rounded once, at the end, of sums in f32.
    tolerance = {"f32": 1e-5, "f16": 2**-10, "bf16": 2**-7}[graph.inputs[0].tensor.dtype.short]
    np.testing.assert_allclose(old.astype(np.float64), new.astype(np.float64), rtol=tolerance, atol=tolerance)
    assert [value.type for value in changed.outputs] == [value.type for value in graph.outputs]


def test_nothing_is_put_together_any_more() -> None:
    graph = run_graph_passes(parsed(step(past=1 << 19)), context_for("sm_90a"))
    assert "concat" not in names_of(graph)
    assert names_of(graph).count("attention_with_logsumexp") == 2
    first, second, total = fuse(graph, context_for("sm_90a")).tasks
    assert first.op_name == second.op_name == "attention_with_logsumexp" and total.anchor is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(step(also=", %0"), id="keys that are a result"),
        pytest.param(step(more=", is_causal=True"), id="a causal mask"),
        pytest.param(step(queries=17), id="many queries"),
        pytest.param(step(past=0, new=0), id="no keys"),
        pytest.param(step().replace("(%k1, %k2, axis=2)", "(%k2, %k1, axis=2)"), id="parts in another order"),
    ],
)
def test_other_keys_are_put_together(text: str) -> None:
    assert "attention" in names_of(over_parts(text))


def test_few_keys_are_put_together() -> None:
    assert "attention" in names_of(over_parts(step(), least_bytes=1 << 20))
    assert "attention" not in names_of(over_parts(step(past=1 << 15), least_bytes=1 << 20))


SYMBOLIC = """
symbol past: 0.. hint {hint}
symbol other: {range} hint {hint}
graph g(%q: f16[4, 1, 8], %k1: f16[2, past, 8], %k2: f16[2, 1, 8], %v1: f16[2, {length}, 8], %v2: f16[2, 1, 8]):
  %0: f16[2, past + 1, 8] = concat(%k1, %k2, axis=1)
  %1: f16[2, {length} + 1, 8] = concat(%v1, %v2, axis=1)
  %2: f16[4, 1, 8] = attention(%q, %0, %1, enable_gqa=True)
  return %2
"""


@pytest.mark.parametrize("length", ["past", "other"])
def test_lengths_that_a_call_tells_are_known_by_their_symbols(length: str) -> None:
    """torch gives caches of keys and of values a symbol each; new parts have one length, so have old ones."""
    text = SYMBOLIC.format(hint=2000, range="0..", length=length)
    assert names_of(over_parts(text)).count("attention_with_logsumexp") == 2


def test_keys_that_may_become_many_are_read_where_they_lie_whatever_their_first_number() -> None:
    text = SYMBOLIC.format(hint=3, range="0..", length="past")
    assert "attention" not in names_of(over_parts(text, least_bytes=1 << 20))
    text = text.replace("past: 0..", "past: 0..100")
    assert "attention" in names_of(over_parts(text, least_bytes=1 << 20))


def test_parts_of_other_lengths_each_are_put_together() -> None:
    text = SYMBOLIC.format(hint=3, range="0..", length="other")
    text = text.replace("%v2: f16[2, 1, 8]", "%v2: f16[2, 2, 8]").replace("other + 1", "other + 2")
    assert "attention" in names_of(over_parts(text))
