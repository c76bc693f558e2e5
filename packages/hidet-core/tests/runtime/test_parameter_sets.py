"""Where the parameters of a call lie is known again at the next call, and follows them when they move."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.parameter_sets import ParameterSets, ParameterState
from hidet.runtime.program import HostProgram, InputSlot, TensorSlot

ADAPTER = NumpyAdapter()
COUNT = 64
X, WEIGHT = 0, 1


def _sets() -> ParameterSets:
    tensors = [TensorSlot(slot, dtypes.f32, (COUNT,), (1,)) for slot in (X, WEIGHT)]
    inputs = (InputSlot(tensors[0]), InputSlot(tensors[1], is_parameter=True))
    return ParameterSets(HostProgram(slots=2, inputs=inputs, outputs=(), steps=()))


def _parameter(value: float) -> Any:
    return np.full(COUNT, value, np.float32)


def _state(sets: ParameterSets, weight: Any) -> ParameterState:
    return sets.state([None, weight], ADAPTER)


def test_a_state_has_the_address_of_each_parameter_that_calls_read() -> None:
    weight = _parameter(1)
    assert _state(_sets(), weight).addresses == {WEIGHT: weight.ctypes.data}


def test_the_same_parameters_have_the_same_state_whatever_is_written_to_them() -> None:
    sets, weight = _sets(), _parameter(1)
    first = _state(sets, weight)
    weight += 1
    assert _state(sets, weight) is first


def test_sets_of_parameters_that_take_turns_keep_their_states() -> None:
    sets, layers = _sets(), [_parameter(value) for value in range(4)]
    states = [_state(sets, weight) for weight in layers]
    assert [_state(sets, weight) for weight in layers] == states


def test_states_go_with_their_parameters() -> None:
    sets, layers = _sets(), [_parameter(value) for value in range(4)]
    for weight in layers:
        _state(sets, weight)
    assert len(sets.sets) == 4
    del weight, layers[1:]
    assert len(sets.sets) == 1


def test_a_parameter_that_takes_the_place_of_a_freed_one_has_a_state_of_its_own() -> None:
    sets = _sets()
    for value in range(20):
        weight = _parameter(value)
        assert _state(sets, weight).addresses[WEIGHT] == weight.ctypes.data
        gc.collect(1)


def test_threads_with_different_parameters_each_get_the_state_of_theirs() -> None:
    sets = _sets()
    wrong: list[int] = []

    def call(weight: Any) -> None:
        for _ in range(200):
            if _state(sets, weight).addresses[WEIGHT] != weight.ctypes.data:
                wrong.append(weight.ctypes.data)

    threads = [threading.Thread(target=call, args=(_parameter(value),)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_state_is_expected_once_two_calls_have_had_it() -> None:
    sets, first, other = _sets(), _parameter(1), _parameter(2)
    state = _state(sets, first)
    assert sets.expected([None, first], ADAPTER) is None
    _state(sets, first)
    assert sets.expected([None, first], ADAPTER) is state
    assert sets.are_in(state, [None, first], ADAPTER)
    assert not sets.are_in(state, [None, other], ADAPTER)
    _state(sets, other)
    assert sets.expected([None, first], ADAPTER) is None
