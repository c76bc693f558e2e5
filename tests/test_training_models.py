"""Whole models that are trained: their gradients are those of their losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hidet.torch

from .models.language import build_transformer


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
def test_a_model_with_checkpoints_and_dropout_has_the_gradient_of_its_loss() -> None:
    """defects.md C1: `gradient_checkpointing_enable()` of a GPT-2, in f64 against a difference of losses."""
    pytest.importorskip("transformers")
    config = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 8, "vocab_size": 11, "use_cache": False}
    model: Any = build_transformer("GPT2LMHeadModel", config | {"bos_token_id": 0, "eos_token_id": 0}).double().train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    tokens = torch.randint(11, (2, 8))
    compiled = torch.compile(model, backend="hidet")

    def loss() -> torch.Tensor:
        torch.manual_seed(1)
        logits: torch.Tensor = compiled(input_ids=tokens).logits  # the model's own loss is in f32
        return logits.sin().mean()

    with hidet.torch.collect_reports() as reports:
        loss().backward()
    assert reports
    generator = torch.Generator().manual_seed(3)
    direction = {name: torch.randn(p.shape, generator=generator, dtype=p.dtype) for name, p in model.named_parameters()}
    slope = sum((direction[name] * p.grad).sum().item() for name, p in model.named_parameters())
    losses = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter += step * direction[name]
        losses.append(loss().item())
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-5)
