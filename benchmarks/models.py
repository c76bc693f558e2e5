"""The models that are measured, in full size, and how much arithmetic they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.mixer import build_mixer
from tests.models.entry import Inputs
from tests.models.language import build_minilm, build_transformer, token_inputs
from tests.models.vision import build_vision, image_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkModel:
    """One measured model: `build()` gives a module in eval mode, `inputs()` its keyword arguments, batch 1.

    The module returns one tensor, so that every system does the same work and hands over the same thing.
    """

    name: str
    what: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]


class OneOutput(nn.Module):
    """A transformers model reduced to one tensor of its result, and without a key-value cache."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model = model
        self.output = output

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Run the model on keyword arguments and return the attribute `output` of what it gives."""
        tensor: torch.Tensor = getattr(self.model(**inputs), self.output)
        return tensor


def _language(build: Callable[[], nn.Module], output: str) -> nn.Module:
    return OneOutput(build(), output).eval()


_TOKENS = 128

MODELS: Mapping[str, BenchmarkModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            *(
                BenchmarkModel(
                    name=name,
                    what=what,
                    build=partial(build_vision, name),
                    inputs=partial(image_inputs, 224, 0),
                )
                for name, what in (
                    ("resnet50", "1x3x224x224"),
                    ("mobilenet_v2", "1x3x224x224"),
                    ("vit_b_32", "1x3x224x224, 50 tokens"),
                )
            ),
            *(
                BenchmarkModel(
                    name=f"mixer_{size}",
                    what=f"1x3x224x224, {tokens} tokens",
                    build=partial(build_mixer, size),
                    inputs=partial(image_inputs, 224, 0),
                )
                for size, tokens in (("s32", 49), ("b16", 196))
            ),
            BenchmarkModel(
                name="bert-base",
                what=f"{_TOKENS} tokens",
                build=partial(_language, partial(build_transformer, "BertModel", {}), "last_hidden_state"),
                inputs=partial(token_inputs, 0, vocabulary=30522, batch=1, length=_TOKENS),
            ),
            BenchmarkModel(
                name="gpt2",
                what=f"{_TOKENS} tokens",
                build=partial(_language, partial(build_transformer, "GPT2LMHeadModel", {"use_cache": False}), "logits"),
                inputs=partial(token_inputs, 0, vocabulary=50257, batch=1, length=_TOKENS),
            ),
            BenchmarkModel(
                name="minilm",
                what=f"{_TOKENS} tokens, mask",
                build=partial(_language, build_minilm, "last_hidden_state"),
                inputs=partial(token_inputs, 0, vocabulary=30522, batch=1, length=_TOKENS, padding=16),
            ),
        )
    }
)
"""The measured models by name."""


def model_flops(model: nn.Module, inputs: Inputs) -> int:
    """Count the float operations of one call: two for each multiply-add of matmul, convolution and attention.

    Element-wise work, norms and softmax are not counted, as is usual.
    """
    counter = FlopCounterMode(
        display=False,
        custom_mapping={torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops},
    )
    with counter, torch.no_grad():
        model(**inputs)
    return int(counter.get_total_flops())


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count q k^T and p v; arguments are shapes [..., length, width]. A causal mask halves nothing here."""
    flops: int = 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return flops
