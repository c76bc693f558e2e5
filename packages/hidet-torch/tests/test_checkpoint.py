"""Activation checkpointing: what is computed again for the backward pass draws the numbers of the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

Function = Callable[[torch.Tensor], torch.Tensor]

# Functions that multiply each element by a random number: the gradient of the sum is result / x.
SCALINGS: dict[str, Function] = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "two dropouts": lambda x: F.dropout(F.dropout(x, 0.3) * 2, 0.3),
    "alpha": lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)),
    "rand": lambda x: x * torch.rand_like(x),
    "randn of a shape": lambda x: x * torch.randn(x.shape),
    "randint": lambda x: x * torch.randint_like(x, 0, 9),
    "exponential": lambda x: x * torch.empty_like(x).exponential_(),
    "feature dropout": lambda x: F.dropout1d(x.view(1, -1, 4), 0.5).view(-1),
}


def _checkpointed(function: Function, **settings: Any) -> Function:
    return lambda x: checkpoint(function, x, use_reentrant=False, **settings)  # type: ignore[no-any-return]  # torch says Any


def _assert_gradient_is_of_the_forward(function: Function, size: int = 240, **options: bool) -> None:
    x = torch.linspace(1, 2, size, requires_grad=True)
    compiled = torch.compile(function, backend="hidet", fullgraph=True, options={"strict": True, **options})
    for _ in range(2):
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient * x, result)
        assert len(result.unique()) > 2


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.thorough(every=4)
def test_a_checkpoint_draws_the_same_numbers_again(name: str, preserve: bool) -> None:
    """defects.md C1."""
    _assert_gradient_is_of_the_forward(_checkpointed(SCALINGS[name], preserve_rng_state=preserve))


def test_checkpoints_inside_of_checkpoints_draw_the_same_numbers_again() -> None:
    """defects.md C1."""
    inner = _checkpointed(lambda x: F.dropout(x) * 3)
    _assert_gradient_is_of_the_forward(_checkpointed(lambda x: F.dropout(inner(x), 0.2)))


def test_operators_of_one_checkpoint_and_beside_it_draw_different_numbers() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        inside = checkpoint(
            lambda t: torch.stack([t * torch.rand_like(t), t * torch.rand_like(t)]), x, use_reentrant=False
        )
        return torch.cat([inside, (x * torch.rand_like(x))[None]])

    rows = torch.compile(function, backend="hidet")(torch.ones(50, requires_grad=True)).detach()
    assert len(rows.unique()) > 140


def test_a_gradient_of_attention_with_dropout_is_that_of_the_forward() -> None:
    """defects.md C1: the mask is seen where queries and keys are zero, which makes every score the same."""
    zeros = torch.zeros(1, 2, 16, 16)
    value = torch.eye(16).expand(1, 2, 16, 16).clone().requires_grad_()

    def attend(v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(zeros, zeros, v, dropout_p=0.5)

    result = torch.compile(_checkpointed(attend), backend="hidet")(value)
    result.sum().backward()
    kept = result.detach()  # the identity as values shows the probabilities that are left
    assert 0.2 < (kept > 0).float().mean() < 0.8
    assert value.grad is not None
    torch.testing.assert_close(value.grad, kept.sum(-2)[..., None].expand_as(value))


def test_an_operator_that_torch_runs_draws_the_same_numbers_again_and_leaves_the_generator() -> None:
    """defects.md C1."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.poisson(torch.full_like(x, 5.0))

    x = torch.linspace(1, 2, 100, requires_grad=True)
    compiled = torch.compile(_checkpointed(function), backend="hidet")
    with pytest.warns(UserWarning, match=r"aten\.poisson"):
        first, second = compiled(x), compiled(x)
        torch.autograd.grad(first.sum(), x, retain_graph=True)  # compiles the backward
    state = torch.get_rng_state()
    for result in (first, second):
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient * x, result)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first, second)


def test_torchs_own_numbers_are_kept_for_the_backward() -> None:
    function = _checkpointed(lambda x: F.dropout(x * 2))
    x = torch.ones(50, requires_grad=True)
    torch.manual_seed(5)
    want = F.dropout(x * 2)
    torch.manual_seed(5)
    with pytest.warns(UserWarning, match="eager_random"):
        result = torch.compile(function, backend="hidet", options={"eager_random": True})(x)
    assert torch.equal(result, want)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient, result)


def test_what_a_policy_saves_is_saved() -> None:
    def policy(ctx: object, operator: object, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_random = operator is torch.ops.aten.rand_like.default
        return CheckpointPolicy.MUST_SAVE if is_random else CheckpointPolicy.PREFER_RECOMPUTE

    _assert_gradient_is_of_the_forward(
        _checkpointed(
            lambda x: (x * torch.rand_like(x)) * torch.rand(()),
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
    )


def test_masks_of_dropout_are_computed_again_and_not_kept() -> None:
    """Two numbers are what a checkpoint keeps of an operator that draws."""

    def layers(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = F.dropout(x).sin()
        return x

    kept: list[int] = []

    def count(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    x = torch.ones(1000, requires_grad=True)
    compiled = torch.compile(_checkpointed(layers), backend="hidet")
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        compiled(x)
    assert sum(kept) <= 1000 + 3 * 2
