"""Compiled operators whose number of results depends on data."""

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.graph import GraphBuilder, TensorType
from hidet.operators import all_operators
from hidet.testing.selection_graphs import selection_cases

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


@pytest.mark.parametrize("case", selection_cases(), ids=lambda case: case.name)
@pytest.mark.thorough(every=2)
def test_a_compiled_selection_gives_what_numpy_gives(case):
    compiled = hidet.compile(case.graph, target="cpu", options={"verify": True})
    for inputs, expected in case.calls:
        results = compiled(*inputs)
        for result, wanted in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_an_operator_with_a_known_count_is_compiled():
    b = GraphBuilder({spec.name: spec for spec in all_operators()})
    x = b.input(TensorType(dtypes.f32, (2, 3)))
    outputs = [b.emit("nonzero", x, count=4), *b.emit_all("unique", [x], {"count": 3})]
    array = np.array([[0, 1, 2], [1, 0, 1]], np.float32)
    places, values, inverse, counts = hidet.compile(b.build(outputs), target="cpu")(array)
    np.testing.assert_array_equal(places, np.argwhere(array))
    assert values.tolist() == [0, 1, 2] and counts.tolist() == [2, 3, 1]
    np.testing.assert_array_equal(values[inverse], array)
