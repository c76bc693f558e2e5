"""Arrays of hidet on a device: their memory, what they share with other libraries, and graphs that take them."""

from __future__ import annotations

import ctypes
import gc
import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hidet
from hidet.cache import open_cache
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, Options, make_context
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver, Launch
from hidet.errors import DeviceOutOfMemory, DTypeError, LaunchError
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompiledGraph


def test_an_array_goes_to_the_device_and_back(fake: FakeDriver) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = hidet.cuda.asarray(values)
    assert (array.shape, array.strides, array.device) == ((3, 4), (4, 1), "cuda:0")
    assert repr(array) == "DeviceArray(shape=(3, 4), dtype='float32', device='cuda:0')"
    np.testing.assert_array_equal(array.numpy(), values)
    assert array.data_ptr() != values.ctypes.data


def test_numpy_does_not_take_an_array_for_an_object(fake: FakeDriver) -> None:
    array = hidet.cuda.zeros(3)
    with pytest.raises(TypeError, match="an array on cuda:0 is not in memory of the host"):
        np.asarray(array)
    registry = load_registry()
    ctx = make_context("cpu", {"cache": False})
    on_host = compile_graph(
        parse_graph("graph g(%x: f32[3]):\n  %0: f32[3] = relu(%x)\n  return %0\n", registry.operators), ctx
    )
    with pytest.raises(
        DTypeError, match=r"argument 0 \(x\): DeviceArray cannot be read as an array: .*numpy copies it"
    ):
        on_host(array)


@pytest.mark.parametrize("value", [3.5, [1, 2], np.zeros((0, 3), np.int32), np.float16(1)])
def test_numbers_lists_and_empty_arrays_go_too(fake: FakeDriver, value: Any) -> None:
    array = hidet.cuda.asarray(value)
    np.testing.assert_array_equal(array.numpy(), value)
    assert array.numpy().dtype == np.asarray(value).dtype


def test_zeros_are_zero(fake: FakeDriver) -> None:
    np.testing.assert_array_equal(hidet.cuda.zeros((2, 3), "bfloat16").numpy(), np.zeros((2, 3)))


def test_memory_goes_back_in_the_stream_it_came_in(fake: FakeDriver) -> None:
    chosen = hidet.cuda.Stream()
    with hidet.cuda.stream(chosen):
        array = hidet.cuda.empty(1000)
    del array
    gc.collect()
    assert fake.log == [("allocate", 4096, chosen.handle), ("free", 4096, chosen.handle)]


def test_memory_that_another_stream_uses_waits_for_it(fake: FakeDriver) -> None:
    array = hidet.cuda.empty(8)
    other = hidet.cuda.Stream()
    array.owner.used_in(other)
    del array
    gc.collect()
    recorded, waiting, freed = fake.log[1:]
    assert recorded == ("records", waiting[2], other.handle)
    assert waiting[:2] == ("waits", 0)
    assert freed == ("free", 512, 0)


def test_an_out_of_memory_error_states_sizes_and_is_no_end(fake: FakeDriver) -> None:
    fake.free_bytes = 3 << 20
    with pytest.raises(DeviceOutOfMemory, match=r"cannot allocate 16.0 MiB on cuda:0: 3.0 MiB of 3.0 MiB are free"):
        hidet.cuda.empty(4 << 20)
    # What the driver had found before it gave up goes back.
    assert fake.log[-1] == ("trim", 0)
    with pytest.raises(MemoryError):
        hidet.cuda.empty(4 << 20)
    hidet.cuda.empty(1 << 10)


def test_the_pool_reports_what_it_holds_and_gives_it_back(fake: FakeDriver) -> None:
    array = hidet.cuda.empty(1000)
    assert hidet.cuda.memory_statistics().used == 4096
    hidet.cuda.empty_cache()
    assert ("trim", 0) in fake.log
    assert array.address


