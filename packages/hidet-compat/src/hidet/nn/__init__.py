"""Models of tensors of hidet, in the words of hidet 0.6: for inference."""

from hidet.nn.layers import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    CrossAttention,
    Embedding,
    Geglu,
    Gelu,
    GroupNorm,
    Identity,
    LayerNorm,
    Linear,
    LinearTransposed,
    MaxPool2d,
    Relu,
    Tanh,
)
from hidet.nn.module import Module, ModuleList, Sequential

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "CrossAttention",
    "Embedding",
    "Geglu",
    "Gelu",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "Linear",
    "LinearTransposed",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "Relu",
    "Sequential",
    "Tanh",
]
