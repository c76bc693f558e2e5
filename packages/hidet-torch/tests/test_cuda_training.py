"""Training on a GPU: sums at computed places, checkpoints with random operators, flex_attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning"),
]


def test_positions_of_one_row_are_trained_under_autocast() -> None:
    """defects.md G1."""
    torch.manual_seed(0)
    tokens = torch.randint(97, (4, 64), device="cuda")
    places = torch.arange(64, device="cuda")[None]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(97, 32), nn.Embedding(64, 32)
            self.norm, self.inner = nn.LayerNorm(32), nn.Linear(32, 32)

        def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            hidden = self.inner(self.norm(self.words(tokens) + self.places(places)))
            logits = F.linear(hidden, self.words.weight)
            return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())

    model = Model().cuda()
    parameters = list(model.parameters())
    compiled = torch.compile(model, backend="hidet")
    with torch.autocast("cuda", torch.bfloat16):
        want, got = model(tokens, places), compiled(tokens, places)
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
    gradients = zip(torch.autograd.grad(got, parameters), torch.autograd.grad(want, parameters), strict=True)
    for ours, theirs in gradients:
        torch.testing.assert_close(ours, theirs, rtol=5e-2, atol=5e-3)


@pytest.mark.parametrize("preserve", [True, False])
def test_a_checkpoint_draws_the_same_numbers_again(preserve: bool) -> None:
    """defects.md C1."""
    x = torch.linspace(1, 2, 4096, device="cuda", requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(
            lambda t: F.dropout(t * torch.rand_like(t)), x, use_reentrant=False, preserve_rng_state=preserve
        )

    compiled = torch.compile(function, backend="hidet", options={"strict": True})
    for _ in range(4):
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient * x, result)


def test_attention_with_dropout_in_a_checkpoint_has_the_gradient_of_its_forward() -> None:
    """defects.md C1."""
    zeros = torch.zeros(1, 2, 64, 64, device="cuda", dtype=torch.float16)
    value = torch.eye(64, device="cuda", dtype=torch.float16).expand(1, 2, 64, 64).clone().requires_grad_()

    def attend(v: torch.Tensor) -> torch.Tensor:
        return checkpoint(
            lambda t: F.scaled_dot_product_attention(zeros, zeros, t, dropout_p=0.5), v, use_reentrant=False
        )

    result = torch.compile(attend, backend="hidet")(value)
    (gradient,) = torch.autograd.grad(result.sum(), value)
    torch.testing.assert_close(gradient, result.detach().sum(-2)[..., None].expand_as(value), rtol=1e-2, atol=1e-2)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_computed_and_trained() -> None:
    """defects.md C2."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", requires_grad=True) for _ in range(3))
    slopes = torch.rand(4, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cuda")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = flex_attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i), block_mask=mask
        )
        return found

    compiled = torch.compile(attend, backend="hidet", options={"strict": True})
    leaves = (q, k, v, slopes)
    want, got = attend(*leaves), compiled(*leaves)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    ours, theirs = (torch.autograd.grad(result.square().sum(), leaves) for result in (got, want))
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*leaves), want, rtol=1e-3, atol=1e-3)
