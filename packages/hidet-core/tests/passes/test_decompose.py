"""Operators that nothing schedules by name are taken apart, where they say how."""

from dataclasses import replace

import pytest

from hidet import dtypes
from hidet.errors import CompileError
from hidet.graph import GraphBuilder, OperatorSpec, TensorType
from hidet.loc import Loc
from hidet.passes.graph.decompose import Decompose
from hidet.plugins.specs import ScheduleSpec

ADDMM = """
        graph g(%c: f64[5], %a: f64[3, 4], %b: f64[4, 5]):
          %0: f64[3, 5] = addmm(%c, %a, %b, beta=2)
          return %0
"""


def test_an_operator_without_a_schedule_is_taken_apart(becomes):
    becomes(
        Decompose(),
        ADDMM,
        """
        graph g(%c: f64[5], %a: f64[3, 4], %b: f64[4, 5]):
          %0: f64[3, 5] = matmul(%a, %b)
          %1: f64[3, 5] = add(%0, %c, alpha=2)
          return %1
        """,
    )


def test_an_operator_with_a_schedule_is_kept(ctx, parse):
    spec = ScheduleSpec(name="own", ops=("addmm",), targets=("none",), load="nowhere:Rule")
    registry = replace(ctx.registry, schedules={**ctx.registry.schedules, spec.name: spec})
    graph = parse(ADDMM)
    assert Decompose().run(graph, replace(ctx, registry=registry)) is graph


def test_an_element_wise_operator_is_kept(ctx, parse):
    graph = parse("""
        graph g(%a: f64[3], %b: f64[3]):
          %0: f64[2, 3] = stack(%a, %b)
          return %0
    """)
    assert Decompose().run(graph, ctx) is graph


CROPPED = """
        graph g(%x: f32[1, 2, 4], %w: f32[2, 3, 3]):
          %0: f32[1, 3, 4] = conv_transpose(%x, %w, padding=1)
          return %0
"""


def test_a_result_that_is_returned_is_no_part_of_something_larger(ctx, parse, same_result):
    graph = parse(CROPPED)
    result = Decompose().run(graph, ctx)
    last = result.nodes[-1]
    assert (last.op.name, last.outputs, last.loc) == ("copy", result.outputs, graph.nodes[-1].loc)
    same_result(graph, result)


def test_a_result_that_is_only_read_may_be_a_part_of_something_larger(ctx, parse):
    graph = parse(CROPPED.replace("return %0", "%1: f32[1, 3, 4] = relu(%0)\n          return %1"))
    assert "copy" not in [node.op.name for node in Decompose().run(graph, ctx).nodes]


def test_an_operator_that_decomposes_into_itself_is_refused_by_name(ctx):
    spec = OperatorSpec(
        name="endless",
        inputs=("x",),
        infer=lambda types, attrs: [types[0]],
        decompose=lambda builder, inputs, attrs: [builder.emit(spec, *inputs)],
    )
    builder = GraphBuilder({})
    x = builder.input(TensorType(dtypes.f32, (3,)))
    with (
        builder.at(Loc("model.py", 7)),
        pytest.raises(CompileError, match=r"endless decomposes without end\s+at model.py:7"),
    ):
        Decompose().run(builder.build([builder.emit(spec, x)]), ctx)
