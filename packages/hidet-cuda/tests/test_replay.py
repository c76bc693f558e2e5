"""Which calls are captured and replayed, what of them is copied, and what they keep."""

from __future__ import annotations

import ctypes
import gc
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cache import open_cache
from hidet.compiler.graphs import compile_graph
from hidet.context import MODES, CompileContext, Mode, Options
from hidet.cuda.graphs import keep_for_graph
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FIRST_RECORDED, FakeDriver, Launch
from hidet.dtypes import f32
from hidet.errors import FallbackWarning, LaunchError
from hidet.graph.builder import GraphBuilder
from hidet.graph.parser import parse_graph
from hidet.graph.types import TensorType
from hidet.plugins.host import load_registry
from hidet.runtime import replay
from hidet.runtime.compiled import CompiledGraph

DEPTH = 8

# Scans are not fused, so that each is a launch.
CHAIN = "symbol n: 1..1000\ngraph g(%x: f32[n, 4]):\n" + "".join(
    f"  %{i}: f32[n, 4] = cumsum(%{i - 1 if i else 'x'}, axis=1)\n" for i in range(DEPTH)
)
CHAIN += f"  return %{DEPTH - 1}\n"

SHORT = "graph g(%x: f32[4]):\n  %0: f32[4] = relu(%x)\n  return %0\n"

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


def graph_on(fake: FakeDriver, text: str = CHAIN, mode: Mode = "default") -> CompiledGraph:
    """A graph whose kernels, fake ones, add one to the first element."""

    def run(launch: Launch) -> None:
        source, target = (ctypes.c_float.from_address(launch.word(number)) for number in (0, 1))
        target.value = source.value + 1

    fake.on_launch = run
    registry = load_registry()
    options, cache = Options(cache=False, mode=mode, search_space=0), open_cache(enabled=False)
    ctx = CompileContext(target=CudaTarget("sm_80"), registry=registry, options=options, cache=cache)
    return compile_graph(parse_graph(textwrap.dedent(text), registry.operators), ctx)


def array(value: float, rows: int = 3) -> Any:
    return hidet.cuda.asarray(np.full((rows, 4), value, np.float32))


def first(result: Any) -> float:
    """The element that the fake kernels compute."""
    return float(result.numpy()[0, 0])


def replays(fake: FakeDriver) -> int:
    return sum(entry[0] == "replays" for entry in fake.log)


