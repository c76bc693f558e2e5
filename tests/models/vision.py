"""torchvision models in their full size, batch 1."""

from functools import partial
from typing import Any

import torch
from torch import nn

from .entry import WEIGHT_SEED, Inputs, ZooModel, seeded
from .initialise import calibrate_batch_norms, randomise_constant_parameters
from .torchvision_import import import_torchvision_models


def image_inputs(size: int, seed: int) -> Inputs:
    """Return one random image `x` of shape [1, 3, size, size]."""
    return {"x": torch.randn(1, 3, size, size, generator=seeded(seed))}


def build_vision(name: str, size: int = 224, **options: Any) -> nn.Module:
    """Build the torchvision model `name` with random weights; `options` go to its constructor."""
    torch.manual_seed(WEIGHT_SEED)
    model: nn.Module = getattr(import_torchvision_models(), name)(weights=None, **options).eval()
    generator = seeded(WEIGHT_SEED)
    randomise_constant_parameters(model, generator)
    calibrate_batch_norms(model, lambda module: module(**image_inputs(size, WEIGHT_SEED)), generator)
    return model


def _entry(name: str, *, size: int = 224, smoke: bool = False, bf16: bool = False, **options: Any) -> ZooModel:
    return ZooModel(
        name=name,
        build=partial(build_vision, name, size, **options),
        inputs=partial(image_inputs, size),
        smoke=smoke,
        bf16=bf16,
    )


VISION_MODELS = (
    _entry("resnet18", smoke=True, bf16=True),
    _entry("resnet50", bf16=True),
    _entry("mobilenet_v2", smoke=True, bf16=True),
    _entry("mobilenet_v3_large", bf16=True),
    _entry("efficientnet_b0"),
    _entry("densenet121"),
    _entry("inception_v3", size=299, init_weights=False),
    _entry("vgg16"),
    _entry("squeezenet1_1"),
    _entry("shufflenet_v2_x1_0", bf16=True),
    _entry("convnext_tiny", bf16=True),
    _entry("vit_b_16", bf16=True),
    _entry("swin_t"),
)
