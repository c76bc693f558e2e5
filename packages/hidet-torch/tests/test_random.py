"""Random numbers come from torch's generator: reproducible by its seed, different at each call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F


def _compiled(function: Callable[..., torch.Tensor], **options: bool) -> Callable[..., torch.Tensor]:
    return torch.compile(function, backend="hidet", fullgraph=True, options=options)


def test_a_seed_fixes_the_numbers_and_each_call_draws_new_ones() -> None:
    draw = _compiled(lambda x: torch.rand_like(x))
    x = torch.zeros(100)
    torch.manual_seed(7)
    first, second = draw(x), draw(x)
    torch.manual_seed(7)
    assert torch.equal(draw(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("function", "mean", "deviation"),
    [
        (lambda x: torch.rand_like(x), 0.5, 12**-0.5),
        (lambda x: torch.randn_like(x), 0.0, 1.0),
        (lambda x: torch.bernoulli(torch.full_like(x, 0.3)), 0.3, 0.21**0.5),
        (lambda x: torch.randint_like(x, 0, 5), 2.0, 2**0.5),
        (lambda x: F.dropout(x + 1, 0.5), 1.0, 1.0),
        (lambda x: torch.empty_like(x).uniform_(2, 4), 3.0, 3**-0.5),
        (lambda x: torch.empty_like(x).normal_(1, 2), 1.0, 2.0),
        (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
        (lambda x: torch.empty_like(x).geometric_(0.25), 4.0, 12**0.5),
        (lambda x: torch.empty_like(x, dtype=torch.int64).geometric_(0.25), 4.0, 12**0.5),
    ],
    ids=[
        *("rand", "randn", "bernoulli", "randint", "dropout", "uniform", "normal", "exponential"),
        *("geometric", "geometric integers"),
    ],
)
def test_numbers_have_their_distribution(function: Callable[..., torch.Tensor], mean: float, deviation: float) -> None:
    drawn = _compiled(function)(torch.zeros(20000)).double()
    assert abs(drawn.mean().item() - mean) < 0.05 * max(deviation, 1)
    assert abs(drawn.std().item() - deviation) < 0.05 * max(deviation, 1)


def test_geometric_numbers_of_bool_are_refused_as_in_eager_mode() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).geometric_(0.25)

    with pytest.raises((RuntimeError, NotImplementedError)) as refusal:
        draw(torch.zeros(5, dtype=torch.bool))
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)bool"):
        _compiled(draw)(torch.zeros(5, dtype=torch.bool))
    assert "Bool" in str(refusal.value)


def test_two_operators_of_a_graph_draw_different_numbers() -> None:
    result = _compiled(lambda x: torch.stack([torch.rand_like(x), torch.rand_like(x)]))(torch.zeros(50))
    assert not torch.equal(result[0], result[1])


def test_option_eager_random_gives_torchs_own_numbers() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) * 2

    x = torch.zeros(10)
    torch.manual_seed(3)
    want = function(x)
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="eager_random"):
        assert torch.equal(_compiled(function, eager_random=True)(x), want)
