"""torch's operators for whole layers of a transformer in inference, written in the parts that they compute.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` call them in eval mode where no gradient is recorded.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_OF_ROWS, _OF_KEYS = 0, 1


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of [batch, length, embed_dim] and its weights, which are empty where nobody needs them.

    mask: what a row does not read is True, or any number but 0. mask_type: 0 for [rows, keys], 1 for [batch, keys],
    else it broadcasts to [batch, heads, rows, keys]. A row that reads nothing is NaN.
    """
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (_heads(functional.linear(x, weight, bias), num_head) for x, weight, bias in parts)
    shown = _shown(mask, mask_type)
    weights = query.new_empty(0)
    if need_weights:
        scores = torch.matmul(q * (embed_dim // num_head) ** -0.5, k.transpose(-2, -1))
        if shown is not None:
            scores = torch.where(shown, scores, -torch.inf)
        of_heads = torch.softmax(scores, -1)
        found = torch.matmul(of_heads, v)
        weights = of_heads.mean(1) if average_attn_weights else of_heads
    else:
        found = functional.scaled_dot_product_attention(q, k, v, shown)
        if shown is not None:
            # A mean of nothing, where attention alone has 0.
            found = torch.where(shown.any(-1, keepdim=True), found, torch.nan)
    joined = found.transpose(1, 2).reshape(query.shape[0], query.shape[1], embed_dim)
    return functional.linear(joined, proj_weight, proj_bias), weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """A layer of `nn.TransformerEncoder`, with masks as `multi_head_attention` has them."""

    def attend(x: Tensor) -> Tensor:
        projected = qkv_weight, qkv_bias, proj_weight, proj_bias
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, *projected, mask, need_weights=False, mask_type=mask_type
        )[0]

    def feed(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        activated = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(activated, ffn_weight_2, ffn_bias_2)

    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        attended = src + attend(first(src))
        return attended + feed(second(attended))
    attended = first(src + attend(src))
    return second(attended + feed(attended))


def _heads(x: Tensor, count: int) -> Tensor:
    """[batch, heads, length, width] of [batch, length, heads * width]."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count).transpose(1, 2)


def _shown(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """What rows read, with axes that broadcast to [batch, heads, rows, keys]."""
    if mask is None:
        return None
    hidden = mask.to(torch.bool)
    if mask_type == _OF_ROWS:
        hidden = hidden[None, None]
    elif mask_type == _OF_KEYS:
        hidden = hidden[:, None, None]
    return hidden.logical_not()
