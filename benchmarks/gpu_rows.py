"""What is measured on a GPU: a row is a model, a batch and a dtype, written "resnet50:8:f16"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from benchmarks.dit_block import build_dit, dit_inputs
from benchmarks.llama_layers import build_llama, llama_inputs
from benchmarks.models import MODELS, OneOutput
from benchmarks.unet_block import build_unet_block, unet_inputs
from tests.models.entry import Inputs, seeded
from tests.models.language import build_transformer, token_inputs
from tests.models.vision import build_vision

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A measured model. build: a module in eval mode, in f32. inputs: keyword arguments for a batch, floats in f32.

    has_images: whether channels-last memory makes sense for it.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    has_images: bool = False


@dataclass(frozen=True, slots=True)
class RowName:
    """A row as the user names it."""

    model: str
    batch: int
    dtype: str

    @classmethod
    def parse(cls, text: str) -> RowName:
        """ValueError for what is no "model:batch:dtype"."""
        model, batch, dtype = (*text.split(":"), "", "")[:3]
        if text.count(":") != 2 or model not in GPU_MODELS or not batch.isdecimal() or dtype not in DTYPES:
            raise ValueError(
                f"{text!r} is no row: write model:batch:dtype with a model of {', '.join(GPU_MODELS)} and a dtype of "
                f"{', '.join(DTYPES)}"
            )
        return cls(model, int(batch), dtype)

    def __str__(self) -> str:
        return f"{self.model}:{self.batch}:{self.dtype}"


def _images(batch: int, size: int = 224) -> Inputs:
    return {"x": torch.randn(batch, 3, size, size, generator=seeded(0))}


def _vision(name: str, size: int = 224, **options: bool) -> GpuModel:
    build = partial(build_vision, name, size, **options)
    return GpuModel(build=build, inputs=partial(_images, size=size), has_images=True)


def _language(name: str, vocabulary: int, length: int = 128) -> GpuModel:
    def inputs(batch: int) -> Inputs:
        return token_inputs(0, vocabulary=vocabulary, batch=batch, length=length)

    return GpuModel(build=MODELS[name].build, inputs=inputs)


_WHISPER = {"d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072}
"""Whisper small's encoder; the decoder is not measured."""


def _build_whisper_encoder() -> nn.Module:
    model: Any = build_transformer("WhisperModel", {**_WHISPER, "decoder_layers": 1, "decoder_ffn_dim": 64})
    return OneOutput(model.get_encoder(), "last_hidden_state").eval()


def _spectrograms(batch: int) -> Inputs:
    return {"input_features": torch.randn(batch, 80, 3000, generator=seeded(0))}


GPU_MODELS: Mapping[str, GpuModel] = MappingProxyType(
    {
        "resnet18": _vision("resnet18"),
        "resnet50": _vision("resnet50"),
        "inception_v3": _vision("inception_v3", 299, init_weights=False),
        "mobilenet_v2": _vision("mobilenet_v2"),
        "vit_b_16": _vision("vit_b_16"),
        "swin_t": _vision("swin_t"),
        "densenet121": _vision("densenet121"),
        "efficientnet_b0": _vision("efficientnet_b0"),
        "convnext_tiny": _vision("convnext_tiny"),
        "bert-base": _language("bert-base", 30522),
        "bert-base-384": _language("bert-base", 30522, 384),
        "gpt2": _language("gpt2", 50257),
        "gpt2-512": _language("gpt2", 50257, 512),
        "unet-block": GpuModel(build=build_unet_block, inputs=unet_inputs, has_images=True),
        "dit": GpuModel(build=build_dit, inputs=dit_inputs),
        "whisper-encoder": GpuModel(build=_build_whisper_encoder, inputs=_spectrograms),
        "llama-decode": GpuModel(build=build_llama, inputs=partial(llama_inputs, length=1, past=1024)),
        "llama-decode-2000": GpuModel(build=build_llama, inputs=partial(llama_inputs, length=1, past=2000)),
        "llama-prefill-777": GpuModel(build=build_llama, inputs=partial(llama_inputs, length=777, past=0)),
        "llama-prefill": GpuModel(build=build_llama, inputs=partial(llama_inputs, length=2048, past=0)),
    }
)
"""The measured models by name. Language models see 128 tokens where their names do not say another number; llama is 4
layers of Llama-3-8B's shape, and its numbers are tokens of a prompt, or of the cache; images of the U-Net's block have
64 x 64 points of 4 channels."""

DEFAULT_ROWS = (
    "resnet18:1:f16",
    "resnet50:1:f16",
    "resnet50:8:f16",
    "resnet50:128:f16",
    "inception_v3:1:f16",
    "mobilenet_v2:1:f16",
    "efficientnet_b0:8:f16",
    "densenet121:1:f16",
    "convnext_tiny:8:f16",
    "swin_t:8:f16",
    "vit_b_16:8:f16",
    "unet-block:2:f16",
    "dit:2:f16",
    "bert-base:1:f16",
    "bert-base-384:8:f16",
    "gpt2:1:f16",
    "gpt2-512:4:bf16",
    "whisper-encoder:1:f16",
    "llama-decode:1:bf16",
    "llama-decode-2000:8:bf16",
    "llama-decode:32:bf16",
    "llama-prefill-777:1:bf16",
    "llama-prefill:1:bf16",
)
"""The rows that are measured unless the user names others."""

TUNED_ROWS = (
    "resnet50:1:f16",
    "resnet50:32:f16",
    "bert-base:1:f16",
    "bert-base-384:8:f16",
    "gpt2-512:4:f16",
    "unet-block:2:f16",
    "llama-decode:8:bf16",
)
"""The rows that tuning is measured on (`--peers hidet-tuned`)."""


def build_on_gpu(entry: GpuModel, dtype: torch.dtype) -> nn.Module:
    """A model on the GPU, in a dtype."""
    # Large models are made where they are used: random numbers take a CPU longer than the whole measurement.
    with torch.device("cuda" if entry.build in (build_llama, build_unet_block, build_dit) else "cpu"):
        model = entry.build()
    return model.to("cuda", dtype)


def prepare_row(row: RowName) -> tuple[nn.Module, Inputs]:
    """Model and inputs of a row on the GPU, floating tensors in its dtype."""
    entry, dtype = GPU_MODELS[row.model], DTYPES[row.dtype]
    inputs = {name: value.cuda() for name, value in entry.inputs(row.batch).items()}
    return build_on_gpu(entry, dtype), {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()
    }
