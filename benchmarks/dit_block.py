"""A diffusion transformer of four blocks, in the widths of DiT-XL/2 (Peebles and Xie, 2023), in plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.models.entry import WEIGHT_SEED, Inputs, seeded

IMAGE_CHANNELS, IMAGE_SIZE, PATCH = 4, 32, 2
WIDTH, HEADS, LAYERS = 1152, 16, 4


def _modulated(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


class _Block(nn.Module):
    """Attention and a feed-forward layer behind layer norms whose shift, scale and gate come from the condition."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False) for _ in range(2))
        self.joined, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, late_shift, late_scale, late_gate = self.modulation(F.silu(condition)).chunk(6, -1)
        joined = self.joined(_modulated(self.norms[0](x), shift, scale)).unflatten(-1, (3, HEADS, -1))
        query, key, value = joined.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(-2)
        x = x + gate[:, None] * self.output(mixed)
        y = F.gelu(self.wide(_modulated(self.norms[1](x), late_shift, late_scale)), approximate="tanh")
        result: torch.Tensor = x + late_gate[:, None] * self.narrow(y)
        return result


class DiffusionTransformer(nn.Module):
    """Patches of a noisy image through the blocks, back to an image of noise and its variance."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(IMAGE_CHANNELS, WIDTH, PATCH, stride=PATCH)
        self.positions = nn.Parameter(torch.randn(1, (IMAGE_SIZE // PATCH) ** 2, WIDTH))
        self.blocks = nn.ModuleList(_Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False)
        self.modulation = nn.Linear(WIDTH, 2 * WIDTH)
        self.leave = nn.Linear(WIDTH, PATCH * PATCH * 2 * IMAGE_CHANNELS)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Noise [batch, 4, 32, 32]. condition: the embedded time step and class, [batch, 1152]."""
        y = self.enter(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            y = block(y, condition)
        shift, scale = self.modulation(F.silu(condition)).chunk(2, -1)
        patches = self.leave(_modulated(self.norm(y), shift, scale))
        side = IMAGE_SIZE // PATCH
        images = patches.unflatten(-1, (PATCH, PATCH, -1)).unflatten(1, (side, side))
        result: torch.Tensor = images.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
        return result


def build_dit() -> nn.Module:
    """The model with random weights, on torch's default device."""
    torch.manual_seed(WEIGHT_SEED)
    return DiffusionTransformer().eval()


def dit_inputs(batch: int) -> Inputs:
    """A noisy image and its condition, in f32."""
    generator = seeded(0)
    return {
        "x": torch.randn(batch, IMAGE_CHANNELS, IMAGE_SIZE, IMAGE_SIZE, generator=generator),
        "condition": torch.randn(batch, WIDTH, generator=generator),
    }
