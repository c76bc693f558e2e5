"""Attention in tiles, run by the simulator."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.warp_specialized import lower_warp_specialized
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.attention import AttentionTiles, Heads, attention_kernel, causal
from hidet.gpu.tile.tensors import matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module


def attend(
    heads,
    rows,
    length,
    depth,
    tiles,
    dtype=dtypes.f16,
    features=(),
    score=None,
    hidden=None,
    warp_specialized=False,
    **more,
):
    """What the kernel computes and what numpy does, of random queries, keys and values [heads, rows, depth]."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((heads, n, depth)).astype(dtype.numpy()) for n in (rows, length, length))
    out = np.zeros((heads, rows, depth), dtype.numpy())
    pointers = [e.Var(name, PointerType(dtype)) for name in ("q", "k", "v", "out")]
    block, head = build.size_var("block"), build.size_var("head")
    matrices = [
        matrix_of(pointer, head * (n * depth), n, depth)
        for pointer, n in zip(pointers, (rows, length, length, rows), strict=True)
    ]
    wide = -(-depth // 16) * 16
    kernel = attention_kernel(
        "attention",
        tuple(pointers),
        Heads(*matrices, wide, wide),
        1 / math.sqrt(depth),
        tiles,
        grid_vars=(block, head),
        block=block,
        score=score,
        **more,
    )
    outer = tuple(e.Var(var.name, var.type) for var in pointers)
    grid = (build.index(-(-rows // tiles.rows)), build.index(heads))
    launch = s.Launch("attention", grid, outer, block=(build.index(kernel.threads),))
    function = lower_kernel(kernel, machine(features.__contains__))
    if warp_specialized:
        lowered = lower_warp_specialized(kernel)
        function, launch = lowered.function, replace(launch, block=(build.index(lowered.threads),))
    module = Module((function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    run_module(module, [q, k, v, out])
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) / math.sqrt(depth)
    scores = np.where(hidden(*np.mgrid[:rows, :length]), -np.inf, scores) if hidden is not None else scores
    top = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(axis=2, keepdims=True)
    return out.astype(np.float64), weights / np.where(total == 0, 1, total) @ v.astype(np.float64)


def matrix_of(pointer, start, rows, columns):
    dense = matrix(pointer, rows, columns, align=16)
    return type(dense)(build.binary("add", pointer, start), dense.rows, dense.columns, dense.row_stride, dense.align)


SMALL = AttentionTiles(16, 16, 2, 1)


@pytest.mark.parametrize(("rows", "length"), [(16, 16), (16, 48), (20, 40), (3, 7)])
def test_rows_and_keys_need_not_fill_tiles(rows, length):
    found, expected = attend(1, rows, length, 16, SMALL)
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("tiles", "depth", "dtype"),
    [
        (AttentionTiles(32, 32, 3, 2), 32, dtypes.f16),
        (AttentionTiles(64, 16, 2, 4), 24, dtypes.f16),
        (AttentionTiles(16, 48, 2, 1), 64, dtypes.bf16),
    ],
)
def test_tiles_depths_types_and_heads_may_differ(tiles, depth, dtype):
    found, expected = attend(2, 40, 56, depth, tiles, dtype)
    tolerance = 4e-3 if dtype is dtypes.f16 else 3e-2
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_a_causal_row_sees_keys_up_to_its_own():
    found, expected = attend(1, 40, 40, 16, SMALL, band=causal(), hidden=lambda row, key: key > row)
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)


def test_a_mask_may_leave_a_row_without_keys():
    def score(value, row, first, column):
        key = first + column
        seen = build.logical_and(build.equal((row + key) % 3, 0), build.binary("ne", row, 5))
        return build.select(seen, value, -math.inf)

    found, expected = attend(1, 16, 24, 16, SMALL, score=score, hidden=lambda r, c: ((r + c) % 3 != 0) | (r == 5))
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)
    assert (found[0, 5] == 0).all()


def test_scores_are_computed_by_warp_groups_where_they_are():
    found, expected = attend(1, 64, 64, 32, AttentionTiles(64, 32, 2, 4), features=("wgmma", "stmatrix"))
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)


WARP_SPECIALIZED = AttentionTiles(128, 32, 2, 8)


@pytest.mark.parametrize(
    ("rows", "length", "depth", "tiles"),
    [
        (128, 64, 32, AttentionTiles(128, 32, 2, 8)),
        (140, 100, 64, AttentionTiles(128, 32, 3, 8)),
        (20, 30, 24, AttentionTiles(128, 16, 4, 8)),
        (200, 90, 64, AttentionTiles(192, 16, 4, 12)),
    ],
)
@pytest.mark.parametrize("is_skewed", [False, True], ids=["in order", "skewed"])
@pytest.mark.thorough(every=2)
def test_a_warp_group_may_copy_for_others(rows, length, depth, tiles, is_skewed):
    found, expected = attend(1, rows, length, depth, tiles, warp_specialized=True, is_skewed=is_skewed)
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("warp_specialized", [False, True], ids=["one kind of warps", "warp-specialized"])
def test_values_may_be_multiplied_a_step_later_and_a_part_of_the_keys_be_seen(warp_specialized):
    part = (build.index(24), build.index(40))
    hidden = lambda row, key: (key < 24) | (key >= 64)  # noqa: E731
    tiles = WARP_SPECIALIZED if warp_specialized else SMALL
    found, expected = attend(
        1, 20, 70, 32, tiles, hidden=hidden, part=part, is_skewed=True, warp_specialized=warp_specialized
    )
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)


def test_skewed_rows_without_any_key_are_zero():
    hidden = lambda row, key: key >= 0  # noqa: E731
    part = (build.index(0), build.index(0))
    found, _ = attend(1, 20, 70, 32, SMALL, hidden=hidden, part=part, is_skewed=True)
    assert (found == 0).all()


def test_causal_rows_of_warp_specialized_kernels():
    found, expected = attend(
        2,
        140,
        140,
        64,
        WARP_SPECIALIZED,
        dtypes.bf16,
        band=causal(),
        hidden=lambda row, key: key > row,
        warp_specialized=True,
    )
    np.testing.assert_allclose(found, expected, rtol=3e-2, atol=3e-2)
