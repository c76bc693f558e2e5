"""Statistics of numbers that are large beside their deviation, or whose squares no f32 holds."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hidet.torch

RATIOS = [1e1, 1e4, 1e6, -1e6]
SHAPES = [(64, 8), (16, 8, 50), (4, 8, 9, 9)]


def spread(shape: tuple[int, ...], ratio: float) -> torch.Tensor:
    """Numbers of deviation 1 around `ratio`."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + ratio).float()


def assert_as_in_f64(got: torch.Tensor, wide: torch.Tensor) -> None:
    assert (got.double() - wide).abs().max() <= 1e-6 * wide.abs().max()


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def compiled(request: pytest.FixtureRequest) -> tuple[tuple[int, ...], Callable[..., tuple[torch.Tensor, ...]]]:
    shape = request.param
    return shape, torch.compile(norms, backend="hidet", dynamic=False)


def norms(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Everything in torch that normalises by the statistics of the batch itself, and those statistics."""
    plain = F.batch_norm(x, None, None, training=True, eps=1e-9)
    affine, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-9)
    instances = F.instance_norm(x, weight=weight, bias=bias, eps=1e-9) if x.dim() > 2 else x
    return plain, affine, mean, inverse, instances


@pytest.mark.parametrize("ratio", RATIOS)
def test_norms_by_statistics_of_the_batch_keep_their_digits(compiled, ratio: float) -> None:
    """red-team.md goal 5."""
    shape, function = compiled
    x, weight, bias = spread(shape, ratio), torch.linspace(0.5, 2, 8), torch.linspace(-1, 1, 8)
    wanted = norms(x.double(), weight.double(), bias.double())
    for got, right in zip(function(x, weight, bias), wanted, strict=True):
        assert_as_in_f64(got, right)


@pytest.mark.parametrize("ratio", RATIOS)
def test_running_statistics_keep_their_digits(ratio: float) -> None:
    """red-team.md goal 5."""
    model = nn.BatchNorm1d(8)
    wide = copy.deepcopy(model).double()
    x = spread((64, 8, 5), ratio)
    with hidet.torch.collect_reports() as reports:
        got = torch.compile(model, backend="hidet", dynamic=False)(x)
    assert reports
    assert_as_in_f64(got, wide(x.double()))
    for name in ("running_mean", "running_var"):
        assert_as_in_f64(getattr(model, name), getattr(wide, name))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_in_short_types_are_computed_in_f32(dtype: torch.dtype) -> None:
    x = (spread((4, 8, 9), 100) / 4).to(dtype)
    f = torch.compile(lambda x: F.batch_norm(x, None, None, training=True), backend="hidet")
    right = F.batch_norm(x.double(), None, None, training=True)
    assert (f(x).double() - right).abs().max() <= torch.finfo(dtype).eps * right.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [3e-42, 1e-30, 1.0, 1e20, 1e37])
def test_deviations_whose_squares_no_f32_holds(dtype: torch.dtype, scale: float) -> None:
    x = (spread((7, 33), 0).double() * scale).to(dtype)

    def deviations(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.std(0), x.std(1, correction=0), x.std(), torch.std_mean(x, 1)[0]

    for got, right in zip(torch.compile(deviations, backend="hidet")(x), deviations(x), strict=True):
        torch.testing.assert_close(got, right, rtol=2 * torch.finfo(dtype).eps, atol=2e-45)


@pytest.mark.parametrize("count", [24, 120, 2000])
def test_norms_of_gathered_rows_are_as_exact_as_eager_mode(count: int) -> None:
    """Seed 1011858 of tests.fuzz.torch_programs: equal values, one after another, are rounded in one direction."""
    x = torch.tensor([-0.75, 0.5]).expand(5, 3, 2).reshape(5, 3, 2, 1)
    places = torch.arange(count) % 3
    f = torch.compile(lambda x, places: F.group_norm(x.index_select(1, places), 1), backend="hidet")
    right = F.group_norm(x.double().index_select(1, places), 1)
    assert (f(x, places).double() - right).abs().max() <= 1.5e-7 * right.abs().max()


@pytest.mark.parametrize("function", [torch.var_mean, torch.std_mean])
def test_means_that_nearly_cancel_are_rounded_once(function: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    """As eager mode's are, which adds up in f64."""
    x = torch.randn(500, 5, generator=torch.Generator().manual_seed(0)) * 9
    _, mean = torch.compile(function, backend="hidet", dynamic=False)(x, 1)
    assert torch.equal(mean, x.double().mean(1).float())