class Foreign:
    """An array of another library that has DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.asked: list[Any] = []

    def __dlpack__(self, stream: int | None = None) -> object:
        self.asked.append(stream)
        return self.array.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device


@pytest.mark.parametrize(
    "dtype", [np.float32, np.int64, np.uint8, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_dlpack_shares_memory_both_ways(fake: FakeDriver, dtype: Any) -> None:
    array = hidet.cuda.asarray(np.arange(6).reshape(2, 3).astype(dtype))
    foreign = Foreign(array)
    taken = hidet.cuda.asarray(foreign)
    assert (taken.address, taken.shape, taken.strides, taken.dtype) == (
        array.address,
        array.shape,
        array.strides,
        array.dtype,
    )
    # The protocol has no 0: 1 is the default stream.
    assert foreign.asked == [1]


def test_memory_lives_as_long_as_the_library_that_took_it_needs_it(fake: FakeDriver) -> None:
    array = hidet.cuda.empty(8)
    taken = hidet.cuda.asarray(Foreign(array))
    del array
    gc.collect()
    assert len(fake.blocks) == 1
    del taken
    gc.collect()
    assert fake.blocks == {}


def test_a_capsule_that_nobody_takes_keeps_nothing(fake: FakeDriver) -> None:
    array = hidet.cuda.empty(8)
    capsule = array.__dlpack__(stream=None)
    del array
    gc.collect()
    assert len(fake.blocks) == 1
    del capsule
    gc.collect()
    assert fake.blocks == {}


def test_the_consumers_stream_waits_for_the_arrays_own(fake: FakeDriver) -> None:
    chosen = hidet.cuda.Stream()
    with hidet.cuda.stream(chosen):
        array = hidet.cuda.empty(8)
        capsule = array.__dlpack__(stream=0x99)
    recorded, waiting = fake.log[1:]
    assert (recorded[0], recorded[2], waiting[:2]) == ("records", chosen.handle, ("waits", 0x99))
    before = len(fake.log)
    array.__dlpack__(stream=-1)
    assert len(fake.log) == before
    del capsule


class Interface:
    """An array of another library that has the CUDA array interface alone."""

    def __init__(self, array: Any, **changed: object) -> None:
        self.array = array
        self.changed = changed

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, **self.changed}


def test_the_cuda_array_interface_shares_memory_both_ways(fake: FakeDriver) -> None:
    array = hidet.cuda.asarray(np.ones((2, 3), np.float16))
    taken = hidet.cuda.asarray(Interface(array))
    assert (taken.address, taken.shape, taken.strides, taken.dtype) == (array.address, (2, 3), (3, 1), array.dtype)
    assert hidet.cuda.asarray(Interface(array, strides=None)).strides == (3, 1)
    assert not hidet.cuda.asarray(Interface(array, data=(array.address, True))).is_writable
    with pytest.raises(LaunchError, match="has a mask"):
        hidet.cuda.asarray(Interface(array, mask=array))


def test_work_of_the_other_librarys_stream_is_waited_for(fake: FakeDriver) -> None:
    array = hidet.cuda.asarray(np.ones(3, np.float32))
    hidet.cuda.asarray(Interface(array, stream=0x55))
    (_, _, producer), (_, waiting, _) = fake.log[-2:]
    assert (producer, waiting) == (0x55, 0)


def test_bf16_has_no_name_in_the_cuda_array_interface(fake: FakeDriver) -> None:
    assert not hasattr(hidet.cuda.empty(3, "bfloat16"), "__cuda_array_interface__")


# --- graphs --------------------------------------------------------------------------------------------------------

RELU = """
symbol n: 0..1000
graph g(%x: f32[n, 4]):
  %0: f32[n, 4] = relu(%x)
  return %0
