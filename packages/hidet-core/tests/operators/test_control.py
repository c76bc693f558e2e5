"""Types of control operators."""

import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import ShapeError
from hidet.graph import DimType, GraphBuilder, TensorType
from hidet.operators import all_operators

OPERATORS = {spec.name: spec for spec in all_operators()}
FLAG, COUNT, ROW = (
    TensorType(dtypes.boolean, ()),
    TensorType(dtypes.i64, ()),
    TensorType(dtypes.f32, (3,)),
)


def identity(b, *types):
    inner = b.nested("identity")
    return inner.build([inner.input(type_) for type_ in types])


def test_sizes_are_read_one_an_element():
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(dtypes.i32, (2,)))
    sizes = (b.fresh_size(), b.fresh_size())
    outputs = b.emit_all("read_sizes", [x], {"defines": sizes})
    assert [value.type for value in outputs] == [DimType(size) for size in sizes]
    with pytest.raises(ShapeError, match="reads 1 sizes"):
        b.emit("read_sizes", x, defines=sizes[:1])


def test_an_if_has_the_types_that_it_says():
    b = GraphBuilder(OPERATORS)
    graph = identity(b, ROW)
    (y,) = b.emit_all("if", [b.input(FLAG), b.input(ROW)], {"then": graph, "otherwise": graph, "types": [ROW]})
    assert y.type == ROW
    with pytest.raises(ShapeError, match="expected 2"):
        b.emit("if", b.input(FLAG), b.input(ROW), then=graph, otherwise=graph, types=[ROW, ROW])


def test_a_scan_stacks_along_a_new_first_axis():
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(dtypes.f32, (symbol("n"), 3)))
    y = b.emit("scan", x, body=identity(b, ROW))
    assert y.type == x.type
    with pytest.raises(ShapeError, match="at least one tensor to scan"):
        b.emit("scan", b.input(TensorType(dtypes.f32, ())), body=identity(b, ROW))


def test_a_while_stacks_what_has_one_axis_more():
    b = GraphBuilder(OPERATORS)
    body = identity(b, COUNT)
    result = b.emit("while", None, None, body=body, types=[TensorType(dtypes.i64, (5,))], count=5)
    assert result.tensor.shape == (5,)
    with pytest.raises(ShapeError, match="cannot be stacked"):
        b.emit("while", None, None, body=body, types=[COUNT], count=5)


def test_a_call_has_the_types_of_its_body():
    b = GraphBuilder(OPERATORS)
    assert b.emit("call", b.input(ROW), body=identity(b, ROW)).type == ROW
    with pytest.raises(ShapeError, match="has 1 inputs, got 0"):
        b.emit("call", body=identity(b, ROW))
