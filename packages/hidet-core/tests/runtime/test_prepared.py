"""Prepared results follow the parameters they were made from."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.prepared import ParameterSets
from hidet.runtime.program import HostProgram, InputSlot, OutputSlot, Segment, TensorSlot

ADAPTER = NumpyAdapter()
COUNT = 64
PREPARED = 2


class Counted:
    """Prepares negated parameters and counts how often."""

    def __init__(self) -> None:
        self.runs = 0
        tensors = [TensorSlot(slot, dtypes.f32, (COUNT,), (1,)) for slot in (0, 1)]
        prepare = HostProgram(
            slots=2,
            inputs=(InputSlot(tensors[0]),),
            outputs=(OutputSlot(tensors[1], storage=4 * COUNT),),
            steps=(Segment("negate"),),
        )
        inputs = (InputSlot(tensors[0]), InputSlot(tensors[1], is_parameter=True, is_used=False))
        program = HostProgram(
            slots=3, inputs=inputs, outputs=(), steps=(), prepare=prepare, prepare_inputs=(1,), prepared=(PREPARED,)
        )
        self.sets = ParameterSets(program, {"negate": self._negate}, [])

    def _negate(self, address: int) -> None:
        self.runs += 1
        source, target = (_floats(slot) for slot in (ctypes.c_int64 * 2).from_address(address))
        target[:] = -source


def _floats(address: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(address))


def _parameter(value: float) -> Any:
    return np.full(COUNT, value, np.float32)


def test_equal_addresses_and_versions_run_once() -> None:
    counted, weight = Counted(), _parameter(1)
    for _ in range(3):
        results = counted.sets.state([None, weight], ADAPTER, lambda tensor: 7)
        assert _floats(results.addresses[PREPARED])[0] == -1
    assert counted.runs == 1


def test_sets_of_parameters_that_take_turns_are_prepared_once_each() -> None:
    counted, layers = Counted(), [_parameter(value) for value in range(4)]
    for _ in range(3):
        for value, weight in enumerate(layers):
            results = counted.sets.state([None, weight], ADAPTER, lambda tensor: 7)
            assert _floats(results.addresses[PREPARED])[0] == -value
    assert counted.runs == 4


def test_results_go_with_their_parameters() -> None:
    counted, layers = Counted(), [_parameter(value) for value in range(4)]
    for weight in layers:
        counted.sets.state([None, weight], ADAPTER, lambda tensor: 7)
    assert len(counted.sets.sets) == 4
    del weight, layers[1:]
    assert len(counted.sets.sets) == 1


def test_a_new_version_runs_again() -> None:
    counted, weight = Counted(), _parameter(1)
    counted.sets.state([None, weight], ADAPTER, lambda tensor: 7)
    weight += 1
    results = counted.sets.state([None, weight], ADAPTER, lambda tensor: 8)
    assert _floats(results.addresses[PREPARED])[0] == -2


def test_a_parameter_that_takes_the_place_of_a_freed_one_is_noticed() -> None:
    counted = Counted()
    for value in range(20):
        results = counted.sets.state([None, _parameter(value)], ADAPTER, lambda tensor: 0)
        assert _floats(results.addresses[PREPARED])[0] == -value
        gc.collect(1)
    assert counted.runs == 20


def test_results_stay_valid_while_they_are_held() -> None:
    counted = Counted()
    first = counted.sets.state([None, _parameter(1)], ADAPTER)
    for value in range(2, 20):
        counted.sets.state([None, _parameter(value)], ADAPTER)
    np.testing.assert_array_equal(_floats(first.addresses[PREPARED]), -1)


def test_threads_with_different_parameters_each_get_results_for_theirs() -> None:
    counted = Counted()
    wrong: list[float] = []

    def call(weight: Any) -> None:
        for _ in range(200):
            results = counted.sets.state([None, weight], ADAPTER, lambda tensor: 0)
            if not np.array_equal(_floats(results.addresses[PREPARED]), -weight):
                wrong.append(float(weight[0]))

    threads = [threading.Thread(target=call, args=(_parameter(value),)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_with_the_same_parameters_prepare_once() -> None:
    counted, weight = Counted(), _parameter(3)
    threads = [
        threading.Thread(target=counted.sets.state, args=([None, weight], ADAPTER, lambda tensor: 0)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.runs == 1


def test_numpy_arrays_that_may_be_written_to_look_changed_at_every_call() -> None:
    weight = _parameter(1)
    assert ADAPTER.version(weight) != ADAPTER.version(weight)
    frozen = weight.copy()
    frozen.flags.writeable = False
    assert ADAPTER.version(frozen) == ADAPTER.version(frozen)
    assert ADAPTER.version(frozen[:5]) == ADAPTER.version(frozen[:5])
    view = weight[:5]
    view.flags.writeable = False
    assert ADAPTER.version(view) != ADAPTER.version(view), "its base may be written to"
