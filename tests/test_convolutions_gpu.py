"""Convolutions and split products on a GPU, against torch in f64. Run by `pytest -m gpu`."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from hidet.torch.backend import compile_fx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class TimeStep(nn.Module):
    """The first half of a diffusion model's residual block: a number is added for each image and filter."""

    def __init__(self, channels: int, filters: int, step: int = 1) -> None:
        super().__init__()
        self.norm, self.time = nn.GroupNorm(32, channels), nn.Linear(channels, filters)
        self.conv = nn.Conv2d(channels, filters, 3, step, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        y: torch.Tensor = self.conv(nn.functional.silu(self.norm(x)))
        return y + self.time(x.mean((2, 3)))[:, :, None, None]


CONVOLUTIONS = {
    "three by three": (lambda: nn.Conv2d(64, 96, 3, padding=1), (2, 64, 19, 23)),
    "strided": (lambda: nn.Conv2d(32, 64, 3, stride=2, padding=1), (3, 32, 28, 28)),
    "one pixel, strided": (lambda: nn.Conv2d(64, 128, 1, stride=2), (2, 64, 14, 14)),
    "one pixel": (lambda: nn.Conv2d(256, 64, 1), (2, 256, 7, 9)),
    "dilated": (lambda: nn.Conv2d(24, 40, (3, 2), dilation=2, padding=2), (1, 24, 17, 15)),
    "colours": (lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3), (2, 3, 64, 64)),
    "odd channels": (lambda: nn.Conv2d(13, 10, 5, padding=2), (2, 13, 11, 12)),
    "groups": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=4), (2, 64, 10, 10)),
    "long sums": (lambda: nn.Conv2d(512, 512, 3, padding=1), (1, 512, 7, 7)),
    "many pixels": (lambda: nn.Conv2d(128, 128, 3, padding=1), (64, 128, 28, 28)),
    "along one axis": (lambda: nn.Conv1d(16, 24, 5, padding=2), (2, 16, 50)),
    "in space": (lambda: nn.Conv3d(8, 16, 3, padding=1), (1, 8, 6, 7, 8)),
    "few filters": (lambda: nn.Conv2d(128, 4, 3, padding=1), (2, 128, 33, 31)),
    "a time step": (lambda: TimeStep(64, 96), (3, 64, 19, 23)),
    "a time step, strided": (lambda: TimeStep(320, 320, 2), (2, 320, 64, 64)),
    "a time step, many channels": (lambda: TimeStep(960, 320), (2, 960, 64, 64)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("memory", ["channels first", "channels last"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_as_exact_as_eager(name: str, memory: str, dtype: torch.dtype) -> None:
    make, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    layer = nn.Sequential(make(), nn.ReLU()).cuda()
    x = torch.randn(shape, device="cuda")
    if memory == "channels last" and len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    check(layer, x, dtype)


FIRST_LAYERS = {
    "seven by seven": lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3),
    "three by three": lambda: nn.Conv2d(3, 32, 3, stride=2, padding=1),
    "three by three, without padding": lambda: nn.Conv2d(3, 32, 3, stride=2),
    "one colour": lambda: nn.Conv2d(1, 96, 5, stride=2, padding=2),
    "all taps": lambda: nn.Conv2d(4, 24, 8, stride=4, padding=2),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [(2, 224, 224), (5, 61, 70), (33, 97, 131)])
@pytest.mark.parametrize("name", FIRST_LAYERS)
def test_filters_of_a_first_layer_see_no_pixel_beyond_theirs(
    name: str, size: tuple[int, int, int], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    layer = FIRST_LAYERS[name]().cuda().to(dtype)
    images, height, width = size
    x = torch.randn(images, layer.in_channels, height, width, device="cuda", dtype=dtype)
    # A zero of a filter that is too long would make NaN of these.
    x[0, 0, height // 2, width // 2 :: 9] = torch.inf
    x[-1, -1, :: height // 3, 5] = torch.nan
    torch._dynamo.reset()
    with torch.no_grad():
        found, expected = torch.compile(layer, backend="hidet")(x), layer.double()(x.double())
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1000, 2048), (40, 24, 4096), (196, 256, 2304), (33, 77, 1111)])
def test_long_products_of_few_rows_are_as_exact_as_eager(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(nn.Linear(k, n).cuda(), torch.randn(m, k, device="cuda"), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_products_may_have_millions_of_rows(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(nn.Linear(12, 8).cuda(), torch.randn(4_500_000, 12, device="cuda"), dtype)


def test_split_products_give_the_same_bits_every_time() -> None:
    layer = nn.Conv2d(512, 512, 3, padding=1).cuda().half()
    x = torch.randn(1, 512, 7, 7, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        compiled = torch.compile(layer, backend=compile_fx)
        first = compiled(x)
        assert all(torch.equal(compiled(x), first) for _ in range(20))


def check(layer: nn.Module, x: torch.Tensor, dtype: torch.dtype) -> None:
    """Errors against f64 are at most twice those of eager on average, and four times at most, but for a unit each."""
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        own, given = layer.to(dtype), x.to(dtype)
        eager = own(given).double()
        torch._dynamo.reset()
        ours = torch.compile(own, backend=compile_fx, dynamic=False)(given).double()
        exact = own.double()(given.double())
    unit = torch.finfo(dtype).eps / 2

    def errors(result: torch.Tensor) -> tuple[float, float]:
        apart = result - exact
        mean = apart.square().mean().sqrt() / exact.square().mean().sqrt()
        return mean.item(), (apart.abs().max() / exact.abs().max()).item()

    (mean, most), (eager_mean, eager_most) = errors(ours), errors(eager)
    assert mean <= 2 * eager_mean + unit
    assert most <= 4 * eager_most + 4 * unit


class Residual(nn.Module):
    """The first layers of a residual network: strides, a norm, pooling and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.pool = (
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.MaxPool2d(3, 2, 1),
        )
        self.inner, self.inner_norm = nn.Conv2d(64, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        self.strided, self.last = nn.Conv2d(64, 128, 1, 2), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to ten numbers each."""
        x = self.pool(self.norm(self.stem(x)).relu())
        x = self.strided((x + self.inner_norm(self.inner(x))).relu())
        scores: torch.Tensor = self.last(x.mean((2, 3)))
        return scores


def apart(ours: torch.Tensor, right: torch.Tensor) -> float:
    """The distance of a result from the right one, relative to the size of that."""
    return float((ours.double() - right).norm() / right.norm())


def test_a_training_step_of_a_residual_network_is_as_exact_as_eager() -> None:
    """defects.md G2."""
    torch.manual_seed(0)
    model = Residual().cuda()
    x, chosen = torch.randn(8, 3, 64, 64, device="cuda"), torch.arange(8, device="cuda")

    def gradients(call: Callable[..., torch.Tensor], module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        loss = nn.functional.cross_entropy(call(x).to(x.dtype), chosen)
        return [loss.detach(), *torch.autograd.grad(loss, list(module.parameters()))]

    exact_model = copy.deepcopy(model).double()
    exact = gradients(exact_model, exact_model, x.double())
    compiled = torch.compile(model, backend="hidet", options={"strict": True})
    with torch.autocast("cuda", torch.bfloat16):
        theirs, ours = gradients(model, model, x), gradients(compiled, model, x)
    for name, right, eager, made in zip(
        ["loss", *(name for name, _ in model.named_parameters())], exact, theirs, ours, strict=True
    ):
        assert apart(made, right) <= 2 * apart(eager, right) + torch.finfo(torch.bfloat16).eps, name


def test_convolutions_of_symbolic_images_are_as_exact_as_eager() -> None:
    """defects.md G3."""
    torch.manual_seed(0)
    model = Residual().cuda().eval()
    exact, half = copy.deepcopy(model).double(), model.half()
    compiled = torch.compile(half, backend="hidet", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for batch, height, width in ((4, 64, 64), (100, 64, 48), (7, 96, 80)):
            x = torch.randn(batch, 3, height, width, device="cuda").half()
            right, eager = exact(x.double()), half(x)
            assert apart(compiled(x), right) <= 2 * apart(eager, right) + torch.finfo(torch.float16).eps
