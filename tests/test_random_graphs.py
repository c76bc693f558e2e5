"""Random graphs, compiled for the CPU, give what the interpreter gives: results, mutated inputs, twice in a row, and as
copies, which go through what a file holds."""

import copy

import numpy as np
import pytest

from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_graph, random_inputs

# Schedules are for the types of models; f64, which shows every error, runs many anchors on the fallback nest.
pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


@pytest.fixture(scope="module")
def ctx():
    return make_context("cpu", {"verify": True, "cache": False})


def check(seed, ctx):
    graph = random_graph(seed, ctx.registry.operators, symbolic=seed % 3 == 0)
    compiled = compile_graph(graph, ctx)
    written = {output: source for source, output in graph.mutates}
    kept = []
    for round_, run in enumerate((compiled, compiled, copy.copy(compiled))):
        for extent in (3, 5) if seed % 3 == 0 else (3,):
            arguments = random_inputs(graph, seed + round_, {"s": extent})
            expected = interpret(graph, arguments, {"s": extent})
            results = run(*arguments)
            returned = iter(results if isinstance(results, tuple) else (results,))
            ours = [arguments[written[n]] if n in written else next(returned) for n in range(len(expected))]
            kept.append((ours, expected))
    for ours, expected in kept:
        for number, (a, b) in enumerate(zip(ours, expected, strict=True)):
            peak = max(1.0, float(np.abs(b).max())) if b.size else 1.0
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * peak, err_msg=f"seed {seed}, output {number}")


@pytest.mark.parametrize("seed", range(20))
def test_compiled_graphs_agree_with_the_interpreter(seed, ctx):
    check(seed, ctx)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 80))
@pytest.mark.thorough(every=6)
def test_many_more_compiled_graphs_agree_with_the_interpreter(seed, ctx):
    check(seed, ctx)
