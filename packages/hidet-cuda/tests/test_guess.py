"""A captured call is launched with the parameters of the call before, and compared with its own afterwards."""

from __future__ import annotations

import ctypes
import gc
import textwrap
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cache import open_cache
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, Options
from hidet.cuda.memory import memory_at
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver, Launch
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.parameter_sets import ParameterSets

DEPTH = 8

# The weight is read, and added while the next is computed.
TEXT = "graph g(%x: f32[3, 4], param %w: f32[3, 4]):\n  %p: f32[3, 4] = cumsum(%w, axis=1)\n"
TEXT += "  %0: f32[3, 4] = add(%x, %p)\n"
TEXT += "".join(f"  %{i}: f32[3, 4] = cumsum(%{i - 1}, axis=1)\n" for i in range(1, DEPTH))
TEXT += f"  return %{DEPTH - 1}\n"

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


class Model:
    """A graph on a fake device whose scans add one to the first element. Notes when its parameters are compared."""

    def __init__(self, fake: FakeDriver, text: str = TEXT) -> None:
        self.fake = fake
        fake.recorded_words = 3
        fake.on_launch = self._run
        registry = load_registry()
        options, cache = Options(cache=False), open_cache(enabled=False)
        ctx = CompileContext(target=CudaTarget("sm_80"), registry=registry, options=options, cache=cache)
        self.graph: CompiledGraph = compile_graph(parse_graph(textwrap.dedent(text), registry.operators), ctx)
        self.replays_before_comparisons: list[int] = []

    def _run(self, launch: Launch) -> None:
        first, second, third = (ctypes.c_float.from_address(launch.word(number)) for number in (0, 1, 2))
        if "fused" in launch.kernel:
            third.value = first.value + second.value + 1
        else:
            second.value = first.value + 1

    @property
    def replays(self) -> int:
        return sum(entry[0] == "replays" for entry in self.fake.log)

    def __call__(self, x: float, weight: Any) -> float:
        adapter = memory_at(0).adapter()
        compare = adapter.lie_at

        def noted(tensors: Any, places: list[int]) -> bool:
            self.replays_before_comparisons.append(self.replays)
            return bool(compare(tensors, places))

        adapter.lie_at = noted
        (result,) = self.graph.run([array(x), weight], adapter)
        return float(result.numpy()[0, 0])


def array(value: float) -> Any:
    return hidet.cuda.asarray(np.full((3, 4), value, np.float32))


def write(weight: Any, value: float) -> None:
    ctypes.c_float.from_address(weight.address).value = value


def test_a_call_is_on_the_device_before_its_parameters_are_compared(fake: FakeDriver) -> None:
    model, weight = Model(fake), array(10.0)
    for number in range(5):
        assert model(float(number), weight) == number + 10 + DEPTH
    assert model.replays == 3
    model.replays_before_comparisons.clear()
    assert model(7.0, weight) == 17 + DEPTH
    assert model.replays_before_comparisons == [4]


def test_a_parameter_that_has_changed_shows_in_the_next_call(fake: FakeDriver) -> None:
    model, weight = Model(fake), array(10.0)
    for _ in range(5):
        model(1.0, weight)
    for value in (20.0, 30.0):
        write(weight, value)
        for number in range(5):
            assert model(float(number), weight) == number + value + DEPTH


def test_another_set_of_parameters_shows_too(fake: FakeDriver) -> None:
    model, weights = Model(fake), [array(value) for value in (10.0, 20.0, 30.0)]
    for _ in range(3):
        for weight, value in zip(weights, (10.0, 20.0, 30.0), strict=True):
            for number in range(4):
                assert model(float(number), weight) == number + value + DEPTH


def test_nothing_is_guessed_where_parameters_take_turns(fake: FakeDriver) -> None:
    model, weights = Model(fake), [array(10.0), array(20.0)]
    for _ in range(4):
        for weight in weights:
            model(1.0, weight)
    before = model.replays
    for weight in weights:
        model(1.0, weight)
    assert model.replays == before + len(weights), "one launch a call"


def test_a_guess_does_not_keep_the_parameters(fake: FakeDriver) -> None:
    model, weight = Model(fake), array(10.0)
    for _ in range(6):
        model(1.0, weight)
    assert model.graph._parameters is not None
    kept = weakref.ref(model.graph._parameters.sets[0])
    del weight
    gc.collect()
    assert kept() is None
    assert model(1.0, array(50.0)) == 51 + DEPTH


def test_threads_with_parameters_of_their_own_get_their_own_results(fake: FakeDriver) -> None:
    model, values = Model(fake), (10.0, 20.0, 30.0)
    wrong: list[float] = []

    def call(value: float) -> None:
        weight = array(value)
        for number in range(15):
            result = model(float(number), weight)
            if result != number + value + DEPTH:
                wrong.append(result)

    threads = [threading.Thread(target=call, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "is_repeatable"),
    [
        (TEXT, True),
        ("graph g(%x: f32[4], param %w: f32[4]):\n  %0: f32[4] = add(%x, %w)\n  return %0\n  mutates 0 <- 0\n", False),
    ],
)
def test_only_what_may_be_done_twice_is_guessed(fake: FakeDriver, text: str, is_repeatable: bool) -> None:
    assert Model(fake, text).graph.bundle.program.is_repeatable is is_repeatable


POSITIONS = """
graph g(%x: f32[4, 4], param %w: f32[9, 4], param %i: i64[4]):
  %0: f32[4, 4] = embedding(%w, %i)
  %1: f32[4, 4] = add(%0, %x)
  return %1
"""


def test_parameters_that_are_asserted_are_the_right_ones_before_anything_is_launched(fake: FakeDriver) -> None:
    program = Model(fake, POSITIONS).graph.bundle.program
    assert (program.is_repeatable, program.asserted) == (True, (2,))
    sets = ParameterSets(program)
    adapter = memory_at(0).adapter()
    x, table, positions = array(0.0), array(1.0), array(2.0)
    assert sets.state([x, table, positions], adapter) is sets.state([x, table, positions], adapter)
    assert sets.expected([x, table, positions], adapter) is not None
    assert sets.expected([x, array(3.0), positions], adapter) is not None, "compared while the device works"
    assert sets.expected([x, table, array(4.0)], adapter) is None
