"""Profiles and checks of models on devices: rows add up to the call by the device's clock, and kernels are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hidet
from hidet.opencl import devices
from hidet.report import check_accuracy


class Block(nn.Module):
    """Attention and a perceptron, as a transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(256, 8, batch_first=True)
        self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, t, 256]"""
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Convolutions(nn.Module):
    """Two convolutions with a pooling between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 64, 7, 2, 3), nn.Conv2d(64, 128, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 3, h, w]"""
        return torch.relu(self.second(torch.max_pool2d(torch.relu(self.first(x)), 3, 2, 1)))


class Perceptron(nn.Module):
    """Layers one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 1024]"""
        return torch.relu(self.layers(x))


CASES: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (Block, (8, 256, 256)),
    (Convolutions, (8, 3, 224, 224)),
    (Perceptron, (512, 1024)),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("build", "shape"), CASES, ids=[build.__name__ for build, _ in CASES])
def test_rows_add_up_to_the_call_on_a_gpu(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = build().eval().cuda(), torch.randn(*shape, device="cuda")
    compiled = hidet.compile(model, (x,))
    found = compiled.profile(x, seconds=2.0)
    print(found)
    assert all(row.seconds > 0 and row.line for row in found.rows)
    assert 0.97 <= found.coverage <= 1.03


@pytest.mark.gpu
def test_kernels_of_a_gpu_are_compared_with_float64() -> None:
    torch.manual_seed(0)
    model, x = Block().eval().cuda(), torch.randn(2, 32, 256, device="cuda")
    found = check_accuracy(hidet.compile(model, (x,)), x)
    assert found.is_right, str(found)
    assert all(row.own is not None for row in found.rows)


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> Iterator[devices.Device]:
    """An OpenCL device as if its kernels did not read the host's memory."""
    pytest.importorskip("pyopencl")
    if not devices.devices():
        pytest.skip("there is no OpenCL platform")
    device = replace(devices.find_device(None), has_system_svm=False)
    monkeypatch.setattr(devices, "devices", lambda: (device,))
    yield device


@pytest.mark.thorough
def test_a_device_with_memory_of_its_own_is_profiled_and_checked(distant: Any) -> None:
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(1, 8, 256)
    compiled = hidet.compile(model, (x,), target="opencl")
    array = x.numpy()
    found = compiled.profile(array, seconds=0.1)
    assert found.seconds > 0 and all(row.seconds > 0 and row.runs == 1 for row in found.rows)
    assert check_accuracy(compiled, array).is_right
    np.testing.assert_array_equal(array, x.numpy())
