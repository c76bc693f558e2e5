"""Every rule of the graph IR, broken on purpose."""

from dataclasses import replace

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.errors import VerifyError
from hidet.graph import Attribute, Attrs, GraphBuilder, Node, OperatorSpec, Prepare, TensorType, Value
from hidet.graph.verify import verify_graph
from hidet.loc import Loc
from hidet.operators import all_operators

OPERATORS = {spec.name: spec for spec in all_operators()}
f32 = dtypes.f32
X = TensorType(f32, (4, 8))


def simple():
    b = GraphBuilder(OPERATORS, "main")
    x, w = b.input(X, "x"), b.input(TensorType(f32, (8, 2)), "w", is_parameter=True)
    with b.at(Loc("model.py", 41, name="fc1")):
        y = b.emit("matmul", x, w)
    return b.build([b.emit("relu", y)])


def with_first(graph, **changes):
    return graph.with_nodes((replace(graph.nodes[0], **changes), *graph.nodes[1:]))


def test_a_built_graph_is_valid():
    verify_graph(simple())
    verify_graph(simple(), redefine=True)


def test_a_symbolic_graph_is_valid():
    s = dims.symbol("s")
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(f32, (s, 8)))
    verify_graph(b.build([b.emit("reshape", x, shape=(2 * s, 4))]), redefine=True)


def test_nodes_out_of_order_are_refused_with_their_place():
    graph = simple()
    with pytest.raises(VerifyError, match=r"operator relu defining %3: input %2 is used before anything defines it"):
        verify_graph(graph.with_nodes(graph.nodes[::-1]))


def test_a_value_defined_twice_is_refused():
    graph = simple()
    with pytest.raises(VerifyError, match=r"(?s)operator matmul defining %2: %2 is defined twice.*model.py:41"):
        verify_graph(graph.with_nodes((graph.nodes[0], *graph.nodes)))


def test_an_undefined_output_is_refused():
    with pytest.raises(VerifyError, match="graph main returns %stray, which nothing defines"):
        verify_graph(replace(simple(), outputs=(Value("stray", X),)))


def test_too_few_or_absent_inputs_are_refused():
    graph = simple()
    x, w = graph.inputs
    with pytest.raises(VerifyError, match=r"takes inputs \(a, b\), got 1"):
        verify_graph(with_first(graph, inputs=(x,)))
    with pytest.raises(VerifyError, match="input a is absent but not optional"):
        verify_graph(with_first(graph, inputs=(None, w)))


def test_unknown_and_missing_attributes_are_refused():
    graph = simple()
    with pytest.raises(VerifyError, match="has no attribute 'trans'"):
        verify_graph(with_first(graph, attrs=Attrs({"trans": True})))
    with pytest.raises(VerifyError, match="attributes are incomplete"):
        verify_graph(with_first(graph, attrs=Attrs({})))


def test_an_output_type_that_the_operator_does_not_infer_is_refused():
    graph = simple()
    wrong = Value("y", TensorType(f32, (4, 3)))
    with pytest.raises(VerifyError, match=r"%y has type f32\[4, 3\], but the operator infers f32\[4, 2\]"):
        verify_graph(with_first(graph, outputs=(wrong,)))
    with pytest.raises(VerifyError, match="2 outputs, but the operator infers 1"):
        verify_graph(with_first(graph, outputs=(*graph.nodes[0].outputs, wrong)))


def test_a_definition_made_for_other_inputs_is_refused():
    graph = simple()
    b = GraphBuilder(OPERATORS)
    other = b.emit("matmul", b.input(TensorType(f32, (5, 8))), b.input(TensorType(f32, (8, 2))))
    foreign = b.build([other]).nodes[0].definition
    with pytest.raises(VerifyError, match=r"the definition reads \(f32\[5, 8\], f32\[8, 2\]\), but the inputs are"):
        verify_graph(with_first(graph, definition=foreign))


def test_layouts_and_undecided_sizes_may_differ_from_what_is_inferred():
    s, t = dims.symbol("s"), dims.symbol("t")
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(f32, (s, 4)))
    node = b.build([b.emit("relu", x)]).nodes[0]
    laid_out = Value("y", TensorType(f32, (t, 4), strides=(1, t), device="cpu", alignment=64))
    graph = b.build([laid_out])
    verify_graph(graph.with_nodes((replace(node, outputs=(laid_out,)),)))


def test_one_name_for_two_symbols_is_refused():
    b = GraphBuilder(OPERATORS)
    b.input(TensorType(f32, (dims.symbol("s"),)))
    y = b.input(TensorType(f32, (dims.symbol("s", divisor=8),)))
    with pytest.raises(VerifyError, match="uses symbol s with 0 <= s, a multiple of 8, elsewhere 0 <= s"):
        verify_graph(b.build([y]))


def test_a_size_that_two_nodes_define_is_refused():
    size = dims.symbol("u")
    b = GraphBuilder(OPERATORS, "main")
    count = b.input(TensorType(dtypes.i64, ()))
    b.emit("read_sizes", count, defines=(size,))
    once = b.build([b.emit("full", shape=(size,), value=1, dtype=f32)])
    verify_graph(once)
    with b.at(Loc("model.py", 41)):
        b.emit("read_sizes", count, defines=(size,))
    with pytest.raises(VerifyError, match=r"(?s)operator read_sizes defining %3: it defines size u, .*model.py:41"):
        verify_graph(b.build(once.outputs))


