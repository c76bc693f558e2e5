"""Streams, events and devices as users ask for them, on a driver that writes down what it is asked for."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hidet
from hidet.cuda import devices
from hidet.cuda.memory import memory_at
from hidet.cuda.testing.fake_driver import CONTEXT, FakeDriver
from hidet.errors import LaunchError


def test_the_default_stream_is_current_until_another_one_is(fake: FakeDriver) -> None:
    assert hidet.cuda.current_stream().handle == 0
    chosen = hidet.cuda.Stream()
    with hidet.cuda.stream(chosen):
        assert hidet.cuda.current_stream() is chosen
        assert hidet.cuda.current_stream(1).handle == 0
    assert hidet.cuda.current_stream().handle == 0


def test_threads_have_current_streams_of_their_own(fake: FakeDriver) -> None:
    seen: list[int] = []
    with hidet.cuda.stream(hidet.cuda.Stream()):
        thread = threading.Thread(target=lambda: seen.append(hidet.cuda.current_stream(0).handle))
        thread.start()
        thread.join()
    assert seen == [0]


def test_a_stream_waits_for_what_another_one_has_to_do(fake: FakeDriver) -> None:
    first, second = hidet.cuda.Stream(), hidet.cuda.Stream()
    second.wait_stream(first)
    (_, event, stream), (_, waiting, awaited) = fake.log
    assert (stream, waiting) == (first.handle, second.handle)
    assert event == awaited


def test_a_stream_goes_with_its_object_and_a_foreign_one_stays(fake: FakeDriver) -> None:
    handle = hidet.cuda.Stream().handle
    hidet.cuda.ExternalStream(77)
    gc.collect()
    assert fake.log == [("destroy", handle)]


def test_memory_of_a_device_tells_how_long_the_device_works(fake: FakeDriver) -> None:
    memory, streams = memory_at(0), []
    assert memory.time(streams.append) == 1.5e-3
    (stream,) = streams
    assert [entry[0::2] for entry in fake.log if entry[0] == "records"] == [("records", stream)] * 2
    assert (memory.description, memory.cache_bytes) == ("Fake GPU, sm_80, at most 0 MHz, memory at most 0 MHz", 1)


def test_time_passes_between_events_that_keep_time(fake: FakeDriver) -> None:
    start, end = hidet.cuda.Event(timing=True), hidet.cuda.Event(timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) == 1.5
    with pytest.raises(LaunchError, match="timing=True"):
        start.elapsed_time(hidet.cuda.Event())


def test_a_stream_that_is_not_done_is_no_error(fake: FakeDriver) -> None:
    stream = hidet.cuda.Stream()
    assert stream.is_done()
    fake.refused["cuStreamQuery"] = 600
    assert not stream.is_done()


def test_other_libraries_take_a_stream_by_its_protocol(fake: FakeDriver) -> None:
    stream = hidet.cuda.Stream()
    assert stream.__cuda_stream__() == (0, stream.handle)


def test_what_a_device_is(fake: FakeDriver) -> None:
    found = hidet.cuda.properties()
    assert (found.name, found.capability, found.architecture) == ("Fake GPU", (8, 0), "sm_80")
    assert (found.multiprocessors, found.warp_size, found.block_threads) == (108, 32, 1024)
    assert found.block_shared_memory == 166912
    assert hidet.cuda.device_count() == 2
    assert hidet.cuda.available()
    assert hidet.cuda.driver_version() == (13, 0)


def test_a_device_is_current_inside_a_block_and_where_it_is_set(fake: FakeDriver) -> None:
    assert hidet.cuda.current_device() == 0
    with hidet.cuda.device(1):
        assert hidet.cuda.current_device() == 1
        assert hidet.cuda.Stream().device.name == "cuda:1"
    assert fake.context == CONTEXT
    hidet.cuda.set_device(1)
    assert hidet.cuda.current_device() == 1


def test_threads_that_ask_first_at_the_same_time_get_one_device(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = devices.Device

    def made_slowly(*arguments: Any) -> devices.Device:
        time.sleep(0.05)
        return make(*arguments)

    monkeypatch.setattr(devices, "Device", made_slowly)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(devices.device_at, (0, 0))
    assert first is second


def test_an_unknown_device_error_lists_the_known_ones(fake: FakeDriver) -> None:
    with pytest.raises(LaunchError, match="there is no CUDA device 2, only 2 of them, cuda:0 to cuda:1"):
        hidet.cuda.properties(2)
    with pytest.raises(LaunchError, match="no CUDA device -1"):
        hidet.cuda.set_device(-1)
