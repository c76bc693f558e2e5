"""Operators whose number of results depends on data, in terms of running counts."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import DTypeError, ShapeError
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.verify import verify_graph
from hidet.operators import all_operators, selection
from hidet.testing.interpret import interpret
from hidet.testing.selection_graphs import selection_cases

OPERATORS = {spec.name: spec for spec in all_operators()}


@pytest.mark.parametrize("case", selection_cases(), ids=lambda case: case.name)
def test_a_selection_gives_what_numpy_gives(case):
    verify_graph(case.graph, redefine=True)
    for inputs, expected in case.calls:
        for result, wanted in zip(interpret(case.graph, inputs), expected, strict=True):
            assert result.dtype == wanted.dtype and np.array_equal(result, wanted, equal_nan=wanted.dtype.kind == "f")


def test_rows_are_packed_where_the_count_rises():
    b = GraphBuilder(OPERATORS)
    x, ends = b.input(TensorType(dtypes.f32, (4, 2))), b.input(TensorType(dtypes.i64, (4,)))
    graph = b.build([b.emit("pack", x, ends, count=2)])
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    (result,) = interpret(graph, [rows, np.array([0, 1, 1, 2])])
    assert result.tolist() == [[2, 3], [6, 7]]


def test_runs_start_where_an_element_differs_from_the_one_before():
    b = GraphBuilder(OPERATORS)
    graph = b.build([b.emit("run_starts", b.input(TensorType(dtypes.f32, (5,))))])
    (result,) = interpret(graph, [np.array([1, 1, 2, np.nan, np.nan], np.float32)])
    assert result.tolist() == [True, False, True, True, True]


def test_pack_takes_running_counts_as_i64():
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(dtypes.f32, (4,)))
    with pytest.raises(DTypeError, match="running counts as i64"):
        b.emit("pack", x, x, count=symbol("n"))


def test_a_mask_is_bool():
    b = GraphBuilder(OPERATORS)
    x = b.input(TensorType(dtypes.f32, (4,)))
    with pytest.raises(DTypeError, match="bool mask"):
        selection.masked_select(b, x, x)


def test_a_condition_is_no_longer_than_the_axis():
    b = GraphBuilder(OPERATORS)
    x, condition = b.input(TensorType(dtypes.f32, (4,))), b.input(TensorType(dtypes.boolean, (5,)))
    with pytest.raises(ShapeError, match="5 elements for an axis of extent 4"):
        selection.compress(b, x, condition, 0)