def test_a_node_that_defines_a_size_of_the_inputs_is_refused():
    b = GraphBuilder(OPERATORS, "main")
    x = b.input(TensorType(f32, (dims.symbol("s"),)))
    b.emit("read_sizes", b.input(TensorType(dtypes.i64, ())), defines=x.tensor.shape)
    with pytest.raises(VerifyError, match="it defines size s, which has a value already"):
        verify_graph(b.build([x]))


def test_a_parameter_that_is_no_input_is_refused():
    with pytest.raises(VerifyError, match="parameter %p is no input"):
        verify_graph(replace(simple(), parameters=frozenset({Value("p", X)})))


def test_constant_data_of_another_shape_is_refused():
    b = GraphBuilder(OPERATORS, "main")
    c = b.constant(np.zeros(3, np.float32), name="c")
    graph = b.build([b.emit("relu", c)])
    data = graph.constants[c]
    wrong = Value("c", TensorType(f32, (4,)))
    with pytest.raises(VerifyError, match=r"constant %c of type f32\[4\] has shape \(3,\)"):
        verify_graph(replace(graph, constants={wrong: data}))


def test_a_constant_with_strides_of_its_own_is_refused():
    b = GraphBuilder(OPERATORS, "main")
    c = b.constant(np.zeros((2, 3), np.float32), name="c")
    graph = b.build([b.emit("relu", c)])
    wrong = Value("c", TensorType(f32, (2, 3), (1, 2)))
    with pytest.raises(VerifyError, match=r"has strides; constants are row-major"):
        verify_graph(replace(graph, constants={wrong: graph.constants[c]}))


def test_mutation_pairs_must_name_an_input_once_and_an_output_of_its_type():
    b = GraphBuilder(OPERATORS, "main")
    x = b.input(X, "x")
    y, total = b.emit("relu", x), b.emit("reshape", x, shape=(32,))
    graph = b.build([y, total])
    verify_graph(replace(graph, mutates=((0, 0),)))
    with pytest.raises(VerifyError, match=r"input %x of type f32\[4, 8\] is overwritten by %2 of type f32\[32\]"):
        verify_graph(replace(graph, mutates=((0, 1),)))
    for wrong in (((1, 0),), ((0, 2),), ((0, 0), (0, 0))):
        with pytest.raises(VerifyError, match="does not name an input, once, and an output"):
            verify_graph(replace(graph, mutates=wrong))


def prepared():
    graph = simple()
    inner = GraphBuilder(OPERATORS, "prepare")
    made = inner.build([inner.emit("neg", inner.constant(np.ones((8, 2), np.float32)))])
    packed = Value("packed", TensorType(f32, (8, 2)))
    first = replace(graph.nodes[0], inputs=(graph.inputs[0], packed))
    return replace(graph.with_nodes((first, *graph.nodes[1:])), prepare=Prepare(made, (packed,)))


def test_a_prepare_graph_defines_values_of_the_main_graph():
    verify_graph(prepared())


def test_a_prepare_graph_has_no_inputs_and_results_of_their_types():
    graph = prepared()
    inner = GraphBuilder(OPERATORS, "prepare")
    with_input = inner.build([inner.emit("neg", inner.input(TensorType(f32, (8, 2))))])
    with pytest.raises(VerifyError, match="1 inputs, expected none"):
        verify_graph(replace(graph, prepare=replace(graph.prepare, graph=with_input)))
    more = (*graph.prepare.results, Value("more", TensorType(f32, (8, 2))))
    with pytest.raises(VerifyError, match="2 results for 1 values"):
        verify_graph(replace(graph, prepare=replace(graph.prepare, results=more)))
    inner = GraphBuilder(OPERATORS, "prepare")
    turned = inner.build([inner.emit("neg", inner.constant(np.ones((2, 8), np.float32)))])
    with pytest.raises(VerifyError, match="%packed has type"):
        verify_graph(replace(graph, prepare=replace(graph.prepare, graph=turned)))


def test_sub_graphs_are_checked_and_named_by_their_node():
    inner = simple()
    broken = replace(inner, parameters=frozenset()).with_nodes(inner.nodes[::-1])
    call = OperatorSpec(
        name="call", inputs=("args*",), attributes=(Attribute("body"),), infer=lambda types, attrs: [types[0]]
    )
    b = GraphBuilder({})
    x = b.input(X)
    node = Node(call, (x,), Attrs({"body": replace(inner, parameters=frozenset())}), (Value("y", X),))
    verify_graph(b.build([x]).with_nodes((node,)))
    for subgraph, message in (
        (broken, "operator call defining %y: operator relu defining %3: input %2 is used before"),
        (inner, "sub-graph main has parameters"),
    ):
        wrong = replace(node, attrs=Attrs({"body": subgraph}))
        with pytest.raises(VerifyError, match=message):
            verify_graph(b.build([x]).with_nodes((wrong,)))
