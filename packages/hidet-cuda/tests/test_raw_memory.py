"""Memory by its address, and marks for profilers."""

from __future__ import annotations

import ctypes

import pytest

import hidet.cuda
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.errors import DeviceOutOfMemory


def test_bytes_are_taken_filled_copied_and_given_back(fake: FakeDriver) -> None:
    address = hidet.cuda.malloc(16)
    assert fake.blocks == {address: 16}
    hidet.cuda.memset(address, 7, 16)
    host = (ctypes.c_ubyte * 16)()
    hidet.cuda.memcpy(ctypes.addressof(host), address, 8)
    assert list(host) == [7] * 8 + [0] * 8
    hidet.cuda.free(address)
    assert fake.blocks == {}


def test_nothing_is_done_about_no_bytes(fake: FakeDriver) -> None:
    assert hidet.cuda.malloc(0) == 0
    hidet.cuda.free(0)
    hidet.cuda.memset(0, 0, 0)
    hidet.cuda.memcpy(0, 0, 0)
    assert fake.blocks == {}


def test_too_many_bytes_are_refused(fake: FakeDriver) -> None:
    with pytest.raises(DeviceOutOfMemory):
        hidet.cuda.malloc(1 << 40)


def test_profilers_are_told_when_to_begin_and_to_end(fake: FakeDriver) -> None:
    hidet.cuda.profiler_start()
    hidet.cuda.profiler_stop()
    assert fake.log[-2:] == [("profiler starts",), ("profiler stops",)]
