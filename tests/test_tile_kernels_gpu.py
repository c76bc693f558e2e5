"""Kernels in tiles of users on a GPU: the steps of docs/tile-kernels.md. Run by `pytest -m gpu`."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from hidet.gpu.testing.tile_ladder import (
    LadderTiles,
    attention,
    naive_product,
    pipelined_product,
    product_with_epilogue,
)
from hidet.gpu.tile.script import TileScript
from hidet.lang import f16

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NARROW, WIDE = LadderTiles(64, 64, 32, 3, (2, 2)), LadderTiles(128, 128, 32, 4, (2, 4))
GROUPS, HEADS = LadderTiles(128, 256, 64, 4, (8, 1)), LadderTiles(128, 64, 0, 2, (8, 1))
HEADS_OF_WARPS = LadderTiles(64, 64, 0, 2, (4, 1))


@pytest.mark.parametrize("size", [(4096, 4096, 1024), (333, 777, 555), (1, 8, 8), (64, 64, 0)])
@pytest.mark.parametrize(
    ("make", "tiles", "has_bias"),
    [
        (naive_product, NARROW, False),
        (pipelined_product, NARROW, False),
        (product_with_epilogue, WIDE, True),
        (pipelined_product, GROUPS, False),
    ],
)
def test_products_are_right_on_a_device(
    make: Callable[..., TileScript], tiles: LadderTiles, has_bias: bool, size: tuple[int, int, int]
) -> None:
    m, n, k = size
    torch.manual_seed(0)
    a, b = torch.randn(m, k, device="cuda", dtype=torch.float16), torch.randn(k, n, device="cuda", dtype=torch.float16)
    bias, c = torch.randn(n, device="cuda", dtype=torch.float16), torch.full((m, n), math.nan, device="cuda").half()
    make(f16, tiles)(a, b, *((bias,) if has_bias else ()), c)
    exact = a.double() @ b.double()
    exact = (exact + bias.double()).relu() if has_bias else exact
    torch.testing.assert_close(c.double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("rows", "tiles"), [(4096, HEADS), (150, HEADS), (333, HEADS_OF_WARPS)])
def test_attention_is_right_on_a_device(rows: int, tiles: LadderTiles, is_causal: bool) -> None:
    torch.manual_seed(0)
    q, keys, values = (torch.randn(4, rows, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.full_like(q, math.nan)
    attention(f16, 64, tiles, is_causal=is_causal)(q, keys, values, out)
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.double(), keys.double(), values.double(), is_causal=is_causal
    )
    torch.testing.assert_close(out.double(), exact, rtol=4e-3, atol=4e-3)
