"""Control flow that is decided at compile time."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.control import emit_if, emit_while
from hidet.graph.verify import verify_graph
from hidet.operators import all_operators
from hidet.passes.graph.eliminate_dead import without_dead
from hidet.passes.graph.unfold_control import UnfoldControl
from hidet.testing.control_graphs import control_cases
from hidet.testing.interpret import interpret

OPERATORS = {spec.name: spec for spec in all_operators()}
CASES = {case.name: case for case in control_cases()}
COUNT, ROW = TensorType(dtypes.i64, ()), TensorType(dtypes.f32, (3,))


def unfolded(graph, ctx, **options):
    result = without_dead(UnfoldControl(**options).run(graph, ctx))
    verify_graph(result, redefine=True)
    return result


def operators_of(graph):
    return [node.op.name for node in graph.nodes]


def doubling(b, *, stacked=False):
    inner = b.nested("body")
    inner.input(COUNT)
    before = inner.input(ROW)
    after = inner.emit("add", before, before)
    return inner.build([after, after] if stacked else [after])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_stay_what_they_are(case, ctx):
    graph = unfolded(case.graph, ctx)
    for inputs, expected in case.calls:
        for result, wanted in zip(interpret(graph, inputs), expected, strict=True):
            assert np.array_equal(result, wanted)


def test_a_branch_whose_condition_is_constant_takes_the_place_of_the_if(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    p = b.emit("less", b.constant(np.float32(1)), b.constant(np.float32(2)))
    short, long = b.nested("short"), b.nested("long")
    then = short.build([short.emit("slice", short.input(ROW), starts=(0,), stops=(2,))])
    y = long.input(ROW)
    (z,) = emit_if(b, p, [x], then, long.build([long.emit("concat", y, y, axis=0)]))
    graph = b.build([b.emit("exp", z)])
    result = unfolded(graph, ctx)
    assert operators_of(result) == ["slice", "exp"]
    assert result.outputs[0].tensor.shape == (2,)


def test_a_short_loop_of_known_length_is_unrolled(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    last, steps = emit_while(b, doubling(b, stacked=True), limit=b.constant(np.array(3)), carried=[x])
    graph = b.build([last, b.emit("neg", steps)])
    result = unfolded(graph, ctx)
    assert operators_of(result).count("add") == 3 and "while" not in operators_of(result)
    assert result.outputs[1].tensor.shape == (3, 3)
    ones = np.ones(3, np.float32)
    assert np.array_equal(interpret(result, [ones])[1], -np.stack([2 * ones, 4 * ones, 8 * ones]))


def test_a_loop_of_no_iterations_is_its_initial_values(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    graph = b.build([b.emit("neg", value) for value in emit_while(b, doubling(b, stacked=True), limit=0, carried=[x])])
    result = unfolded(graph, ctx)
    last, steps = interpret(result, [np.ones(3, np.float32)])
    assert last.tolist() == [-1, -1, -1] and steps.shape == (0, 3)


def test_a_long_loop_stays_a_loop(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    graph = b.build(emit_while(b, doubling(b), limit=1000, carried=[x]))
    assert operators_of(unfolded(graph, ctx)) == ["while"]
    assert operators_of(unfolded(graph, ctx, max_nodes=1000)) == ["add"] * 1000


def test_an_unrolled_loop_of_growing_shape_has_fixed_shapes(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    inner = b.nested("body")
    inner.input(COUNT)
    before = inner.input(TensorType(dtypes.f32, (inner.fresh_size(),)))
    body = inner.build([inner.emit("concat", before, before, axis=0)])
    (grown,) = emit_while(b, body, limit=3, carried=[x])
    result = unfolded(b.build([b.emit("neg", grown)]), ctx)
    assert result.outputs[0].tensor.shape == (24,)


def test_a_size_read_from_a_constant_is_a_number(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    total = b.emit("add", b.constant(np.array(2)), b.constant(np.array(3)))
    size = b.fresh_size()
    b.emit("read_sizes", total, defines=(size,))
    row = b.emit("expand", b.emit("reshape", x, shape=(3, 1)), shape=(3, size))
    result = unfolded(b.build([b.emit("exp", row)]), ctx)
    assert operators_of(result) == ["reshape", "expand", "exp"]
    assert result.outputs[0].tensor.shape == (3, 5)


def test_a_call_is_replaced_by_what_it_calls(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(ROW, "x")
    inner = b.nested("body")
    body = inner.build([inner.emit("exp", inner.input(ROW))])
    graph = b.build([b.emit("call", b.emit("call", x, body=body), body=body)])
    assert operators_of(unfolded(graph, ctx)) == ["exp", "exp"]


def test_a_node_that_defines_a_size_is_dead_when_nobody_uses_the_size(ctx):
    b = GraphBuilder(OPERATORS)
    x = b.input(COUNT, "x")
    b.emit("read_sizes", x, defines=(b.fresh_size(),))
    used = b.fresh_size()
    b.emit("read_sizes", x, defines=(used,))
    graph = b.build([b.emit("full", shape=(used,), value=1.0, dtype=dtypes.f32)])
    assert operators_of(without_dead(graph)) == ["read_sizes", "full"]
