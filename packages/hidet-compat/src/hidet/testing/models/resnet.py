"""Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2016), by `hidet.nn`.

Names of parameters are those of torchvision, so that `load_state_dict` takes its weights; that of the last layer alone
is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet import nn, ops
from hidet.api.tensors.tensor import Tensor


class Residual(nn.Module):
    """Convolutions of the sizes 3 and 3, or 1, 3 and 1, around which the input is added."""

    def __init__(self, channels: int, width: int, stride: int, sizes: Sequence[int]) -> None:
        super().__init__()
        # The wide end of a bottleneck has four times as many channels.
        out = width * (4 if len(sizes) == 3 else 1)
        widths = [channels, *[width] * (len(sizes) - 1), out]
        self.count = len(sizes)
        for number, size in enumerate(sizes):
            step = stride if size == 3 and number == len(sizes) - 2 else 1
            conv = nn.Conv2d(widths[number], widths[number + 1], size, padding=size // 2, stride=step)
            setattr(self, f"conv{number + 1}", conv)
            setattr(self, f"bn{number + 1}", nn.BatchNorm2d(widths[number + 1]))
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Any:
        """Images with the channels of the last convolution."""
        made = x
        parts = self.submodules
        for number in range(1, self.count + 1):
            made = parts[f"bn{number}"](parts[f"conv{number}"](made))
            made = ops.relu(made) if number < self.count else made
        return ops.relu(made + self.downsample(x))


class ResNet(nn.Module):
    """depths: blocks of each of the four stages. sizes: of the convolutions of a block."""

    def __init__(self, depths: Sequence[int], sizes: Sequence[int], num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, padding=3, stride=2), nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for stage, depth in enumerate(depths):
            blocks = nn.ModuleList()
            for number in range(depth):
                blocks.append(Residual(channels, 64 << stage, 2 if stage and not number else 1, sizes))
                channels = (64 << stage) * (4 if len(sizes) == 3 else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(list(blocks)))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Any:
        """Scores [n, num_classes] of images [n, 3, h, w]."""
        x = self.maxpool(ops.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = self.submodules[f"layer{stage}"](x)
        return self.fc(ops.flatten(self.avgpool(x), 1))


def resnet18(**more: int) -> ResNet:
    """Two blocks a stage."""
    return ResNet([2, 2, 2, 2], (3, 3), **more)


def resnet34(**more: int) -> ResNet:
    """As ResNet-50 has, of two convolutions."""
    return ResNet([3, 4, 6, 3], (3, 3), **more)


def resnet50(**more: int) -> ResNet:
    """Bottlenecks."""
    return ResNet([3, 4, 6, 3], (1, 3, 1), **more)


def resnet101(**more: int) -> ResNet:
    """Bottlenecks, most in the third stage."""
    return ResNet([3, 4, 23, 3], (1, 3, 1), **more)


def resnet152(**more: int) -> ResNet:
    """Bottlenecks, still more of them."""
    return ResNet([3, 8, 36, 3], (1, 3, 1), **more)
