"""Kernels, graphs and models on the second GPU, and on both in turn. Run by `pytest -m gpu` where there are two."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest
import torch

import hidet
import hidet.torch
from hidet.errors import LaunchError
from hidet.lang import attrs, f32, u32
from hidet.lang.cuda import blockIdx, sync_grid, threadIdx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

DEVICES = ("cuda:0", "cuda:1")
IN_TURN = ("cuda:1", "cuda:0", "cuda:1", "cuda:1", "cuda:0")
N = hidet.dims.symbol("n")


def axpy(target="auto"):
    with hidet.script_module() as module:

        @hidet.script
        def add(x: f32[N], y: f32[N], factor: f32):
            attrs.cuda.grid_dim = (N + 127) // 128
            attrs.cuda.block_dim = 128
            i = blockIdx.x * 128 + threadIdx.x
            if i < N:
                y[i] = y[i] + factor * x[i]

    return module.build(target)


class Layers(torch.nn.Module):
    """Some layers with weights, softmax and a residual."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(x + torch.relu(layer(x)))
        return torch.softmax(x, -1)


@pytest.mark.parametrize("current", [0, 1])
def test_a_kernel_runs_where_its_tensors_are(current):
    add = axpy()
    with torch.cuda.device(current):
        for device in IN_TURN:
            x, y = torch.randn(1000, device=device), torch.randn(1000, device=device)
            expected = y + 3 * x
            add(x, y, 3.0)
            torch.testing.assert_close(y, expected)
        assert torch.cuda.current_device() == current


def test_a_kernel_of_tensors_alone_is_called_quickly_on_both():
    with hidet.script_module() as module:

        @hidet.script
        def copy_all(x: f32[N], y: f32[N]):
            attrs.cuda.grid_dim = (N + 127) // 128
            attrs.cuda.block_dim = 128
            i = blockIdx.x * 128 + threadIdx.x
            if i < N:
                y[i] = x[i]

    function = module.build()
    for device in DEVICES:
        x, y = torch.randn(1000, device=device), torch.zeros(1000, device=device)
        function(x, y)
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(200):
            function(x, y)
        host = (time.perf_counter() - start) / 200
        torch.testing.assert_close(x, y)
        print(f"{device}: {host * 1e6:.2f} us a call")


def test_streams_of_both_devices_are_used():
    add = axpy()
    for device in DEVICES:
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            x, y = torch.ones(1 << 20, device=device), torch.zeros(1 << 20, device=device)
            for _ in range(8):
                add(x, y, 1.0)
        stream.synchronize()
        assert (y == 8).all()


def test_tensors_of_several_devices_are_refused_and_later_calls_work():
    add = axpy()
    here, there = (torch.ones(8, device=device) for device in DEVICES)
    with pytest.raises(LaunchError, match="argument y of launch is on cuda:1, expected a tensor on cuda:0"):
        add(here, there, 1.0)
    with pytest.raises(LaunchError, match="argument x of launch is on cuda:0, expected a tensor on cuda:1"):
        axpy("cuda:1")(here, here, 1.0)
    add(there, there, 1.0)
    assert (there == 2).all()


def test_blocks_of_the_second_device_wait_for_each_other():
    with hidet.script_module() as module:

        @hidet.script
        def turn(x: f32[64, 128], y: f32[64, 128], arrived: u32[1]):
            attrs.cuda.grid_dim = 64
            attrs.cuda.block_dim = 128
            attrs.cuda.cooperative = True
            for _step in range(20):
                y[blockIdx.x, threadIdx.x] = x[63 - blockIdx.x, threadIdx.x] + 1.0
                sync_grid(~arrived[0])
                x[blockIdx.x, threadIdx.x] = y[blockIdx.x, threadIdx.x]
                sync_grid(~arrived[0])

    build = module.build()
    for device in IN_TURN:
        x = torch.randn(64, 128, device=device)
        expected = x + 20
        build(x, torch.empty_like(x), torch.zeros(1, dtype=torch.uint32, device=device))
        torch.testing.assert_close(x, expected)


def test_arrays_of_hidet_are_made_and_used_on_both():
    add = axpy()
    for device in DEVICES:
        x, y = hidet.randn([100], device=device), hidet.ones([100], device=device)
        add(x, y, 2.0)
        np.testing.assert_allclose(y.numpy(), 1 + 2 * x.numpy(), rtol=1e-6)
        assert (y.device, y.torch().device) == (device, torch.device(device))


def test_compiled_graphs_have_weights_and_memory_on_their_device():
    model = Layers().eval()
    graphs = {
        device: hidet.compile(copy.deepcopy(model).to(device), [torch.zeros(8, 64, device=device)], target=device)
        for device in DEVICES
    }
    for device in IN_TURN:
        x = torch.randn(8, 64, device=device)
        torch.testing.assert_close(graphs[device](x).cpu(), model(x.cpu()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_one_compiled_model_serves_the_device_it_is_on(mode):
    torch._dynamo.reset()
    model = Layers().eval()
    compiled = {
        device: torch.compile(copy.deepcopy(model).to(device), backend="hidet", mode=mode) for device in DEVICES
    }
    with torch.no_grad():
        for turn in range(4):  # so that calls are captured and replayed
            for device in IN_TURN:
                x = torch.randn(8, 64, device=device)
                found = compiled[device](x)
                assert found.device == torch.device(device)
                torch.testing.assert_close(found.cpu(), model(x.cpu()), rtol=1e-4, atol=1e-5, msg=f"turn {turn}")


def test_a_model_that_moves_is_compiled_for_its_new_device():
    torch._dynamo.reset()
    model = Layers().eval().to("cuda:0")
    compiled = torch.compile(model, backend="hidet")
    with torch.no_grad():
        for device in IN_TURN:
            model.to(device)
            x = torch.randn(8, 64, device=device)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
def test_a_graph_across_devices_is_compiled_in_parts():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: (x.relu() + y.exp().to("cuda:0") * 2, y.sin()), backend="hidet")
    for _ in range(4):
        x, y = torch.randn(64, device="cuda:0"), torch.randn(64, device="cuda:1")
        torch.testing.assert_close(compiled(x, y), (x.relu() + y.exp().to("cuda:0") * 2, y.sin()))


def test_an_operator_of_a_script_runs_on_both():
    operator = hidet.torch.register_op("two_devices::axpy", {"cuda": axpy_script()}, outputs=["z"])
    for device in IN_TURN:
        x, y = torch.randn(64, device=device), torch.randn(64, device=device)
        torch.testing.assert_close(operator(x, y), x + 2 * y)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(operator, backend="hidet")(x, y), x + 2 * y)


def axpy_script():
    @hidet.script
    def axpy_kernel(x: f32[N], y: f32[N], z: f32[N]):
        attrs.cuda.grid_dim = (N + 127) // 128
        attrs.cuda.block_dim = 128
        i = blockIdx.x * 128 + threadIdx.x
        if i < N:
            z[i] = x[i] + 2.0 * y[i]

    return axpy_kernel
