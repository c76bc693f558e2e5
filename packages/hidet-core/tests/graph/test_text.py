"""Graphs as text: what is printed, and that it parses back."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.errors import VerifyError
from hidet.graph import (
    Attribute,
    DimType,
    GraphBuilder,
    OperatorSpec,
    OptionalType,
    Prepare,
    SequenceType,
    TensorType,
    Value,
)
from hidet.graph.parser import parse_graph
from hidet.graph.printer import canonical_lines, constant_table, print_graph
from hidet.loc import Loc
from hidet.operators import all_operators

f32 = dtypes.f32
ANY = OperatorSpec(
    name="custom::any",
    inputs=("args*",),
    attributes=(Attribute("value", None), Attribute("other", 1.5)),
    infer=lambda types, attrs: [TensorType(f32, (2,))],
)
OPERATORS = {**{spec.name: spec for spec in all_operators()}, ANY.name: ANY}


def tensor(*shape, dtype=f32):
    return TensorType(dtype, shape)


def parsed(graph):
    return parse_graph(print_graph(graph), OPERATORS, constant_table(graph))


def model():
    s = dims.symbol("s0", 1, 8192, divisor=8, hint=128)
    b = GraphBuilder(OPERATORS, "main")
    x, w = b.input(tensor(s, 768), "x"), b.input(tensor(768, 768), "w", is_parameter=True)
    scale = b.constant(np.array([1, 0.1, -np.inf, 3], np.float32), name="scale")
    table = b.constant(np.arange(64, dtype=np.float32).reshape(8, 8), name="table")
    with b.at(Loc("model.py", 41, name="fc1")):
        y = b.emit("matmul", x, w, trans_b=True)
    z = b.emit("reshape", y, shape=(s * 192, 4))
    out = b.emit("mul", z, scale)
    return b.build([out, b.emit("relu", table)], mutates=())


@pytest.mark.parametrize("dtype", [dtypes.bf16, dtypes.f16, dtypes.i8], ids=str)
def test_large_constants_of_every_type_print_as_a_digest(dtype):
    b = GraphBuilder(OPERATORS, "main")
    table = b.constant(np.arange(64).reshape(8, 8).astype(dtype.numpy()), name="table")
    graph = b.build([b.emit("relu", table)])
    assert "= sha=" in print_graph(graph)
    assert print_graph(parsed(graph)) == print_graph(graph)


def test_a_graph_prints_one_line_a_node():
    text = print_graph(model())
    assert text.splitlines() == [
        "symbol s0: 8..8192 hint 128 divisor 8",
        "graph main(%x: f32[s0, 768], param %w: f32[768, 768]):",
        "  const %scale: f32[4] = [1.0, 0.1, -inf, 3.0]",
        f"  const %table: f32[8, 8] = sha={next(iter(constant_table(model())))}",
        "  %4: f32[s0, 768] = matmul(%x, %w, trans_b=True)  # model.py:41 (fc1)",
        "  %5: f32[192*s0, 4] = reshape(%4, shape=[dim(192*s0), 4])",
        "  %6: f32[192*s0, 4] = mul(%5, %scale)",
        "  %7: f32[8, 8] = relu(%table)",
        "  return %6, %7",
    ]


def test_a_printed_graph_parses_back_with_its_places():
    graph = model()
    again = parsed(graph)
    assert canonical_lines(again) == canonical_lines(graph)
    assert print_graph(again) == print_graph(graph)
    assert again.nodes[0].loc == Loc("model.py", 41, name="fc1")
    assert again.nodes[0].definition is not None


@pytest.mark.parametrize(
    "type_",
    [
        TensorType(f32, ()),
        TensorType(dtypes.bf16, (2, 3), strides=(1, 2), device="cuda:0", alignment=64),
        TensorType(dtypes.i4, (dims.floordiv(dims.symbol("s") + 3, 4), dims.minimum(dims.symbol("s"), 7))),
        SequenceType(TensorType(dtypes.string, (2,))),
        OptionalType(SequenceType(TensorType(dtypes.boolean, (0,)))),
        DimType(2 * dims.symbol("n") + 1),
    ],
    ids=str,
)
def test_every_type_parses_back(type_):
    b = GraphBuilder(OPERATORS)
    graph = b.build([b.input(type_, "x")])
    assert parsed(graph).inputs[0].type == type_


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        -3,
        1e-30,
        float("-inf"),
        1.0,
        complex(1, -2.5),
        'it\'s, "quoted" # not a comment\n',
        dtypes.f16,
        2 * dims.symbol("n"),
        (),
        (1,),
        (1, (2.0, "a]"), (dtypes.i64, None)),
    ],
    ids=repr,
)
def test_every_attribute_value_parses_back(value):
    b = GraphBuilder(OPERATORS)
    b.input(DimType(dims.as_dim(dims.symbol("n"))))
    with b.at(Loc(name="here # and there")):
        b.emit(ANY, value=value)
    graph = b.build([])
    again = parsed(graph)
    assert again.nodes[0].attrs == graph.nodes[0].attrs
    assert again.nodes[0].loc == Loc(name="here # and there")


def test_attributes_with_their_default_value_are_left_out():
    b = GraphBuilder(OPERATORS)
    y = b.emit(ANY, value=None, other=2.5)
    assert "custom::any(other=2.5)" in print_graph(b.build([y]))


def test_an_absent_input_prints_as_none():
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(2, 4), "x")
    graph = b.build([b.emit("layer_norm", x, None, b.constant(np.zeros(4, np.float32)), rank=1)])
    assert "layer_norm(%x, none, %1" in print_graph(graph)
    assert parsed(graph).nodes[0].inputs[1] is None


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False]),
        np.array(-7, np.int8),
        np.array([2**64 - 1], np.uint64),
        np.array([0.1, -0.0, np.nan, 65504], np.float16),
        np.array([0.1, 3e38]).astype(ml_dtypes.bfloat16),
        np.array([0.3, 448]).astype(ml_dtypes.float8_e4m3fn),
        np.array([1e-310, 0.1]),
        np.array([1.5 - 2j, complex(np.inf, -0.0)], np.complex64),
        np.array([-8, 7]).astype(ml_dtypes.int4),
        np.zeros((0, 3), np.float32),
        np.array([["a, b]", "it's"]], object),
    ],
    ids=lambda a: f"{a.dtype.name}",
)
def test_small_constants_print_in_line_and_keep_every_bit(array):
    b = GraphBuilder(OPERATORS)
    graph = b.build([b.constant(array, name="c")])
    assert constant_table(graph) == {}
    again = parsed(graph)
    (constant,) = again.constants.values()
    assert constant.data.dtype == array.dtype
    assert constant.data.shape == array.shape
    assert [repr(element) for element in constant.data.flat] == [repr(element) for element in array.flat]


def test_a_nan_with_a_payload_goes_to_the_side_table():
    b = GraphBuilder(OPERATORS)
    array = np.array([0x7FC00001], np.uint32).view(np.float32)
    graph = b.build([b.constant(array)])
    assert "sha=" in print_graph(graph)
    assert next(iter(parsed(graph).constants.values())).data.tobytes() == array.tobytes()


def test_prepare_graphs_and_mutations_parse_back():
    inner = GraphBuilder(OPERATORS, "prepare")
    made = inner.build([inner.emit("transpose", inner.constant(np.ones((4, 2), np.float32)), perm=(1, 0))])
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(4, 8), "x")
    packed = Value("packed", tensor(2, 4))
    graph = replace(b.build([b.emit("add", x, x)], mutates=((0, 0),)), prepare=Prepare(made, (packed,)))
    again = parsed(graph)
    assert canonical_lines(again) == canonical_lines(graph)
    assert again.mutates == ((0, 0),)
    assert again.prepare.results[0].name == "packed"


def test_sub_graphs_print_indented_below_their_node():
    inner = GraphBuilder(OPERATORS, "taken")
    body = inner.build([inner.emit("relu", inner.input(tensor(2), "a"))])
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(2), "x")
    graph = b.build([b.emit(ANY, x, value=(body, 3, body))])
    lines = print_graph(graph).splitlines()
    assert lines[1:4] == [
        "  %1: f32[2] = custom::any(%x, value=[@0, 3, @1])",
        "    @0 graph taken(%a: f32[2]):",
        "      %1: f32[2] = relu(%a)",
    ]
    assert canonical_lines(parsed(graph)) == canonical_lines(graph)


def test_names_are_made_unique_and_plain():
    b = GraphBuilder(OPERATORS)
    values = [b.input(tensor(2), name) for name in ("a", "a", "layer.0/out", "a_1")]
    graph = b.build(values)
    assert "return %a, %a_1, %layer.0_out, %a_1_1" in print_graph(graph)
    assert canonical_lines(parsed(graph)) == canonical_lines(graph)


def test_names_and_places_do_not_count_but_operators_types_and_constants_do():
    def build(name="x", op="relu", size=4, fill=1.0, loc=None, order=(0, 1)):
        b = GraphBuilder(OPERATORS)
        x = b.input(tensor(size), name)
        constants = {n: b.constant(np.full(size, fill + n, np.float32)) for n in order}
        with b.at(loc):
            return b.build([b.emit("add", b.emit("add", b.emit(op, x), constants[0]), constants[1])])

    assert canonical_lines(build()) == canonical_lines(build(name="y", loc=Loc("m.py", 3), order=(1, 0)))
    for other in (build(op="neg"), build(size=5), build(fill=2.0)):
        assert canonical_lines(build()) != canonical_lines(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "graph g(%x: f32[2]):\n  %y: f32[2] = rellu(%x)",
            "(?s)line 2: operator 'rellu' is unknown.*did you mean 'relu'",
        ),
        ("graph g(%x: f32[2]):\n  return %z", "line 2: nothing above defines %z"),
        ("graph g(%x: f32[2]):\n  %x: f32[2] = relu(%x)", "a new name: %x is defined already"),
        ("graph g(%x: f33[2]):", "line 1: unknown element type 'f33'"),
        ("graph g(%x: f32[t]):", "line 1: size 't', column 1: found 't', expected a known symbol"),
        ("graph g(%x: f32[2]):\n  %y: f32[2] = relu(%x) oops", r"line 2, column 25: found 'oops', expected the end"),
        ("graph g(%x: f32[2]):\n  %y: f32[2] = relu(%x, k=1)", "line 2: operator relu has no attribute 'k'"),
        (
            "graph g(%x: f32[2]):\n  %y: f32[2] = custom::any(value=@1)",
            "expected a number below 0, which is how many sub-graphs",
        ),
        ("graph g():\n  const %c: f32[2] = [1.0]", "1 elements do not fill the shape"),
        ("graph g():\n  const %c: f32[2] = sha=ab12", "(?s)digest ab12 is in no side table.*constant_table"),
        ("symbol s: many", "line 1: expected 'symbol name: lower..upper"),
        ("", "must have one graph"),
    ],
)
def test_malformed_text_is_refused_with_its_line(text, message):
    with pytest.raises(VerifyError, match=message):
        parse_graph(text, OPERATORS)
