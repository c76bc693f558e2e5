"""Convolutions as products with gathered patches, run by the simulator."""

from dataclasses import replace

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.tile.machine import machine
from hidet.errors import ScheduleError
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.statements import load, ring
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.templates.patches import patches
from hidet.gpu.tile.tensors import GTensor, PatchAxis, STile, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module

SMALL = MatmulTiles(32, 16, 16, 2, (2, 1))


def reference(image, filters, step, spread, before):
    """By the definition, in f64: image [n, h, w, c], filters [o, r, s, c]."""
    count, height, width, _ = image.shape
    _, down, right, _ = filters.shape
    rows, columns = (
        (extent + 2 * before - (taps - 1) * spread - 1) // step + 1 for extent, taps in ((height, down), (width, right))
    )
    padded = np.pad(image.astype(np.float64), ((0, 0), (before, before), (before, before), (0, 0)))
    result = np.zeros((count, rows, columns, filters.shape[0]))
    for r in range(down):
        for t in range(right):
            shifted = padded[:, r * spread :, t * spread :]
            seen = shifted[:, : (rows - 1) * step + 1 : step, : (columns - 1) * step + 1 : step]
            result += seen @ filters[:, r, t].astype(np.float64).T
    return result


def convolve(image, filters, *, step=1, spread=1, before=0, align=16, words=(dtypes.i32, dtypes.i32), splits=1):
    expected = reference(image, filters, step, spread, before)
    count, height, width, channels = image.shape
    n, down, right, _ = filters.shape
    _, rows, columns, _ = expected.shape
    pointers = [e.Var(name, PointerType(t)) for name, t in (("x", dtypes.f16), ("w", dtypes.f16), ("y", dtypes.f32))]
    number = build.index
    axes = [
        PatchAxis(*map(number, (extent, stride, taps, results, step, spread, before)))
        for extent, stride, taps, results in (
            (height, width * channels, down, rows),
            (width, channels, right, columns),
        )
    ]
    image_stride = number(height * width * channels)
    source = patches(
        pointers[0], number(count), image_stride, axes, number(channels), align, of_numbers=words[0], of_places=words[1]
    )
    m, k = count * rows * columns, down * right * channels
    part = build.size_var("part")
    steps = -(-k // SMALL.k)
    each = -(-steps // splits)
    kernel = matmul_kernel(
        "conv",
        tuple(pointers),
        source,
        matrix(pointers[1], n, k, align=align),
        GTensor(build.binary("add", pointers[2], part * (m * n)), number(m), number(n), number(n), 4),
        SMALL,
        b_is_transposed=True,
        steps=(part * each, build.minimum(steps - part * each, each)),
    )
    function = lower_kernel(kernel, machine())
    function = replace(function, grid_vars=(*function.grid_vars, part))
    outer = tuple(e.Var(var.name, var.type) for var in function.params)
    grid = (-(-n // SMALL.n) * -(-m // SMALL.m), splits)
    launch = s.Launch("conv", tuple(map(number, grid)), outer, block=(number(kernel.threads),))
    module = Module((function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    y = np.full((splits, *expected.shape), np.nan, np.float32)
    run_module(module, [image, filters, y])
    return y.sum(0), expected


def image_and_filters(shape, filters):
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape).astype(np.float16), rng.standard_normal(filters).astype(np.float16)


@pytest.mark.parametrize(
    "words",
    [(dtypes.i32, dtypes.i32), (dtypes.i64, dtypes.i32), (dtypes.i64, dtypes.i64)],
    ids=["short", "mixed", "long"],
)
@pytest.mark.parametrize(
    ("filters", "geometry"),
    [
        ((16, 3, 3, 8), {"before": 1}),
        ((8, 3, 3, 8), {"step": 2, "before": 1}),
        ((24, 1, 1, 8), {"step": 2}),
        ((8, 2, 3, 8), {"spread": 2, "before": 2}),
        ((8, 3, 2, 8), {}),
    ],
)
def test_products_with_patches_are_convolutions(words, filters, geometry):
    image, weight = image_and_filters((2, 5, 6, 8), filters)
    result, expected = convolve(image, weight, words=words, **geometry)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "align"), [(4, 8), (3, 2), (24, 16)])
def test_channels_of_a_tap_are_as_many_as_the_alignment_says(channels, align):
    image, weight = image_and_filters((1, 5, 4, channels), (8, 3, 3, channels))
    result, expected = convolve(image, weight, before=1, align=align)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_splits_of_k_sum_to_the_whole():
    image, weight = image_and_filters((1, 4, 4, 24), (8, 3, 3, 24))
    result, expected = convolve(image, weight, before=1, splits=3)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_patches_that_move_in_a_ring_are_refused():
    pointer = e.Var("x", PointerType(dtypes.f16))
    axis = PatchAxis(*map(build.index, (4, 8, 1, 4, 1, 1, 0)))
    source = patches(
        pointer,
        build.index(1),
        build.index(32),
        [axis],
        build.index(8),
        16,
        of_numbers=dtypes.i32,
        of_places=dtypes.i32,
    )
    tile = STile("tile", dtypes.f16, 16, 16)
    body = ring(2, 2, lambda step: [load(tile, source, step * 16, 0)], lambda step: [])
    with pytest.raises(ScheduleError, match="rows of tile move in its ring"):
        lower_kernel(TileKernel("k", (pointer,), (), (1, 1), (body,)), machine())