"""


def relu_on(fake: FakeDriver, text: str = RELU) -> CompiledGraph:
    """A graph whose kernel, a fake one, does what it should."""

    def run(launch: Launch) -> None:
        source, target = launch.word(0), launch.word(1)
        nbytes = fake.blocks.get(source) or fake.blocks[target]
        values = np.ctypeslib.as_array((ctypes.c_float * (nbytes // 4)).from_address(source))
        np.ctypeslib.as_array((ctypes.c_float * (nbytes // 4)).from_address(target))[:] = np.maximum(values, 0)

    fake.on_launch = run
    target = CudaTarget("sm_80")
    registry = load_registry()
    ctx = CompileContext(
        target=target, registry=registry, options=Options(cache=False), cache=open_cache(enabled=False)
    )
    return compile_graph(parse_graph(textwrap.dedent(text), registry.operators), ctx)


def test_numpy_arrays_are_copied_to_the_device_and_results_back(fake: FakeDriver) -> None:
    graph = relu_on(fake)
    for rows in (3, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        result = graph(x)
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, np.maximum(x, 0))


def test_what_a_graph_overwrites_is_copied_back_into_arrays_of_the_host(fake: FakeDriver) -> None:
    text = "graph g(%x: f32[2, 4]):\n  %0: f32[2, 4] = relu(%x)\n  return %0\n  mutates 0 <- 0\n"
    graph = relu_on(fake, text)
    x = np.array([[-1, 2, -3, 4], [5, -6, 7, -8]], np.float32)
    assert graph(x) == ()
    np.testing.assert_array_equal(x, [[0, 2, 0, 4], [5, 0, 7, 0]])
    x.flags.writeable = False
    with pytest.raises(LaunchError, match=r"argument 0 \(x\) is overwritten by the graph, but it is read-only"):
        graph(x)


def test_arrays_of_the_device_stay_there_and_run_in_the_current_stream(fake: FakeDriver) -> None:
    graph = relu_on(fake)
    x = hidet.cuda.asarray(np.array([[-1, 2, -3, 4]], np.float32))
    chosen = hidet.cuda.Stream()
    with hidet.cuda.stream(chosen):
        result = graph(x)
    assert isinstance(result, hidet.cuda.DeviceArray)
    np.testing.assert_array_equal(result.numpy(), [[0, 2, 0, 4]])
    assert [launch.stream for launch in fake.launches] == [chosen.handle]


def test_arrays_of_other_libraries_are_used_where_they_are(fake: FakeDriver) -> None:
    graph = relu_on(fake)
    x = hidet.cuda.asarray(np.array([[-1, 2, -3, 4]], np.float32))
    seen: list[int] = []
    run = fake.on_launch
    assert run is not None

    def look(launch: Launch) -> None:
        seen.append(launch.word(0))
        run(launch)

    fake.on_launch = look
    for foreign in (Foreign(x), Interface(x)):
        np.testing.assert_array_equal(graph(foreign).numpy(), [[0, 2, 0, 4]])
    assert seen == [x.address, x.address]


def test_results_stay_as_they_are_after_later_calls(fake: FakeDriver) -> None:
    graph = relu_on(fake)
    first = graph(hidet.cuda.asarray(np.full((2, 4), 1, np.float32)))
    second = graph(hidet.cuda.asarray(np.full((2, 4), 2, np.float32)))
    assert first.address != second.address
    np.testing.assert_array_equal(first.numpy(), np.full((2, 4), 1))


def test_an_array_of_another_device_is_refused(fake: FakeDriver) -> None:
    graph = relu_on(fake)
    with pytest.raises(LaunchError, match=r"argument 0 \(x\) is on cuda:1, expected a tensor on cuda:0"):
        graph(hidet.cuda.asarray(np.zeros((2, 4), np.float32), device=1))


def test_host_memory_among_arrays_of_the_device_is_refused(fake: FakeDriver) -> None:
    graph = relu_on(fake, "graph g(%x: f32[4], %y: f32[4]):\n  %0: f32[4] = add(%x, %y)\n  return %0\n")
    with pytest.raises(LaunchError, match=r"argument 1 \(y\): a ndarray is in memory of the host"):
        graph(hidet.cuda.zeros(4), np.zeros(4, np.float32))
