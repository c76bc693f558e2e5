"""Products without matrix units, run by the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.schedules.simt import simt_kernel
from hidet.gpu.schedules.tiling import SIMT_TILES
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.gpu.tile.tensors import matrix
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module

Array = np.ndarray[Any, Any]


def multiplied(
    a: Array, b: Array, tiles: MatmulTiles, dtype: DType, *, ta: bool, tb: bool, are_whole: tuple[bool, bool]
) -> Array:
    """a b by the kernel, which finds NaN in the result; operands lie transposed as `ta` and `tb` say."""
    held_a, held_b = np.ascontiguousarray(a.T if ta else a), np.ascontiguousarray(b.T if tb else b)
    at, bt, ct = params = tuple(Var(name, PointerType(dtype)) for name in "abc")
    m, n = a.shape[0], b.shape[1]
    kernel = simt_kernel(
        "product",
        params,
        matrix(at, *held_a.shape),
        matrix(bt, *held_b.shape),
        matrix(ct, m, n),
        tiles,
        a_is_transposed=ta,
        b_is_transposed=tb,
        epilogue=lambda total, row, column: total,
        accumulator=dtype,
        registers=1 << 16,
        are_whole=are_whole,
    )
    outer = tuple(Var(var.name, var.type) for var in params)
    grid = (build.index(-(-m // tiles.m) * -(-n // tiles.n)),)
    launch = s.Launch("product", grid, outer, block=(build.index(32 * tiles.warps[0] * tiles.warps[1]),))
    module = Module((kernel, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    c = np.full((m, n), np.nan, dtype.numpy())
    run_module(module, [held_a, held_b, c])
    return c


@pytest.mark.parametrize(("ta", "tb"), [(False, True), (True, False)])
@pytest.mark.parametrize("tiles", SIMT_TILES)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64])
@pytest.mark.parametrize("are_whole", [True, False])
@pytest.mark.thorough(every=4)
def test_tiles_of_any_matrices_are_multiplied(
    ta: bool, tb: bool, tiles: MatmulTiles, dtype: DType, are_whole: bool
) -> None:
    rng = np.random.default_rng(0)
    m, n, k = (tiles.m + 4, 36, 20) if are_whole else (tiles.m + 3, 35, 19)
    a, b = (rng.standard_normal(shape).astype(dtype.numpy()) for shape in ((m, k), (k, n)))
    result = multiplied(a, b, tiles, dtype, ta=ta, tb=tb, are_whole=(are_whole, are_whole))
    tolerance = 1e-5 if dtype is dtypes.f32 else 1e-13
    np.testing.assert_allclose(result, a.astype(np.float64) @ b.astype(np.float64), rtol=tolerance, atol=tolerance)
