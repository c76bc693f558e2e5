"""Running host programs: memory of concurrent calls, shape classes, steps that fail. Segments are Python functions."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.dims import symbols
from hidet.errors import LaunchError, ShapeError, VerifyError
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.executor import MAX_SHAPE_CLASSES, Executor
from hidet.runtime.memory import LARGE_ARENA
from hidet.runtime.parameter_sets import ParameterSets
from hidet.runtime.plan import ALIGNMENT
from hidet.runtime.program import (
    ArenaBuffer,
    ConstantSlot,
    ForeignCall,
    HostProgram,
    InputSlot,
    OutputSlot,
    ReadSizes,
    Segment,
    SymbolSource,
    TensorSlot,
)

N = dims.symbol("n")
X, TEMPORARY, RESULT, SIZE = range(4)
ADAPTER = NumpyAdapter()
VECTOR = TensorSlot(X, dtypes.f32, (N,), (1,))


def _floats(address: int, count: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def _double_through_arena(address: int) -> None:
    """A segment: temporary = x + x, then result = temporary."""
    table = (ctypes.c_int64 * 4).from_address(address)
    count = table[SIZE]
    _floats(table[TEMPORARY], count)[:] = _floats(table[X], count) * 2
    _floats(table[RESULT], count)[:] = _floats(table[TEMPORARY], count)


def _program(steps: Sequence[Segment | ForeignCall] = (Segment("run"),), **changes: Any) -> HostProgram:
    values: dict[str, Any] = {
        "slots": 4,
        "inputs": (InputSlot(VECTOR, name="x"),),
        "outputs": (OutputSlot(TensorSlot(RESULT, dtypes.f32, (N,), (1,)), storage=4 * N),),
        "steps": tuple(steps),
        "buffers": (ArenaBuffer(TEMPORARY, 4 * N, 0, 0),),
        "sizes": ((SIZE, N),),
        "symbols": (SymbolSource("n", 0, 0),),
    }
    return HostProgram(**{**values, **changes})


def _executor(program: HostProgram, segment: Callable[[int], object] = _double_through_arena) -> Executor:
    return Executor(program, {"run": segment}, [])


def _ramp(count: int) -> Any:
    return np.arange(count, dtype=np.float32)


def test_every_size_of_a_symbol_gives_its_own_result() -> None:
    executor = _executor(_program())
    for count in (3, 1, 0, 7, 3):
        (result,) = executor.run([_ramp(count)], ADAPTER)
        np.testing.assert_array_equal(result, 2 * _ramp(count))


def _beginning_at(offset: int, count: int) -> Any:
    """A ramp whose memory begins so many bytes after a multiple of 16."""
    memory = np.zeros(4 * count + 32, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    array = memory[start : start + 4 * count].view(np.float32)
    array[:] = _ramp(count)
    return array


@pytest.mark.parametrize("is_parameter", [False, True])
def test_inputs_that_steps_need_aligned_are_copied_where_they_are_not(is_parameter: bool) -> None:
    seen: list[int] = []

    def segment(address: int) -> None:
        seen.append((ctypes.c_int64 * 4).from_address(address)[X])
        _double_through_arena(address)

    program = _program(inputs=(InputSlot(VECTOR, is_parameter, name="x"),), aligned=(0,))
    executor, sets = _executor(program, segment), ParameterSets(program)
    arrays = [_beginning_at(offset, 5) for offset in (0, 4, 0, 12)]
    for array in arrays:
        state = sets.state([array], ADAPTER) if is_parameter else None
        (result,) = executor.run([array], ADAPTER, state)
        np.testing.assert_array_equal(result, 2 * _ramp(5))
        # What it holds at the time of a call is copied.
        array += 1
        (result,) = executor.run([array], ADAPTER, state)
        np.testing.assert_array_equal(result, 2 * _ramp(5) + 2)
    assert all(address % 16 == 0 for address in seen)
    assert [address == array.ctypes.data for address, array in zip(seen[::2], arrays, strict=True)] == [
        True,
        False,
        True,
        False,
    ]


def test_an_aligned_input_without_elements_is_none_to_copy() -> None:
    executor = _executor(_program(aligned=(0,)))
    (result,) = executor.run([_beginning_at(4, 0)], ADAPTER)
    assert result.shape == (0,)


def test_results_of_earlier_calls_are_not_written_again() -> None:
    executor = _executor(_program())
    results = [executor.run([_ramp(5) + n], ADAPTER)[0] for n in range(4)]
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, 2 * (_ramp(5) + n))


def test_calls_one_after_the_other_share_one_arena() -> None:
    seen = set()

    def segment(address: int) -> None:
        seen.add((ctypes.c_int64 * 4).from_address(address)[TEMPORARY])

    executor = _executor(_program(), segment)
    for _ in range(5):
        executor.run([_ramp(8)], ADAPTER)
    assert len(seen) == 1


def test_calls_at_the_same_time_never_share_an_arena() -> None:
    together = threading.Barrier(4, timeout=10)
    seen = []

    def segment(address: int) -> None:
        together.wait()
        seen.append((ctypes.c_int64 * 4).from_address(address)[TEMPORARY])
        together.wait()

    executor = _executor(_program(), segment)
    threads = [threading.Thread(target=executor.run, args=([_ramp(8)], ADAPTER)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 4


@pytest.mark.parametrize("nbytes", [100, LARGE_ARENA, 3 * LARGE_ARENA + 5])
def test_arenas_are_aligned_and_large_enough(nbytes: int) -> None:
    def segment(address: int) -> None:
        start = (ctypes.c_int64 * 4).from_address(address)[TEMPORARY]
        assert start % ALIGNMENT == 0
        ctypes.memset(start, 1, nbytes)

    program = _program(buffers=(ArenaBuffer(TEMPORARY, nbytes, 0, 0),))
    _executor(program, segment).run([_ramp(8)], ADAPTER)


def test_shape_classes_are_bounded_and_those_used_last_stay() -> None:
    executor = _executor(_program())
    executor.run([_ramp(1)], ADAPTER)
    kept = executor._first.shape_class((1,))
    for count in range(2, 1000):
        executor.run([_ramp(count)], ADAPTER)
        executor.run([_ramp(1)], ADAPTER)
        assert executor.shape_classes <= MAX_SHAPE_CLASSES
    assert executor._first.shape_class((1,)) is kept


def test_an_executor_gives_its_memory_back() -> None:
    executor = _executor(_program())
    executor.run([_ramp(LARGE_ARENA)], ADAPTER)
    arena = weakref.ref(executor._first.shape_class((LARGE_ARENA,)).free[0].arena)
    assert arena() is not None
    del executor
    gc.collect()
    assert arena() is None


def _foreign(call: Callable[..., Any]) -> HostProgram:
    result = TensorSlot(RESULT, dtypes.f32, (N,), (1,))
    return _program([Segment("run"), ForeignCall("triple", call, (VECTOR, N, None), (result,))])


def test_a_foreign_step_gets_tensors_sizes_and_absent_arguments() -> None:
    def triple(x: Any, size: int, absent: None) -> Any:
        assert (size, absent) == (4, None)
        return 3 * x

    (result,) = _executor(_foreign(triple)).run([_ramp(4)], ADAPTER)
    np.testing.assert_array_equal(result, 3 * _ramp(4))


def test_an_error_in_a_foreign_step_leaves_the_executor_usable() -> None:
    fail = True

    def sometimes(x: Any, *_: Any) -> Any:
        if fail:
            raise ZeroDivisionError("as users do")
        return 3 * x

    executor = _executor(_foreign(sometimes))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="as users do"):
            executor.run([_ramp(4)], ADAPTER)
    fail = False
    np.testing.assert_array_equal(executor.run([_ramp(4)], ADAPTER)[0], 3 * _ramp(4))


def test_a_foreign_step_that_returns_too_little_is_named() -> None:
    executor = _executor(_foreign(lambda *_: ()))
    with pytest.raises(LaunchError, match="node triple returned 0 results, expected 1"):
        executor.run([_ramp(4)], ADAPTER)


def test_a_symbol_is_solved_from_a_linear_extent() -> None:
    program = _program(symbols=(SymbolSource("n", 0, 0, offset=2, divisor=2),))
    executor = _executor(program, lambda address: None)
    assert executor.run([_ramp(8)], ADAPTER)[0].shape == (3,)
    with pytest.raises(ShapeError, match="axis 0 of argument 0 is 9, which no value of n gives"):
        executor.run([_ramp(9)], ADAPTER)


def test_a_size_that_two_steps_define_is_refused_before_anything_runs() -> None:
    reads = ReadSizes(TensorSlot(X, dtypes.i64, (), ()), symbols(dims.symbol("u")))
    with pytest.raises(VerifyError, match="step 1 of the program tells size u, which is told before it"):
        Executor(_program((reads, reads)), {}, [])


def test_outputs_that_share_memory_are_views_of_one_block() -> None:
    outputs = (
        OutputSlot(TensorSlot(RESULT, dtypes.f32, (2, N), (N, 1)), storage=8 * N),
        OutputSlot(TensorSlot(RESULT, dtypes.f32, (N, 2), (1, N)), same_as=0),
        OutputSlot(None, size=N + 1),
    )
    program = _program(outputs=outputs, buffers=())
    whole, turned, size = _executor(program, lambda address: None).run([_ramp(5)], ADAPTER)
    assert np.shares_memory(whole, turned)
    np.testing.assert_array_equal(turned, whole.T)
    assert size == 6


class _DeviceAdapter(NumpyAdapter):
    """Arrays that stand for memory of a device, used in a stream that a test chooses."""

    is_host = False
    chosen = 1

    def stream(self) -> int:
        return self.chosen


class _Memory:
    """Copies constants, and knows which streams were waited for.

    recorded: the streams that somebody records. kept: what their graphs need, by stream.
    """

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.recorded: set[int] = set()
        self.kept: dict[int, list[object]] = {}

    can_capture = True

    def is_capturing(self, stream: int) -> bool:
        return stream in self.recorded

    def keep_for_graph(self, stream: int, owner: object) -> None:
        self.kept.setdefault(stream, []).append(owner)

    def upload(self, array: Any) -> tuple[object, int]:
        copy = array.copy()
        return copy, copy.ctypes.data

    def finish(self, stream: int) -> None:
        self.finished.append(stream)


def test_a_recorded_call_is_launched_on_an_arena_of_its_own_and_a_host_has_none() -> None:
    arenas: list[int] = []

    class Recording(_Memory):
        can_capture = True

        def capture(self, run: Any) -> Any:
            run(7)
            return "recorded"

    def segment(address: int, stream: int) -> None:
        arenas.append((ctypes.c_int64 * 4).from_address(address)[TEMPORARY])

    executor = Executor(_program(), {"run": segment}, [], Recording())
    executor.run([_ramp(8)], _DeviceAdapter())
    work, held = executor.record([_ramp(8)], _DeviceAdapter())
    executor.run([_ramp(8)], _DeviceAdapter())
    assert work == "recorded" and held
    assert len(arenas) == 3 and arenas[0] == arenas[2] != arenas[1]
    assert Executor(_program(), {"run": segment}, []).record([_ramp(8)], NumpyAdapter()) is None


def test_on_a_device_each_stream_has_arenas_of_its_own() -> None:
    seen: dict[int, set[int]] = {}

    def segment(address: int, stream: int) -> None:
        seen.setdefault(stream, set()).add((ctypes.c_int64 * 4).from_address(address)[TEMPORARY])

    executor = Executor(_program(), {"run": segment}, [], _Memory())
    adapter = _DeviceAdapter()
    for adapter.chosen in (1, 2, 1, 2):
        executor.run([_ramp(8)], adapter)
    assert [len(addresses) for addresses in seen.values()] == [1, 1]
    assert not seen[1] & seen[2]


def test_constants_of_a_device_lie_in_its_memory() -> None:
    program = _program(constants=(ConstantSlot(SIZE, 0),), sizes=())
    array = _ramp(4)
    addresses: list[int] = []

    def segment(address: int, stream: int) -> None:
        addresses.append((ctypes.c_int64 * 4).from_address(address)[SIZE])

    executor = Executor(program, {"run": segment}, [array], _Memory())
    executor.run([_ramp(8)], _DeviceAdapter())
    assert addresses[0] != array.ctypes.data
    np.testing.assert_array_equal(_floats(addresses[0], 4), array)