def test_the_third_call_is_captured_and_all_give_their_own_results(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    results = [graph(array(float(number))) for number in range(6)]
    assert len(fake.launches) == 2 * DEPTH
    assert replays(fake) == 4
    assert [first(result) for result in results] == [number + DEPTH for number in range(6)]


@pytest.mark.parametrize(
    ("mode", "launched"), [("reduce-overhead", 1), ("max-autotune", 1), ("max-autotune-no-cudagraphs", 6)]
)
def test_modes_ask_for_it_sooner_or_never(fake: FakeDriver, mode: Mode, launched: int) -> None:
    graph = graph_on(fake, mode=mode)
    for _ in range(6):
        graph(array(1.0))
    assert len(fake.launches) == launched * DEPTH


def test_every_mode_says_when() -> None:
    assert set(replay.REPLAY_AFTER) == set(MODES)


def test_sizes_have_captured_calls_of_their_own(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(4):
        for rows in (2, 5):
            result = graph(array(1.0, rows))
            assert (first(result), result.shape) == (1 + DEPTH, (rows, 4))
    count, nbytes = graph.captured()
    assert count == 2
    assert nbytes >= 2 * (2 + 5) * 16


def test_streams_have_captured_calls_of_their_own(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    streams = [hidet.cuda.Stream(), hidet.cuda.Stream()]
    for _ in range(3):
        for stream in streams:
            with hidet.cuda.stream(stream):
                graph(array(1.0))
    assert [entry for entry in fake.log if entry[0] == "replays"] == [("replays", s.handle) for s in streams]


def test_a_call_inside_a_capture_of_the_users_runs_as_it_is(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(4):
        graph(array(1.0))
    before = replays(fake)
    stream = hidet.cuda.Stream()
    with hidet.cuda.stream(stream):
        x = array(1.0)
        fake.recordings[stream.handle] = []
        graph(x)
    assert len(fake.recordings[stream.handle]) == DEPTH
    assert replays(fake) == before


def addresses_of(launches: list[Launch]) -> set[int]:
    """Where kernels read and write."""
    return {launch.word(number) for launch in launches for number in (0, 1)}


def test_what_a_graph_of_the_users_writes_to_is_used_by_nobody_else(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    used: list[int] = []
    fake.on_launch = lambda launch: used.extend(addresses_of([launch]))
    stream = hidet.cuda.Stream()
    with hidet.cuda.stream(stream):
        x = array(1.0)
        graph(x)
        before = {*used}
        fake.recordings[stream.handle] = []
        result = graph(x)
        recorded = addresses_of(fake.recordings.pop(stream.handle)) - {x.address}
        used.clear()
        # The graph may run while this one does.
        after = graph(x)
    assert result.address in recorded
    assert recorded.isdisjoint(before)
    assert recorded.isdisjoint(used)
    assert after.address != result.address


def test_what_a_graph_of_the_users_reads_stays_until_it_is_destroyed(fake: FakeDriver) -> None:
    registry = load_registry()
    builder = GraphBuilder(registry.operators)
    x = builder.input(TensorType(f32, (300,)), "x")
    built = builder.build([builder.emit("add", x, builder.constant(np.arange(300, dtype=np.float32)))])
    options, cache = Options(cache=False), open_cache(enabled=False)
    ctx = CompileContext(target=CudaTarget("sm_80"), registry=registry, options=options, cache=cache)
    graph = compile_graph(built, ctx)
    (constant,) = fake.blocks
    other = compile_graph(built, ctx)
    stream = hidet.cuda.Stream()
    with hidet.cuda.stream(stream):
        given = hidet.cuda.asarray(np.zeros(300, np.float32))
        graph(given)
        fake.recordings[stream.handle] = []
        graph(given)
        del fake.recordings[stream.handle]
    del graph
    gc.collect()
    hidet.cuda.empty_cache()
    assert constant in fake.blocks
    fake.destroy_recorded(stream.handle)
    assert constant in fake.blocks, "the driver's thread frees nothing: it must not call the driver"
    with hidet.cuda.stream(stream):
        fake.recordings[stream.handle] = []
        other(given)
        del fake.recordings[stream.handle]
    assert constant in fake.blocks, "nothing is freed while somebody records: that would end the recording"
    hidet.cuda.empty_cache()
    assert constant not in fake.blocks


def test_a_thread_without_a_context_records_nothing(fake: FakeDriver) -> None:
    graph, x = graph_on(fake), array(1.0)
    fake.context = 0
    assert first(graph(x)) == 1.0 + DEPTH
    assert not fake.user_objects


def test_what_no_graph_takes_is_not_kept(fake: FakeDriver) -> None:
    device = fake.device()
    fake.refused["cuGraphRetainUserObject"] = 1
    with pytest.raises(LaunchError, match="keeping memory for a CUDA graph"):
        keep_for_graph(device, FIRST_RECORDED, object())
    device.kept.drop_unneeded()
    assert len(device.kept) == 0


def test_a_call_that_copies_cost_more_than_launches_is_left_alone(fake: FakeDriver) -> None:
    graph = graph_on(fake, SHORT)
    for _ in range(5):
        graph(hidet.cuda.asarray(np.zeros(4, np.float32)))
    assert len(fake.launches) == 5
    assert graph.captured() == (0, 0)


def test_captured_calls_are_bounded_and_those_in_use_stay(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(5):
        for rows in range(1, replay.MAX_INSTANCES + 4):
            graph(array(1.0, rows))
    assert graph.captured()[0] == replay.MAX_INSTANCES
    assert len(fake.graphs) == replay.MAX_INSTANCES
    # One that nobody used for long makes room.
    for _ in range(replay.IDLE_CALLS + 3):
        graph(array(1.0, 50))
    assert graph.captured()[0] == replay.MAX_INSTANCES
    assert any(instance.used == replay.IDLE_CALLS + 3 + 5 * 11 for instance in graph._executor.replays.instances)


def test_what_captured_calls_keep_goes_with_their_graph(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(4):
        graph(array(1.0))
    assert len(fake.graphs) == 1
    del graph
    gc.collect()
    assert fake.graphs == {}
    assert sum(fake.blocks.values()) == 0


def test_without_memory_for_a_capture_the_call_runs_as_it_is_and_warns(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(2):
        graph(array(1.0, 1000))
    # Enough for a result, not for an arena and places of its own.
    x = array(1.0, 1000)
    fake.free_bytes = 20_000
    with pytest.warns(FallbackWarning, match="calls are not captured, because there is no memory for them"):
        result = graph(x)
    assert first(result) == 1 + DEPTH
    assert graph.captured() == (0, 0)


def test_a_launch_that_is_refused_while_it_is_captured_ends_the_call(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(2):
        graph(array(1.0))
    fake.refuse = 1
    with pytest.raises(hidet.errors.LaunchError, match="launching kernel"):
        graph(array(1.0))
    fake.refuse = 0
    assert fake.recordings == {}
    assert first(graph(array(2.0))) == 2 + DEPTH


def test_tensors_that_lie_where_they_lay_are_not_copied(fake: FakeDriver) -> None:
    fake.reuses = True
    graph = graph_on(fake)
    x = array(1.0)

    def copies() -> int:
        return sum(entry[0] == "copy on device" for entry in fake.log)

    made = []
    for _ in range(20):
        result = graph(x)
        assert first(result) == 1 + DEPTH
        made.append(copies())
    assert made[:3] == [0, 0, 2]
    # The result before is alive while the next one is made, so that two places take turns.
    assert made[-1] == made[-3]
    assert first(graph(array(5.0))) == 5 + DEPTH
    assert copies() == made[-1] + 2
    count, nbytes = graph.captured()
    assert count == 3
    # They share one arena, and only one of them has places.
    assert nbytes == 2 * 48 + graph._executor.replays.instances[0].execution.nbytes


def test_a_device_that_fails_in_a_captured_call_names_its_kernels(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(4):
        graph(array(1.0))
    fake.refused["cuCtxSynchronize"] = 700
    with pytest.raises(hidet.errors.DeviceLost, match="in one of those launched last: the CUDA graph of kernel cumsum"):
        hidet.cuda.synchronize()


def test_large_tensors_are_not_copied_to_save_launches(fake: FakeDriver) -> None:
    graph = graph_on(fake, CHAIN.replace("1..1000", "1..1000000"))
    for _ in range(4):
        graph(array(1.0, 200_000))
    assert len(fake.launches) == 4 * DEPTH


def test_a_captured_call_takes_over_the_memory_of_the_calls_before(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    taken = []
    for _ in range(4):
        graph(array(1.0))
        taken.append(sum(fake.blocks.values()))
    # Two places are new: of the input and of the result.
    assert taken[3] - taken[1] == 2 * 512


def test_threads_that_call_at_once_get_their_own_results(fake: FakeDriver) -> None:
    graph = graph_on(fake)
    for _ in range(3):
        graph(array(0.0))
    wrong: list[float] = []

    def call(number: int) -> None:
        for _ in range(10):
            result = first(graph(array(float(number))))
            if result != number + DEPTH:
                wrong.append(result)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
