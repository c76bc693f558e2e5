"""A device with memory of its own, which this machine's is taken for: coarse-grained SVM, copied in and out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.errors import DeviceOutOfMemory, LaunchError
from hidet.gpu.lang import blockIdx, threadIdx
from hidet.graph.parser import parse_graph
from hidet.lang import attrs, f32, i32
from hidet.opencl import asarray, devices, release_memory
from hidet.opencl.memory import Block, SvmMemory
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_graph, random_inputs

UPDATE = (
    "graph g(%x: f32[3, 40], %total: f32[40]):\n  %0: f32[40] = sum(%x, axes=[0])\n  %1: f32[40] = add(%0, %total)\n"
    "  %2: f32[3, 40] = softmax(%x, axis=1)\n  return %2, %1\n  mutates 1 <- 1\n"
)


@pytest.fixture(autouse=True)
def distant(monkeypatch: pytest.MonkeyPatch) -> Iterator[devices.Device]:
    """The machine's device as if its kernels did not read the host's memory."""
    device = replace(devices.find_device(None), has_system_svm=False)
    monkeypatch.setattr(devices, "devices", lambda: (device,))
    yield device


def test_arrays_of_the_host_are_copied_in_and_out_and_what_is_overwritten_back(tmp_path: Path) -> None:
    ctx = make_context("opencl")
    made = compile_graph(parse_graph(UPDATE, ctx.registry.operators), ctx)
    made.save(tmp_path / "update.hidet")
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    powers = np.exp(x)
    for graph in (made, hidet.load(tmp_path / "update.hidet")):
        total = np.ones(40, np.float32)
        for calls in range(1, 4):
            np.testing.assert_allclose(graph(x, total), powers / powers.sum(1, keepdims=True), rtol=1e-5)
            np.testing.assert_allclose(total, 1 + calls * x.sum(0), rtol=1e-4, atol=1e-5)
    assert made.captured() == (0, 0)


def test_arrays_of_the_device_stay_there() -> None:
    ctx = make_context("opencl")
    made = compile_graph(parse_graph(UPDATE, ctx.registry.operators), ctx)
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    total = asarray(np.zeros(40, np.float32))
    result = made(asarray(x), total)
    assert result.shape == (3, 40) and isinstance(result, type(total))
    np.testing.assert_allclose(result.numpy().sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(total.numpy(), x.sum(0), rtol=1e-4, atol=1e-5)
    with pytest.raises(LaunchError, match=r"opencl:0|host"):
        made(asarray(x), np.zeros(40, np.float32))


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.thorough(every=2)
def test_random_graphs_agree_with_the_interpreter(seed: int) -> None:
    ctx = make_context("opencl", {"verify": True})
    graph = random_graph(seed, ctx.registry.operators, mutating=False)
    arguments = random_inputs(graph, seed)
    results = compile_graph(graph, ctx)(*arguments)
    found = results if isinstance(results, tuple) else (results,)
    for ours, right in zip(found, interpret(graph, arguments), strict=True):
        peak = max(1.0, float(np.abs(right).max(initial=0)))
        np.testing.assert_allclose(ours, right, rtol=1e-6, atol=1e-6 * peak)


def test_tensors_of_torch_stay_on_the_host_and_are_copied() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("hidet.torch")
    first, second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)
    model = torch.nn.Sequential(first, torch.nn.Tanh(), second).eval()
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    for options in ({}, {"freeze": True}):
        torch.compiler.reset()
        compiled = torch.compile(model, backend="hidet", options={"target": "opencl", **options})
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
            second.bias.data.add_(1)
            change = (compiled(x) - model(x)).abs().max().item()
        assert change == pytest.approx(1.0 if options else 0.0, abs=1e-5), "parameters are copied in every call"
    loss = torch.compile(first, backend="hidet", options={"target": "opencl"})(x).square().sum()
    loss.backward()
    torch.testing.assert_close(first.bias.grad, 2 * first(x).sum(0))
    whole = hidet.compile(model, (x,), target="opencl")
    assert isinstance(whole(x), torch.Tensor) and isinstance(whole(x.numpy()), np.ndarray)


def test_what_torch_overwrites_between_other_elements_is_copied_back_alone() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("hidet.torch")

    def update(x, y):  # type: ignore[no-untyped-def]
        x.add_(1.0)
        y.mul_(x.sum())

    whole = torch.ones(8)
    compiled = torch.compile(update, backend="hidet", options={"target": "opencl"})
    compiled(whole[::2], whole[1::2])
    assert whole.tolist() == [2.0, 8.0] * 4


def test_a_graph_that_torch_has_to_run_in_part_runs_in_torch_and_says_so() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("hidet.torch")
    from hidet.errors import FallbackWarning

    compiled = torch.compile(torch.linalg.svdvals, backend="hidet", options={"target": "opencl"})
    with pytest.warns(FallbackWarning, match="has no tensors on opencl:0"):
        found = compiled(torch.eye(3))
    torch.testing.assert_close(found, torch.ones(3))


def test_scripts_take_arrays_of_the_device_and_tell_of_failed_assertions() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def double(x: f32[64], limit: i32):
            attrs.gpu.grid_dim = 2
            attrs.gpu.block_dim = 32
            i = blockIdx.x * 32 + threadIdx.x
            assert i < limit, "too far"
            x[i] = x[i] * 2.0

    built = module.build("opencl")
    x = asarray(np.arange(64, dtype=np.float32))
    built(x, 64)
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(64))
    with pytest.raises(LaunchError, match="in double: assertion failed: too far"):
        built(x, 63)


def test_memory_tells_of_the_device(distant: devices.Device) -> None:
    memory = SvmMemory(distant)
    assert memory.name == "opencl:0" and memory.cache_bytes > 0 and distant.name in memory.description
    array = np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2]
    placed = memory.place(array)
    np.testing.assert_array_equal(placed.numpy(), array)
    assert memory.in_stream(0).read(placed.address, dtypes.i64, 1) == [0]
    memory.in_stream(0).write(placed.address, -5)
    assert placed.numpy()[0, 0] == -5
    assert memory.time(lambda stream: placed.numpy()) >= 0
    with pytest.raises(BufferError, match="is shared with n"):
        np.from_dlpack(placed)
    with pytest.raises(DeviceOutOfMemory, match="cannot be had"):
        Block(distant, 1 << 50)


def test_memory_that_was_freed_is_used_again_until_it_is_released(distant: devices.Device) -> None:
    first = Block(distant, 1000)
    address = first.address
    del first
    again = Block(distant, 900)
    assert again.address == address, "sizes are rounded up to 512 bytes"
    assert Block(distant, 1000).address != address
    release_memory()
    assert again.address == address


def test_memory_is_filled_by_the_device(distant: devices.Device) -> None:
    array = asarray(np.zeros(100, np.uint8))
    SvmMemory(distant).fill(array.address + 10, 50, 0xFF)
    assert array.numpy().tolist() == [0] * 10 + [255] * 50 + [0] * 40


def test_calls_are_timed_on_a_device_that_records_nothing() -> None:
    pytest.importorskip("hidet.tuning")
    from hidet.tuning.device_calls import DeviceInputs
    from hidet.tuning.loaded import Loader
    from hidet.tuning.runner import Runner
    from hidet.tuning.search import default_trial
    from hidet.tuning.subjects import Subject, subject_of, tasks_of

    ctx = make_context("opencl", {"tune.store": "off"})
    (steps,) = tasks_of([(parse_graph(SUMS, ctx.registry.operators), ctx)]).values()
    subject = subject_of(steps[0], 1, ctx, 1, {}, 0.0)
    assert isinstance(subject, Subject)
    memory = ctx.target.memory
    assert memory is not None
    outcome = Runner(Loader(ctx), lambda task, inputs: DeviceInputs(memory, task, inputs)).run(default_trial(subject))
    assert outcome.failure == "" and min(outcome.default_seconds) > 0


SUMS = "graph g(%x: f32[64, 4000]):\n  %0: f32[64] = sum(%x, axes=[1])\n  return %0\n"
