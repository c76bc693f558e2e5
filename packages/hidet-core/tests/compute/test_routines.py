"""Named algorithms: ordering of equals and NaN, shapes that depend on data."""

import ml_dtypes
import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compute.definition import Definition, Operand, Routine
from hidet.compute.evaluate import evaluate
from hidet.compute.routine import RoutineSpec
from hidet.compute.routines import ARGSORT, NONZERO, ROUTINES, SORT, TOPK, UNIQUE
from hidet.errors import PluginError, UnsupportedOp, VerifyError
from hidet.ir.structural import structural_hash

COUNT = dims.symbol("count")


def run(spec, array, results, **attributes):
    x = Operand("x", dtypes.from_numpy(array.dtype), array.shape)
    made = tuple(Operand(f"r{n}", dtype, shape) for n, (dtype, shape) in enumerate(results))
    stage = Routine(spec, (x,), made, tuple(attributes.items()))
    return evaluate(Definition((x,), (stage,), made), [array])


def test_sorting_is_stable_and_puts_nan_last():
    array = np.array([2, np.nan, 1, 2, -np.inf], np.float32)
    values, indices = run(SORT, array, [(dtypes.f32, (5,)), (dtypes.i64, (5,))], axis=0)
    assert indices.tolist() == [4, 2, 0, 3, 1]
    assert np.array_equal(values, array[indices], equal_nan=True)


def test_descending_order_keeps_equals_in_place_and_puts_nan_first():
    array = np.array([2, np.nan, 1, 2], np.float32)
    (indices,) = run(ARGSORT, array, [(dtypes.i64, (4,))], descending=True)
    assert indices.tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_top_k_takes_the_best_along_an_axis(dtype):
    array = np.array([[3, 1, 2], [0, 5, 4]]).astype(dtype)
    kind = dtypes.from_numpy(array.dtype)
    values, indices = run(TOPK, array, [(kind, (2, 2)), (dtypes.i64, (2, 2))], k=2, axis=1)
    assert np.array_equal(values, np.take_along_axis(array, indices, 1))
    assert np.array_equal(values, -np.sort(-array.astype(np.float32), axis=1)[:, :2])


def test_nonzero_finds_places_in_row_major_order():
    (indices,) = run(NONZERO, np.array([[0, 1], [2, 0]]), [(dtypes.i64, (COUNT, 2))])
    assert indices.tolist() == [[0, 1], [1, 0]]


def test_unique_returns_values_places_and_counts():
    array = np.array([[3, 1], [1, 3], [3, 0]])
    values, inverse, counts = run(UNIQUE, array, [(dtypes.i64, (COUNT,)), (dtypes.i64, (3, 2)), (dtypes.i64, (COUNT,))])
    assert values.tolist() == [0, 1, 3]
    assert np.array_equal(values[inverse], array)
    assert counts.tolist() == [1, 2, 3]


@pytest.mark.parametrize("spec", ROUTINES, ids=lambda spec: spec.name)
def test_what_every_routine_names_can_be_loaded(spec):
    assert callable(spec.load_reference()) or spec.name == "script"
    assert callable(spec.load_program()) == bool(spec.program)
    assert spec.doc.endswith(".")


def test_a_stage_gives_what_its_routine_takes():
    with pytest.raises(VerifyError, match=r"routine sort has no attribute 'axes'\nhint: did you mean 'axis'"):
        run(SORT, np.zeros(3), [(dtypes.f64, (3,)), (dtypes.i64, (3,))], axes=0)
    with pytest.raises(VerifyError, match=r"routine sort has results \(values, indices\), a stage gives it 1"):
        run(SORT, np.zeros(3), [(dtypes.f64, (3,))])


def test_a_routine_without_a_reference_or_with_a_lost_one_is_named():
    bare = RoutineSpec(name="acme.bare", operands=("x",), results=("y",))
    with pytest.raises(UnsupportedOp, match=r"routine acme\.bare has no reference"):
        run(bare, np.zeros(3), [(dtypes.f64, (3,))])
    lost = RoutineSpec(name="acme.lost", operands=("x",), results=("y",), reference="no_such_module:f")
    with pytest.raises(PluginError, match=r"routine 'acme\.lost': cannot load 'no_such_module:f'"):
        run(lost, np.zeros(3), [(dtypes.f64, (3,))])


def test_definitions_of_two_routines_differ_by_their_names():
    x, y = (Operand(name, dtypes.f32, (3,)) for name in "xy")
    specs = [RoutineSpec(name=name, operands=("x",), results=("y",)) for name in ("acme.a", "acme.b", "acme.a")]
    a, b, same = (structural_hash(Definition((x,), (Routine(spec, (x,), (y,)),), (y,))) for spec in specs)
    assert a == same
    assert a != b
