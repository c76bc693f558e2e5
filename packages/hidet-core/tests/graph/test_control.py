"""Sub-graphs and sizes that depend on data: meaning, text, checks."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import DTypeError, HidetError, ShapeError, VerifyError
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.control import emit_if, emit_while
from hidet.graph.parser import parse_graph
from hidet.graph.printer import canonical_lines, constant_table, print_graph
from hidet.graph.verify import verify_graph
from hidet.operators import all_operators
from hidet.testing.control_graphs import control_cases
from hidet.testing.interpret import interpret

OPERATORS = {spec.name: spec for spec in all_operators()}
CASES = {case.name: case for case in control_cases()}
f32 = dtypes.f32
FLAG, COUNT = TensorType(dtypes.boolean, ()), TensorType(dtypes.i64, ())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_interpreter_runs_control_flow(case):
    for inputs, expected in case.calls:
        for result, wanted in zip(interpret(case.graph, inputs), expected, strict=True):
            assert result.dtype == wanted.dtype and np.array_equal(result, wanted)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_control_flow_is_valid_and_prints_and_parses_back(case):
    verify_graph(case.graph, redefine=True)
    again = parse_graph(print_graph(case.graph), OPERATORS, constant_table(case.graph))
    verify_graph(again, redefine=True)
    assert canonical_lines(again) == canonical_lines(case.graph)


def test_a_sub_graph_stands_below_its_node():
    assert print_graph(CASES["branches_of_one_shape"].graph).splitlines() == [
        "symbol rows: 0..",
        "graph branches_of_one_shape(%p: bool[], %x: f32[rows, 4], %y: f32[rows, 4]):",
        "  %3: f32[rows, 4] = if(%p, %x, %y, then=@0, otherwise=@1, types=[type(f32[rows, 4])])",
        "    @0 graph then(%0: f32[rows, 4], %1: f32[rows, 4]):",
        "      %2: f32[rows, 4] = add(%0, %1)",
        "      return %2",
        "    @1 graph otherwise(%0: f32[rows, 4], %1: f32[rows, 4]):",
        "      %2: f32[rows, 4] = mul(%0, %1)",
        "      return %2",
        "  %4: f32[rows, 4] = add(%3, %3)",
        "  return %4",
    ]


def branch(b, *types, out=None):
    inner = b.nested("branch")
    values = [inner.input(type_) for type_ in types]
    return inner.build([values[0] if out is None else inner.emit(out, values[0])])


def test_extents_in_which_branches_differ_become_symbols_that_the_if_defines():
    case = CASES["branches_of_different_shapes"]
    node = next(node for node in case.graph.nodes if node.op.name == "if")
    (size,) = node.attrs["defines"]
    assert node.outputs[0].tensor.shape == (size, 3)


def test_branches_of_different_element_types_are_refused():
    b = GraphBuilder(OPERATORS)
    p, x = b.input(FLAG), b.input(TensorType(f32, (2,)))
    with pytest.raises(DTypeError, match="one element type"):
        emit_if(b, p, [x], branch(b, x.type), branch(b, x.type, out="isnan"))


def test_a_branch_must_take_what_the_if_captures():
    b = GraphBuilder(OPERATORS)
    p, x = b.input(FLAG), b.input(TensorType(f32, (2,)))
    with pytest.raises(ShapeError, match=r"branch then: input %0 of branch is f32\[3\], got f32\[2\]"):
        emit_if(b, p, [x], branch(b, TensorType(f32, (3,))), branch(b, x.type))


def test_a_condition_must_be_a_bool_of_rank_0():
    b = GraphBuilder(OPERATORS)
    p, x = b.input(TensorType(dtypes.boolean, (1,))), b.input(TensorType(f32, (2,)))
    with pytest.raises(DTypeError, match="bool of rank 0"):
        emit_if(b, p, [x], branch(b, x.type), branch(b, x.type))


def test_a_carried_value_that_changes_its_shape_needs_a_symbol_of_the_bodys_own():
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(f32, (2,)))
    inner = b.nested("body")
    inner.input(COUNT)
    y = inner.input(TensorType(f32, (2,)))
    body = inner.build([inner.emit("concat", y, y, axis=0)])
    with pytest.raises(ShapeError, match=r"carried value 0 has type f32\[2\] before an iteration and f32\[4\] after"):
        emit_while(b, body, limit=3, carried=[x])


def test_sizes_are_read_from_integers_alone():
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(f32, ()))
    with pytest.raises(DTypeError, match="tensor of integers"):
        b.emit("read_sizes", x, defines=(b.fresh_size(),))


def test_a_size_that_its_symbol_cannot_have_is_refused_when_read():
    b = GraphBuilder(OPERATORS)
    x = b.input(COUNT)
    size = b.fresh_size()
    b.emit("read_sizes", x, defines=(size,))
    graph = b.build([b.emit("full", shape=(size,), value=1.0, dtype=f32)])
    with pytest.raises(ShapeError, match="n_0 = -1"):
        interpret(graph, [np.array(-1)])


def test_fresh_sizes_differ_from_those_of_inputs_and_of_nested_graphs():
    b = GraphBuilder(OPERATORS)
    b.input(TensorType(f32, (symbol("n_1"),)))
    names = [str(b.fresh_size()), str(b.nested("inner").fresh_size()), str(b.fresh_size())]
    assert len({*names, "n_1"}) == 4


def test_the_verifier_looks_into_sub_graphs():
    b = GraphBuilder(OPERATORS)
    p, x = b.input(FLAG), b.input(TensorType(f32, (2,)))
    broken = GraphBuilder(OPERATORS, "broken")
    taken = broken.input(x.type)
    stranger = GraphBuilder(OPERATORS).input(x.type, "stranger")
    graph = broken.build([broken.emit("add", taken, stranger)])
    (y,) = emit_if(b, p, [x], graph, branch(b, x.type))
    with pytest.raises(VerifyError, match=r"%stranger is used before"):
        verify_graph(b.build([y]))


def test_an_endless_loop_needs_no_test_of_its_construction():
    b = GraphBuilder(OPERATORS)
    with pytest.raises(HidetError, match="carried"):
        b.emit_all("while", [None, None], {"body": branch(b, COUNT), "carried": 1, "types": [COUNT]})
