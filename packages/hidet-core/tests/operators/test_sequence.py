"""Sequences and optional values."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import PositionError, ShapeError
from hidet.graph import GraphBuilder, OptionalType, SequenceType, TensorType
from hidet.graph.verify import verify_graph
from hidet.operators import all_operators
from hidet.testing.interpret import interpret

OPERATORS = {spec.name: spec for spec in all_operators()}
ROWS = TensorType(dtypes.f32, (symbol("rows"), 2))
SEQUENCE, OPTIONAL = SequenceType(ROWS), OptionalType(ROWS)
PLACE = TensorType(dtypes.i64, ())


def rows(*counts):
    return [np.full((count, 2), count, np.float32) for count in counts]


def result_of(op, inputs, values, **attrs):
    b = GraphBuilder(OPERATORS)
    given = [None if type_ is None else b.input(type_) for type_ in inputs]
    if "defines" in attrs:
        attrs["defines"] = tuple(b.fresh_size() for _ in range(attrs["defines"]))
    if "type" in attrs and callable(attrs["type"]):
        attrs["type"] = attrs["type"](attrs["defines"])
    outputs = b.emit_all(op, given, attrs)
    graph = b.build(outputs)
    verify_graph(graph, redefine=True)
    results = interpret(graph, values)
    return results[0] if len(results) == 1 else results


def taken(defines):
    return TensorType(dtypes.f32, (*defines, 2))


def test_a_sequence_holds_copies():
    a, b = rows(1, 2)
    made = result_of("sequence_construct", [ROWS, TensorType(dtypes.f32, (2, 2))], [a, b], type=SEQUENCE)
    a[:] = 7
    assert [item[0, 0] for item in made] == [1, 2]


@pytest.mark.parametrize(("place", "order"), [(None, [1, 2, 5]), (0, [5, 1, 2]), (-1, [1, 5, 2]), (2, [1, 2, 5])])
def test_a_value_is_inserted_before_a_position(place, order):
    position = [] if place is None else [np.array(place)]
    types = [SEQUENCE, TensorType(dtypes.f32, (5, 2)), *([PLACE] * len(position))]
    made = result_of("sequence_insert", types, [rows(1, 2), *rows(5), *position])
    assert [len(item) for item in made] == order


def test_a_value_is_erased_and_counted():
    assert [len(x) for x in result_of("sequence_erase", [SEQUENCE], [rows(1, 2)])] == [1]
    assert [len(x) for x in result_of("sequence_erase", [SEQUENCE, PLACE], [rows(1, 2), np.array(0)])] == [2]
    assert result_of("sequence_length", [SEQUENCE], [rows(1, 2, 3)]) == 3


def test_what_is_taken_out_has_an_extent_of_its_own():
    made = result_of("sequence_at", [SEQUENCE, PLACE], [rows(1, 4), np.array(-1)], type=taken, defines=1)
    assert made.shape == (4, 2)


def test_a_position_outside_of_a_sequence_is_an_error():
    with pytest.raises(PositionError, match="position 2 in a sequence of 2 elements"):
        result_of("sequence_at", [SEQUENCE, PLACE], [rows(1, 4), np.array(2)], type=taken, defines=1)


@pytest.mark.parametrize(("sizes", "counts"), [(np.array(2), [2, 2, 1]), (np.array([1, 4]), [1, 4])])
def test_a_tensor_is_split_into_parts(sizes, counts):
    made = result_of("split_to_sequence", [ROWS, TensorType(dtypes.i64, sizes.shape)], [*rows(5), sizes], type=SEQUENCE)
    assert [len(item) for item in made] == counts


def test_parts_that_do_not_make_the_whole_are_refused():
    with pytest.raises(ShapeError, match=r"parts \[1, 2\] of an axis of extent 5"):
        result_of(
            "split_to_sequence",
            [ROWS, TensorType(dtypes.i64, (2,))],
            [*rows(5), np.array([1, 2])],
            type=SEQUENCE,
        )


def test_a_sequence_is_joined():
    made = result_of("concat_from_sequence", [SEQUENCE], [rows(1, 2)], axis=0, type=taken, defines=1)
    assert made.shape == (3, 2)
    with pytest.raises(ShapeError, match="joins an empty sequence"):
        result_of("concat_from_sequence", [SEQUENCE], [[]], axis=0, type=taken, defines=1)


def test_an_optional_value_is_there_or_not():
    assert result_of("optional", [ROWS], rows(3), type=OPTIONAL).shape == (3, 2)
    assert result_of("optional", [None], [], type=OPTIONAL) is None
    assert [bool(result_of("optional_has_element", [OPTIONAL], [v])) for v in (None, rows(1)[0])] == [False, True]
    assert result_of("optional_get_element", [OPTIONAL], rows(3), type=taken, defines=1).shape == (3, 2)
    with pytest.raises(ShapeError, match="absent"):
        result_of("optional_get_element", [OPTIONAL], [None], type=taken, defines=1)
