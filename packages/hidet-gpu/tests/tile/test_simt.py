"""Kernels in tiles on a GPU without a matrix unit, run by the simulator."""

import math

import numpy as np
import pytest

from hidet import dtypes
from hidet.errors import ScheduleError
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.lower.simt import SIMT
from hidet.gpu.tile.statements import fill, load, mma
from hidet.gpu.tile.templates.attention import AttentionTiles, Heads, attention_kernel
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import GTensor, RTile, STile, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.printer import print_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module


def run(kernel, grid, arrays):
    function = lower_kernel(kernel, SIMT)
    outer = tuple(e.Var(var.name, var.type) for var in function.params)
    launch = s.Launch(function.name, tuple(map(build.index, grid)), outer, block=(build.index(kernel.threads),))
    module = Module((function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    run_module(module, arrays)
    return print_module(module)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 16, 32), (33, 20, 24), (1, 8, 40)])
@pytest.mark.parametrize(("ta", "tb"), [(False, True), (True, False)])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.f32, dtypes.i8], ids=str)
@pytest.mark.thorough(every=4)
def test_products_are_right_without_copies_in_the_background(m, n, k, ta, tb, dtype):
    tiles, out = MatmulTiles(32, 16, 16, 2, (2, 1)), dtypes.i32 if dtype.is_int else dtypes.f32
    a, b = (np.random.default_rng(n).integers(-4, 4, shape).astype(dtype.numpy()) for shape in ((m, k), (k, n)))
    held = np.ascontiguousarray(a.T if ta else a), np.ascontiguousarray(b.T if tb else b)
    c = np.zeros((m, n), out.numpy())
    pointers = [e.Var(name, PointerType(t)) for name, t in (("a", dtype), ("b", dtype), ("c", out))]
    matrices = [matrix(pointer, *array.shape) for pointer, array in zip(pointers, (*held, c), strict=True)]
    kernel = matmul_kernel(
        "matmul", tuple(pointers), *matrices, tiles, a_is_transposed=ta, b_is_transposed=tb, factors=dtype
    )
    text = run(kernel, (-(-n // tiles.n) * -(-m // tiles.m),), [*held, c])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
    assert "cuda." not in text


def heads_of(pointers, rows, depth):
    return [GTensor(p, build.index(rows), build.index(depth), build.index(depth), 16) for p in pointers]


def attention_of(rows, depth, tiles):
    pointers = [e.Var(name, PointerType(dtypes.f16)) for name in ("q", "k", "v", "out")]
    block = build.size_var("block")
    heads = Heads(*heads_of(pointers, rows, depth), depth, depth)
    return attention_kernel(
        "attention", tuple(pointers), heads, 1 / math.sqrt(depth), tiles, grid_vars=(block,), block=block
    )


def test_attention_multiplies_from_registers():
    rows, depth = 40, 16
    q, k, v = (np.random.default_rng(n).standard_normal((rows, depth)).astype(np.float16) for n in range(3))
    out = np.zeros((rows, depth), np.float16)
    tiles = AttentionTiles(32, 16, 2, 2)
    run(attention_of(rows, depth, tiles), (2,), [q, k, v, out])
    scores = q.astype(np.float64) @ k.astype(np.float64).T / math.sqrt(depth)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=4e-3, atol=4e-3)


def test_registers_whose_columns_warps_share_are_refused():
    left, total = RTile("left", dtypes.f32, 16, 32), RTile("total", dtypes.f32, 16, 32)
    right = STile("right", dtypes.f16, 32, 32)
    source = matrix(e.Var("x", PointerType(dtypes.f16)), 32, 32)
    body = (fill(left, 1), load(right, source, 0, 0), mma(total, left, right))
    with pytest.raises(ScheduleError, match="left over 2 warps along its columns"):
        lower_kernel(TileKernel("k", (source.pointer,), (), (1, 2), body), SIMT)
