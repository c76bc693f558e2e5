"""Constant folding."""

from dataclasses import replace

import numpy as np
import pytest

from hidet.compute.evaluate import evaluate
from hidet.graph import GraphBuilder
from hidet.passes.graph.fold_constants import FoldConstants


def test_arithmetic_on_constants_is_evaluated(becomes):
    becomes(
        FoldConstants(),
        """
        graph g(%x: f64[3]):
          const %a: f64[3] = [1.0, 2.0, 3.0]
          const %b: f64[] = 2.0
          %0: f64[3] = mul(%a, %b)
          %1: f64[3] = add(%0, %b)
          %2: f64[3] = add(%x, %1)
          return %2
        """,
        """
        graph g(%x: f64[3]):
          const %1: f64[3] = [4.0, 6.0, 8.0]
          %2: f64[3] = add(%x, %1)
          return %2
        """,
    )


def test_parameters_are_no_constants(becomes):
    text = """
        graph g(%x: f64[3], param %w: f64[3]):
          const %b: f64[] = 2.0
          %0: f64[3] = mul(%w, %b)
          %1: f64[3] = add(%x, %0)
          return %1
        """
    becomes(FoldConstants(), text, text)


def test_nodes_without_inputs_and_views_are_evaluated_only_for_readers_that_fold(becomes):
    becomes(
        FoldConstants(),
        """
        graph g(%x: f64[2]):
          %0: f64[3] = arange(stop=3, dtype=f64)
          %1: f64[2] = slice(%0, starts=[1], stops=[None])
          %2: f64[2] = square(%1)
          %3: f64[2] = add(%x, %1)
          %4: f64[2] = add(%3, %2)
          return %4
        """,
        """
        graph g(%x: f64[2]):
          const %2: f64[2] = [1.0, 4.0]
          %0: f64[3] = arange(stop=3, dtype=f64)
          %1: f64[2] = slice(%0, starts=[1], stops=[None])
          %3: f64[2] = add(%x, %1)
          %4: f64[2] = add(%3, %2)
          return %4
        """,
    )


def test_results_above_the_limit_are_left_to_run_time(ctx, parse):
    graph = parse("""
        graph g(%x: f64[8]):
          const %a: f64[8] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
          %0: f64[8] = exp(%a)
          %1: f64[8] = add(%x, %0)
          return %1
    """)
    assert FoldConstants(max_bytes=63).run(graph, ctx) is graph
    assert len(FoldConstants(max_bytes=64).run(graph, ctx).nodes) == 1


def test_what_depends_on_a_size_stays(ctx, parse):
    graph = parse("""
        symbol s: 2..64
        graph g(%x: f64[s]):
          %0: f64[] = full(shape=[], value=dim(s), dtype=f64)
          %1: f64[] = sqrt(%0)
          %2: f64[s] = div(%x, %1)
          return %2
    """)
    assert FoldConstants().run(graph, ctx) is graph


@pytest.mark.parametrize("flags", [{"is_random": True}, {"has_effect": True}, {"kind": "eager"}])
def test_what_chance_or_another_framework_decides_stays(ctx, flags):
    spec = replace(ctx.registry.operators["neg"], name="strange", **flags)
    builder = GraphBuilder({})
    graph = builder.build([builder.emit(spec, builder.constant([1.0]))])
    assert FoldConstants().run(graph, ctx) is graph


def test_an_output_may_become_a_constant(ctx, parse):
    graph = parse("""
        graph g():
          const %a: f64[2] = [1.0, 2.0]
          %0: f64[2] = neg(%a)
          return %0
    """)
    after = FoldConstants().run(graph, ctx)
    assert after.nodes == ()
    assert after.constants[after.outputs[0]].numpy().tolist() == [-1, -2]


VIEWS = (
    ("reshape", {"shape": (4, 3)}),
    ("transpose", {"perm": (1, 0)}),
    ("slice", {"starts": (1, None), "stops": (None, 3), "steps": (1, 2)}),
    ("slice", {"starts": (0, 0), "stops": (2, 4)}),
    ("expand", {"shape": (2, 3, 4)}),
    ("select", {"axis": 1, "index": 2}),
    ("unsqueeze", {"axes": (1,)}),
)


@pytest.mark.parametrize(("name", "attrs"), VIEWS)
def test_views_of_constants_have_the_elements_that_their_definitions_say(ctx, name, attrs):
    builder = GraphBuilder(ctx.registry.operators)
    table = np.arange(12.0).reshape(3, 4)
    graph = builder.build([builder.emit(name, builder.constant(table), **attrs)])
    (node,) = graph.nodes
    (found,) = FoldConstants().values(graph, graph.outputs).values()
    np.testing.assert_array_equal(found.numpy(), evaluate(node.definition, [table])[0])
    assert found.numpy().flags.c_contiguous


def test_a_result_with_strides_of_its_own_is_no_constant(ctx, parse):
    """Seeds 101853, 102569, 108125 of tests.fuzz.torch_programs: constants are row-major, this result is not."""
    graph = parse("""
        graph g(%x: f32[2, 1]{4, 1}):
          const %a: f32[2, 1] = [3.0, 4.0]
          %0: f32[2, 1]{4, 1} = neg(%a)
          return %0
          mutates 0 <- 0
    """)
    assert FoldConstants().run(graph, ctx) is graph
