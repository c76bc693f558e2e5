"""A decoder of Llama-3-8B's shape with few layers, in plain torch: one step with a filled cache, or a prompt."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.models.entry import WEIGHT_SEED, Inputs, seeded

WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY = 4096, 32, 8, 14336, 128256
HEAD_WIDTH = WIDTH // HEADS
_BASE = 500_000.0


class _Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat((-high, low), -1) * sine


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.hidden_norm = _Norm(), _Norm()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, GROUPS * HEAD_WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, GROUPS * HEAD_WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        batch, length, _ = x.shape

        def heads(rows: torch.Tensor) -> torch.Tensor:
            return rows.view(batch, length, -1, HEAD_WIDTH).transpose(1, 2)

        y = self.attention_norm(x)
        query = _rotated(heads(self.query(y)), cosine, sine)
        key, value = _rotated(heads(self.key(y)), cosine, sine), heads(self.value(y))
        # A prompt's tokens see those before them, a step's token all of them. `length > 1` is a symbol's, no bool.
        is_causal = True
        if keys.shape[2]:
            is_causal = False
            key, value = torch.cat((keys, key), 2), torch.cat((values, value), 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal, enable_gqa=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        y = self.hidden_norm(x)
        result: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return result


class LlamaLayers(nn.Module):
    """`layers` decoder layers between an embedding and a head, which sees the last token alone."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(_Layer() for _ in range(layers))
        self.norm = _Norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(
        self,
        tokens: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        """Logits [batch, 1, vocabulary] of the last token. keys, values: the cache, [batch, groups, past, width]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine, keys, values)
        logits: torch.Tensor = self.head(self.norm(x)[:, -1:])
        return logits


def build_llama(layers: int = 4) -> nn.Module:
    """The decoder with random weights, on torch's default device."""
    torch.manual_seed(WEIGHT_SEED)
    return LlamaLayers(layers).eval()


def llama_inputs(batch: int, *, length: int, past: int, seed: int = 0) -> Inputs:
    """Tokens, rotary factors and a filled cache for `length` tokens after `past` others; floats are f32."""
    generator = seeded(seed)
    positions = torch.arange(past, past + length, dtype=torch.float32)
    angles = torch.outer(positions, _BASE ** (-torch.arange(0, HEAD_WIDTH, 2).float() / HEAD_WIDTH)).repeat(1, 2)
    cache = (batch, GROUPS, past, HEAD_WIDTH)
    return {
        "tokens": torch.randint(0, VOCABULARY, (batch, length), generator=generator),
        "cosine": angles.cos(),
        "sine": angles.sin(),
        "keys": torch.randn(cache, generator=generator),
        "values": torch.randn(cache, generator=generator),
    }
