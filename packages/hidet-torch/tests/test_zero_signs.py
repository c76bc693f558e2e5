"""The sign of a zero result is that of eager mode where eager mode has one, whatever the number of elements."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

FUNCTIONS = {
    "sums": lambda x: (x.sum(1), x.sum(0), x.sum(), x.nansum(1), x.cumsum(1)),
    "means": lambda x: (x.mean(1), x.mean(0), x.mean()),
    "products": lambda x: (x.prod(1), x.cumprod(1)),
    "matrix products": lambda x: (x @ x.t(), F.linear(x, torch.ones(2, x.shape[1], dtype=x.dtype))),
    "average pooling": lambda x: (F.avg_pool1d(x, 4), F.adaptive_avg_pool1d(x, 1), F.adaptive_avg_pool1d(x, 3)),
    "limits": lambda x: (torch.relu(x), x.clamp(min=0), x.clamp(0, 1), F.relu6(x), F.hardtanh(x, 0.0, 1.0)),
    "rounding": lambda x: (x.round(), x.trunc(), x.ceil(), x.floor(), torch.sign(x), x.abs(), -x, x.sqrt()),
    "extremes of equal zeros": lambda x: (x.amax(1), x.amin(1), x.max(0).values, F.max_pool1d(x, 4)),
    "remainders": lambda x: (torch.remainder(x, 3), torch.fmod(x, 3), torch.floor_divide(x, 3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.thorough(every=2)
def test_zeros_have_the_sign_of_eager_mode(name: str) -> None:
    """red-team.md finding 18."""
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend="hidet", dynamic=False)
    for length in (4, 70, 1000):
        for zero in (-0.0, 0.0):
            x = torch.full((3, length), zero)
            for got, expected in zip(compiled(x), function(x), strict=True):
                assert torch.equal(got, expected)
                assert torch.equal(torch.signbit(got), torch.signbit(expected)), (name, length, zero)


def test_deviations_of_numbers_whose_squares_overflow_are_infinite_and_not_nan() -> None:
    x = torch.tensor([[1e30, -1e30, 3e38, 1.0], [1e25, 2e25, 3e25, 4e25]])
    compiled = torch.compile(lambda x: (x.var(1), F.layer_norm(x, (4,))), backend="hidet", dynamic=False)
    variance, normal = compiled(x)
    assert torch.equal(variance, x.var(1))
    assert not normal.isnan().any()
