"""What every graph pass of core must do: keep the result, keep the graph valid, leave alone what is done already."""

from functools import partial

import pytest

from hidet import dtypes
from hidet._builtin import hidet_passes
from hidet.graph.verify import verify_graph
from hidet.passes.manager import run_graph_passes
from hidet.passes.rewriter import GraphRewriter
from hidet.testing.random_graphs import random_graph

PASSES = [spec for spec in hidet_passes() if spec.level == "graph"]
SEEDS = range(60)


def graphs(ctx, seeds=SEEDS):
    for seed in seeds:
        graph = random_graph(seed, ctx.registry.operators, symbolic=seed % 3 == 0)
        yield seed, with_gather(graph, ctx) if seed % 5 == 0 else graph


def with_gather(graph, ctx):
    """The graph with a further result, whose elements are read at places that are computed."""
    rewriter = GraphRewriter(graph, ctx.registry.operators)
    for node in graph.nodes:
        rewriter.keep(node)
    x = next((value for value in graph.outputs if value.tensor.rank > 0), None)
    if x is None:
        return graph
    emit = partial(rewriter.emit, at=graph.nodes[-1])
    below_one = emit("mul", emit("abs", emit("tanh", x)), rewriter.constant(0.99, x))
    if x.tensor.rank > 1:
        below_one = emit("amax", below_one, axes=tuple(range(x.tensor.rank - 1)))
    places = emit("cast", below_one, dtype=dtypes.i64)
    return rewriter.finish([*graph.outputs, emit("index_select", x, places, axis=0)])


@pytest.mark.parametrize("spec", PASSES, ids=lambda spec: spec.name)
def test_a_pass_keeps_the_result_and_the_graph_valid(spec, ctx, same_result):
    graph_pass = spec.resolve()()
    changed = 0
    for seed, graph in graphs(ctx):
        after = graph_pass.run(graph, ctx)
        verify_graph(after, redefine=True)
        same_result(graph, after, seed)
        changed += after is not graph
    assert changed > 0


@pytest.mark.parametrize("spec", PASSES, ids=lambda spec: spec.name)
def test_a_pass_finds_nothing_to_do_after_itself(spec, ctx):
    graph_pass = spec.resolve()()
    for seed, graph in graphs(ctx):
        after = graph_pass.run(graph, ctx)
        assert graph_pass.run(after, ctx) is after, f"random graph {seed}"


def test_all_passes_in_order_keep_the_result(ctx, same_result):
    for seed, graph in graphs(ctx):
        same_result(graph, run_graph_passes(graph, ctx), seed)


def test_a_pass_bears_the_name_it_is_registered_under():
    assert [spec.resolve().name for spec in PASSES] == [spec.name for spec in PASSES]
