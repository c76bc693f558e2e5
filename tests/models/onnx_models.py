"""ONNX models with open sizes: exports of torch models, and silero-vad with trained weights, an LSTM and branches.

`inputs(size, seed)` gives arrays for one choice of the open sizes; one import has to be right for all of them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .entry import WEIGHT_SEED, Inputs, seeded
from .initialise import randomise_constant_parameters
from .language import LANGUAGE_MODELS
from .onnx_export import DynamicShapes, exported_model
from .vision import build_vision

Arrays = Mapping[str, np.ndarray[Any, Any]]

VOCABULARY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """One model.

    path: its file. module: what it was exported from; None where there is only the file. inputs(size, seed): arrays by
    name for one of `sizes`, the choices of its open extents. smoke: part of the default test suite. programs: how often
    it is compiled for `sizes`; more than once only where the rank of a value depends on a size.
    """

    name: str
    path: Callable[[], Path]
    module: Callable[[], nn.Module] | None = None
    inputs: Callable[[tuple[int, ...], int], Arrays]
    sizes: Sequence[tuple[int, ...]]
    smoke: bool = False
    programs: int = 1


def _exported(
    name: str,
    build: Callable[[], nn.Module],
    inputs: Callable[[tuple[int, ...], int], Inputs],
    dynamic: DynamicShapes,
    sizes: Sequence[tuple[int, ...]],
    smoke: bool = False,
) -> OnnxModel:
    return OnnxModel(
        name=name,
        module=build,
        smoke=smoke,
        path=lambda: exported_model(name, build(), inputs(sizes[0], 0), dynamic),
        inputs=lambda size, seed: {key: value.numpy() for key, value in inputs(size, seed).items()},
        sizes=sizes,
    )


# --- inputs ----------------------------------------------------------------------------------------------------------


def _images(size: tuple[int, ...], seed: int) -> Inputs:
    (batch,) = size
    return {"x": torch.randn(batch, 3, 224, 224, generator=seeded(seed))}


def masked_tokens(size: tuple[int, ...], seed: int) -> Inputs:
    """Tokens and a mask that hides the end of the last row, for (batch, length)."""
    batch, length = size
    generator = seeded(seed)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length - length // 3 :] = 0
    return {
        "input_ids": torch.randint(0, VOCABULARY, (batch, length), generator=generator),
        "attention_mask": mask,
    }


def _step(size: tuple[int, ...], seed: int) -> Inputs:
    past, length = size
    generator = seeded(seed)
    shape = (CachedDecoder.LAYERS, 1, CachedDecoder.CACHE_HEADS, past, CachedDecoder.HEAD_WIDTH)
    return {
        "tokens": torch.randint(0, VOCABULARY, (1, length), generator=generator),
        "keys": torch.randn(shape, generator=generator),
        "values": torch.randn(shape, generator=generator),
    }


def _sound(size: tuple[int, ...], seed: int) -> Arrays:
    batch, rate = size
    generator = np.random.default_rng(seed)
    samples = 576 if rate == 16000 else 288
    return {
        "input": generator.standard_normal((batch, samples)).astype(np.float32) * np.float32(0.3),
        "state": generator.standard_normal((2, batch, 128)).astype(np.float32) * np.float32(0.1),
        "sr": np.array(rate, np.int64),
    }


# --- models ----------------------------------------------------------------------------------------------------------


class MaskedModel(nn.Module):
    """A transformers model that takes tokens and a mask, reduced to one tensor of its result."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model = model
        self.output = output

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Attribute `output` of what the model gives."""
        result: torch.Tensor = getattr(self.model(input_ids, attention_mask=attention_mask), self.output)
        return result


class CachedDecoder(nn.Module):
    """A small llama: rotary grouped-query attention over past keys and values, gated MLPs, RMS norms."""

    WIDTH, HEADS, CACHE_HEADS, LAYERS = 64, 4, 2, 2
    HEAD_WIDTH = WIDTH // HEADS

    def __init__(self) -> None:
        super().__init__()
        width, cache_width = self.WIDTH, self.CACHE_HEADS * self.HEAD_WIDTH

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=False)

        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "q": linear(width, width),
                    "k": linear(width, cache_width),
                    "v": linear(width, cache_width),
                    "o": linear(width, width),
                    "gate": linear(width, 2 * width),
                    "up": linear(width, 2 * width),
                    "down": linear(2 * width, width),
                    "before": nn.RMSNorm(width),
                    "after": nn.RMSNorm(width),
                }
            )
            for _ in range(self.LAYERS)
        )
        self.norm, self.head = nn.RMSNorm(width), linear(width, VOCABULARY)

    def forward(
        self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """tokens[1, n]; keys and values [LAYERS, 1, CACHE_HEADS, past, HEAD_WIDTH] → logits and the longer caches."""
        length, past = tokens.shape[1], keys.shape[3]
        positions = torch.arange(length) + past
        seen = positions[:, None] >= torch.arange(length + past)[None]
        x = self.embedding(tokens)
        new_keys, new_values = [], []
        for number, layer in enumerate(self.layers):
            hidden = layer["before"](x)
            q = self._rotated(self._heads(layer["q"](hidden), self.HEADS), positions)
            k = self._rotated(self._heads(layer["k"](hidden), self.CACHE_HEADS), positions)
            v = self._heads(layer["v"](hidden), self.CACHE_HEADS)
            k, v = torch.cat([keys[number], k], dim=2), torch.cat([values[number], v], dim=2)
            new_keys.append(k)
            new_values.append(v)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
            x = x + layer["o"](mixed.transpose(1, 2).flatten(2))
            hidden = layer["after"](x)
            x = x + layer["down"](functional.silu(layer["gate"](hidden)) * layer["up"](hidden))
        return self.head(self.norm(x)), torch.stack(new_keys), torch.stack(new_values)

    def _heads(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.unflatten(-1, (heads, self.HEAD_WIDTH)).transpose(1, 2)

    def _rotated(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rates = 10000.0 ** (-torch.arange(0, self.HEAD_WIDTH, 2) / self.HEAD_WIDTH)
        angles = torch.outer(positions.float(), rates).repeat(1, 2)
        a, b = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()


def _decoder() -> nn.Module:
    torch.manual_seed(WEIGHT_SEED)
    model = CachedDecoder().eval()
    randomise_constant_parameters(model, seeded(WEIGHT_SEED))
    return model


def silero_vad() -> Path:
    """The voice-activity model that the package silero-vad carries."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.submodule_search_locations is None:
        raise FileNotFoundError("package silero-vad is not installed: pip install --no-deps silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.onnx"


def _language(name: str, output: str) -> nn.Module:
    (entry,) = (model for model in LANGUAGE_MODELS if model.name == name)
    return MaskedModel(entry.build(), output).eval()


_BATCH: DynamicShapes = {"x": {0: "batch"}}
LANGUAGE_SIZES: DynamicShapes = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
_CACHE: DynamicShapes = {"tokens": {1: "length"}, "keys": {3: "past"}, "values": {3: "past"}}

ONNX_MODELS: Mapping[str, OnnxModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            _exported("resnet50", partial(build_vision, "resnet50"), _images, _BATCH, [(2,), (1,), (3,)]),
            _exported("mobilenet_v2", partial(build_vision, "mobilenet_v2"), _images, _BATCH, [(2,), (1,), (3,)]),
            _exported(
                "bert",
                partial(_language, "bert", "last_hidden_state"),
                masked_tokens,
                LANGUAGE_SIZES,
                [(2, 11), (1, 7), (3, 33)],
                smoke=True,
            ),
            _exported(
                "gpt2",
                partial(_language, "gpt2", "logits"),
                masked_tokens,
                LANGUAGE_SIZES,
                [(2, 11), (1, 7), (3, 33)],
            ),
            OnnxModel(
                name="silero-vad",
                path=silero_vad,
                inputs=_sound,
                sizes=[(1, 16000), (3, 16000), (1, 8000)],
                smoke=True,
                programs=3,
            ),
            _exported("llama", _decoder, _step, _CACHE, [(9, 5), (17, 1), (2, 12)], smoke=True),
        )
    }
)
