"""Layers of transformers in eval mode, which eager mode computes by one operator each, are compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hidet
from hidet.torch.encoder import multi_head_attention

RANDOM = torch.Generator().manual_seed(1)
X = torch.randn(3, 5, 16, dtype=torch.float64, generator=RANDOM)
PADDING = torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)

MASKS: dict[str, dict[str, torch.Tensor]] = {
    "none": {},
    "causal": {"src_mask": CAUSAL},
    "floats": {"src_mask": nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)},
    "padding": {"src_key_padding_mask": PADDING},
    "both": {"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
    "by head": {"src_mask": torch.rand(6, 5, 5, generator=RANDOM) > 0.7},
    "rows without keys": {"src_mask": (torch.arange(5) % 2 == 0)[:, None].expand(5, 5)},
}


def _layer(**settings: Any) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dtype=torch.float64, **settings)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def _assert_compiled(model: nn.Module, *arguments: torch.Tensor, **kwargs: Any) -> None:
    torch.compiler.reset()
    with torch.no_grad():
        want = model(*arguments, **kwargs)
        got = torch.compile(model, backend="hidet", options={"strict": True})(*arguments, **kwargs)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("settings", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
def test_a_layer_is_that_of_eager_mode(settings: dict[str, Any]) -> None:
    """defects.md, left to torch: _transformer_encoder_layer_fwd."""
    _assert_compiled(_layer(**settings), X)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.thorough(every=2)
def test_masks_are_those_of_eager_mode(name: str) -> None:
    _assert_compiled(_layer(), X, **MASKS[name])


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("weights", [None, "mean", "all"])
def test_the_operators_give_what_their_parts_give(name: str, weights: str | None) -> None:
    layer = _layer()
    padding, mask = MASKS[name].get("src_key_padding_mask"), MASKS[name].get("src_mask")
    merged, kind = layer.self_attn.merge_masks(mask, padding, X)
    if name == "floats":
        assert merged is not None
        merged = merged != 0
    projections = (*layer.self_attn.in_proj_weight[None], layer.self_attn.in_proj_bias)
    arguments = (
        *(X, X, X, 16, 2, *projections, layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias, merged),
        *(weights is not None, weights == "mean", kind),
    )
    with torch.no_grad():
        want, got = torch._native_multi_head_attention(*arguments), multi_head_attention(*arguments)
    torch.testing.assert_close(got[0], want[0], rtol=1e-10, atol=1e-10, equal_nan=True)
    if weights is not None:
        torch.testing.assert_close(got[1], want[1], rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_encoders_and_whole_transformers_are_compiled() -> None:
    """defects.md, left to torch: TransformerEncoder, Transformer."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {"batch_first": True, "dtype": torch.float64}
    encoder = nn.TransformerEncoder(_layer(), 2, nn.LayerNorm(16, dtype=torch.float64), enable_nested_tensor=False)
    _assert_compiled(encoder.eval(), X, src_key_padding_mask=PADDING)
    model = nn.Transformer(16, 2, 1, 1, 32, **settings).eval()
    _assert_compiled(model, X, X[:, :4], tgt_mask=CAUSAL[:4, :4])


def test_an_exported_layer_is_compiled() -> None:
    layer = _layer()
    compiled = hidet.compile(layer, (X,))
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), layer(X), rtol=1e-10, atol=1e-10)


def test_half_precision_is_as_good_as_eager_mode() -> None:
    layer, exact = _layer().bfloat16(), _layer()
    with torch.no_grad():
        right = exact.bfloat16().double()(X.bfloat16().double())
        want = layer(X.bfloat16()).double()
        got = torch.compile(layer, backend="hidet", options={"strict": True})(X.bfloat16()).double()
    error, theirs = ((found - right).square().mean().sqrt() for found in (got, want))
    assert error <= 2 * theirs + torch.finfo(torch.bfloat16).eps
