"""One compiled function for every size, on a GPU: as exact as eager at each, compiled once. Run by `pytest -m gpu`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hidet.torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

ROWS = (2, 3, 15, 16, 17, 64, 65, 129, 300, 777, 2049, 20000, 140000)


def normal(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to("cuda", dtype)


def check(f: Callable[..., Tensor], calls: list[tuple[Tensor, ...]], axes: tuple[int, ...]) -> None:
    """A function compiled with symbolic `axes` of its first arguments is as exact as eager for all calls, whose sizes
    it has not seen, and compiled once.

    What overwrites the memory of the last result with NaN shows what is not written.
    """
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="hidet", options={"strict": True})
    with hidet.torch.collect_reports() as reports, torch.no_grad():
        for inputs in calls:
            for given in inputs:
                for axis in axes:
                    torch._dynamo.mark_dynamic(given, axis)
            exact, eager = f(*(x.double() for x in inputs)), f(*inputs)
            compiled(*inputs)
            torch.full_like(eager, float("nan"))
            result = compiled(*inputs)
            unit, spread = torch.finfo(result.dtype).eps / 2, exact.square().mean().sqrt()
            errors = [((y.double() - exact).square().mean().sqrt() / spread).item() for y in (result, eager)]
            assert errors[0] <= 2 * errors[1] + unit, tuple(inputs[0].shape)
    assert len(reports) == 1


@pytest.mark.parametrize(("n", "k"), [(768, 768), (72, 3072), (4096, 264), (1000, 2048)])
def test_layers_of_any_number_of_rows_are_as_exact_as_eager(n: int, k: int) -> None:
    w, b = normal(n, k) / k**0.5, normal(n)
    of_type = {dtype: (w.to(dtype), b.to(dtype)) for dtype in (torch.float16, torch.float64)}
    check(lambda x: F.relu(F.linear(x, *of_type[x.dtype])), [(normal(m, k),) for m in ROWS], (0,))


@pytest.mark.parametrize(("taps", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2)])
def test_convolutions_of_images_of_any_size_are_as_exact_as_eager(taps: int, stride: int) -> None:
    w, b = normal(96, 64, taps, taps) / 8 / taps, normal(96)
    of_type = {dtype: (w.to(dtype), b.to(dtype)) for dtype in (torch.float16, torch.float64)}
    images = [normal(n, 64, h, w) for n, h, w in ((2, 14, 14), (3, 7, 9), (16, 28, 30), (100, 56, 56), (2, 130, 3))]
    check(
        lambda x: F.relu(F.conv2d(x, *of_type[x.dtype], stride=stride, padding=taps // 2)),
        [(x,) for x in images],
        (0, 2, 3),
    )


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
def test_attention_of_any_size_is_as_exact_as_eager(depth: int, is_causal: bool) -> None:
    sizes = ((2, 7), (2, 16), (3, 77), (2, 300), (4, 384), (16, 128), (32, 512), (2, 2000))
    calls = [tuple(normal(b, 12, s, depth) for _ in range(3)) for b, s in sizes]
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal), calls, (0, 2))


def test_rows_of_any_number_are_as_exact_as_eager() -> None:
    check(lambda x: F.layer_norm(x, (768,)), [(normal(m, 768),) for m in ROWS], (0,))


def test_elements_of_any_number_are_as_exact_as_eager() -> None:
    check(lambda x: F.pad(F.gelu(x), (0, 0, 0, 1)), [(normal(m, 3, 40),) for m in ROWS], (0,))
