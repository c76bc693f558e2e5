"""MLP-Mixer (Tolstikhin et al., 2021): a table of patches, mixed along patches and along channels."""

from __future__ import annotations

from torch import Tensor, nn


class MixerBlock(nn.Module):
    """Layer norm and two linear layers along the tokens of [batch, tokens, width], then the same along the width."""

    def __init__(self, tokens: int, width: int, token_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along_tokens = _perceptron(tokens, token_hidden)
        self.along_channels = _perceptron(width, channel_hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, tokens, width] to the same."""
        x = x + self.along_tokens(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + self.along_channels(self.channel_norm(x))
        return mixed


class Mixer(nn.Module):
    """Images of 224 x 224 to 1000 classes. The sizes of the paper: S is 8 blocks of 512 channels, with 256 and 2048
    hidden ones; B is 12 of 768, with 384 and 3072."""

    def __init__(self, patch: int, blocks: int, width: int, token_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        tokens = (224 // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(
            *(MixerBlock(tokens, width, token_hidden, channel_hidden) for _ in range(blocks)), nn.LayerNorm(width)
        )
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, 224, 224] to [batch, 1000]."""
        logits: Tensor = self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
        return logits


def build_mixer(name: str) -> nn.Module:
    """Mixer-S/32 ("s32") or B/16 ("b16") with random weights, in eval mode."""
    sizes = {"s32": (32, 8, 512, 256, 2048), "b16": (16, 12, 768, 384, 3072)}
    return Mixer(*sizes[name]).eval()


def _perceptron(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
