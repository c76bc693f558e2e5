"""Named algorithms: ordering of equals and NaN, shapes that depend on data."""

import ml_dtypes
import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compute import Definition, Operand, Routine
from hidet.compute.evaluate import evaluate
from hidet.compute.routines import ROUTINES
from hidet.errors import UnsupportedOp

COUNT = dims.symbol("count")


def run(name, array, results, **attributes):
    x = Operand("x", dtypes.from_numpy(array.dtype), array.shape)
    made = tuple(Operand(f"r{n}", dtype, shape) for n, (dtype, shape) in enumerate(results))
    stage = Routine(name, (x,), made, tuple(attributes.items()))
    return evaluate(Definition((x,), (stage,), made), [array])


def test_sorting_is_stable_and_puts_nan_last():
    array = np.array([2, np.nan, 1, 2, -np.inf], np.float32)
    values, indices = run("sort", array, [(dtypes.f32, (5,)), (dtypes.i64, (5,))], axis=0)
    assert indices.tolist() == [4, 2, 0, 3, 1]
    assert np.array_equal(values, array[indices], equal_nan=True)


def test_descending_order_keeps_equals_in_place_and_puts_nan_first():
    array = np.array([2, np.nan, 1, 2], np.float32)
    (indices,) = run("argsort", array, [(dtypes.i64, (4,))], descending=True)
    assert indices.tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_top_k_takes_the_best_along_an_axis(dtype):
    array = np.array([[3, 1, 2], [0, 5, 4]]).astype(dtype)
    kind = dtypes.from_numpy(array.dtype)
    values, indices = run("topk", array, [(kind, (2, 2)), (dtypes.i64, (2, 2))], k=2, axis=1)
    assert np.array_equal(values, np.take_along_axis(array, indices, 1))
    assert np.array_equal(values, -np.sort(-array.astype(np.float32), axis=1)[:, :2])


def test_nonzero_finds_places_in_row_major_order():
    (indices,) = run("nonzero", np.array([[0, 1], [2, 0]]), [(dtypes.i64, (COUNT, 2))])
    assert indices.tolist() == [[0, 1], [1, 0]]


def test_unique_tells_values_places_and_counts():
    array = np.array([[3, 1], [1, 3], [3, 0]])
    values, inverse, counts = run(
        "unique", array, [(dtypes.i64, (COUNT,)), (dtypes.i64, (3, 2)), (dtypes.i64, (COUNT,))]
    )
    assert values.tolist() == [0, 1, 3]
    assert np.array_equal(values[inverse], array)
    assert counts.tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ROUTINES)
def test_every_routine_declares_operands_results_and_meaning(name):
    spec = ROUTINES[name]
    assert spec.name == name
    assert spec.operands
    assert spec.results
    assert spec.doc.endswith(".")


def test_unknown_routines_and_attributes_are_refused_with_the_nearest_name():
    with pytest.raises(UnsupportedOp, match="did you mean 'topk'"):
        run("topkk", np.zeros(3), [(dtypes.f64, (3,))])
    with pytest.raises(UnsupportedOp, match="has no attribute 'axes'"):
        run("sort", np.zeros(3), [(dtypes.f64, (3,)), (dtypes.i64, (3,))], axes=0)
