"""A diffusion U-Net of one level and its middle, in the widths of Stable Diffusion's, in plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.models.entry import WEIGHT_SEED, Inputs, seeded

IMAGE_CHANNELS, WIDTH, TIME_WIDTH = 4, 320, 1280
TEXT_TOKENS, TEXT_WIDTH, HEADS = 77, 768, 8
_GROUPS = 32


class _Residual(nn.Module):
    """Two 3x3 convolutions behind group norms; the time step is added between them."""

    def __init__(self, channels: int, made: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(_GROUPS, channels), nn.GroupNorm(_GROUPS, made)
        self.first, self.second = nn.Conv2d(channels, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        self.time = nn.Linear(TIME_WIDTH, made)
        self.skip = nn.Conv2d(channels, made, 1) if channels != made else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.first(F.silu(self.first_norm(x))) + self.time(F.silu(time))[:, :, None, None]
        result: torch.Tensor = self.skip(x) + self.second(F.silu(self.second_norm(y)))
        return result


class _Attention(nn.Module):
    """Queries of the image's points over keys of `context`."""

    def __init__(self, channels: int, context: int) -> None:
        super().__init__()
        self.query = nn.Linear(channels, channels, bias=False)
        self.key, self.value = (nn.Linear(context, channels, bias=False) for _ in range(2))
        self.output = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        def heads(rows: torch.Tensor) -> torch.Tensor:
            return rows.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(context)), heads(self.value(context))
        )
        result: torch.Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return result


class _Transformer(nn.Module):
    """Attention of the image to itself, to the text, and a gated feed-forward layer, around all a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(_GROUPS, channels, eps=1e-6)
        self.enter, self.leave = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own, self.text = _Attention(channels, channels), _Attention(channels, TEXT_WIDTH)
        self.gated, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x = self.enter(self.norm(image)).flatten(2).transpose(1, 2)
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.text(self.norms[1](x), text)
        value, gate = self.gated(self.norms[2](x)).chunk(2, -1)
        x = x + self.down(value * F.gelu(gate))
        result: torch.Tensor = image + self.leave(x.transpose(1, 2).unflatten(-1, image.shape[-2:]))
        return result


class UNetBlock(nn.Module):
    """Down by a level, the middle, and up again with the skipped image beside."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(IMAGE_CHANNELS, WIDTH, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(WIDTH, TIME_WIDTH), nn.SiLU(), nn.Linear(TIME_WIDTH, TIME_WIDTH))
        self.down, self.down_attention = _Residual(WIDTH, WIDTH), _Transformer(WIDTH)
        self.halve = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.middle, self.middle_attention = _Residual(WIDTH, 2 * WIDTH), _Transformer(2 * WIDTH)
        self.widen = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1)
        self.up, self.up_attention = _Residual(3 * WIDTH, WIDTH), _Transformer(WIDTH)
        self.norm, self.leave = nn.GroupNorm(_GROUPS, WIDTH), nn.Conv2d(WIDTH, IMAGE_CHANNELS, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Noise [batch, 4, height, width]. step: the embedded time [batch, 320]; text: [batch, 77, 768]."""
        time = self.time(step)
        skipped = self.down_attention(self.down(self.enter(x), time), text)
        y = self.middle_attention(self.middle(self.halve(skipped), time), text)
        y = self.widen(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        y = self.up_attention(self.up(torch.cat((y, skipped), 1), time), text)
        noise: torch.Tensor = self.leave(F.silu(self.norm(y)))
        return noise


def build_unet_block() -> nn.Module:
    """The block with random weights, on torch's default device."""
    torch.manual_seed(WEIGHT_SEED)
    return UNetBlock().eval()


def unet_inputs(batch: int, size: int = 64) -> Inputs:
    """A noisy image, an embedded time step and an embedded text, in f32."""
    generator = seeded(0)
    return {
        "x": torch.randn(batch, IMAGE_CHANNELS, size, size, generator=generator),
        "step": torch.randn(batch, WIDTH, generator=generator),
        "text": torch.randn(batch, TEXT_TOKENS, TEXT_WIDTH, generator=generator),
    }
