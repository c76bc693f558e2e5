"""Epilogue operands: matrices that are read where a product is finished, run by the simulator."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.target import CudaTarget
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.pipeline import lower_pipeline
from hidet.errors import ScheduleError
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.statements import fetch
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import RTile, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module

SMALL = MatmulTiles(32, 16, 16, 2, (2, 1))
LARGE = MatmulTiles(128, 64, 16, 2, (2, 1))
WARP_SPECIALIZED = MatmulTiles(64, 16, 64, 3, (4, 1))
LARGE_WARP_SPECIALIZED = MatmulTiles(64, 128, 64, 2, (4, 1))
THROUGH_RING = (
    LARGE_WARP_SPECIALIZED,
    MatmulTiles(64, 256, 64, 2, (4, 1)),
    MatmulTiles(128, 192, 64, 2, (8, 1)),
    MatmulTiles(128, 256, 64, 3, (8, 1)),
)
"""Tiles whose stages take one panel of a matrix, several of them, or all."""


def finished(m, n, k, tiles, align, *, warp_specialized=False, cluster=1):
    """relu(a b * column * one + r + row) by a kernel that finds NaN in the result, and by numpy."""
    rng = np.random.default_rng(0)
    shapes = ((m, k), (n, k), (m, n), (1, n), (m, 1), (1, 1))
    given = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    at, bt, rt, wt, st, ot, ct = params = tuple(e.Var(name, PointerType(dtypes.f16)) for name in "abrwsoc")

    def finish(total, _row, _column, *elements):
        other, same, column, one = (build.cast(element, dtypes.f32) for element in elements)
        return build.cast(build.maximum(total * column * one + other + same, 0), dtypes.f16)

    kernel = matmul_kernel(
        "matmul",
        params,
        matrix(at, m, k, align=16),
        matrix(bt, n, k, align=16),
        matrix(ct, m, n, align=align),
        tiles,
        b_is_transposed=True,
        epilogue=finish,
        epilogue_operands=(
            matrix(rt, m, n, align=align),
            matrix(wt, m, n, 0, align=align),
            matrix(st, m, 1),
            matrix(ot, m, 1, 0),
        ),
    )
    outer = tuple(e.Var(var.name, var.type) for var in params)
    if warp_specialized:
        pipeline = lower_pipeline(kernel, CudaTarget("sm_90a"), shares_copies=cluster > 1, weights=(bt,))
        maps = [each.request(dict(zip(params, outer, strict=True))).call() for each in pipeline.maps]
        function, grid, threads = pipeline.function, (2 * cluster,), pipeline.threads
    else:
        function, grid, maps, threads = (
            lower_kernel(kernel, machine()),
            (-(-n // tiles.n) * -(-m // tiles.m),),
            [],
            kernel.threads,
        )
    launch = s.Launch(
        "matmul",
        tuple(map(build.index, grid)),
        (*outer, *maps),
        block=(build.index(threads),),
        cluster=(build.index(cluster),) if cluster > 1 else (),
    )
    module = Module((function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    assert tiles not in THROUGH_RING or "map_operand" in [param.name for param in function.params]
    c = np.full((m, n), np.nan, np.float16)
    run_module(module, [*given, c])
    left, right, other, same, column, one = (each.astype(np.float64) for each in given)
    return c.astype(np.float64), np.maximum(left @ right.T * column * one + other + same, 0)


@pytest.mark.parametrize("tiles", [SMALL, LARGE])
@pytest.mark.parametrize(("n", "align"), [(24, 16), (18, 4), (13, 2)])
def test_other_matrices_and_rows_are_added_and_columns_and_single_elements_are_factors(tiles, n, align):
    result, expected = finished(40, n, 32, tiles, align)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("m", "n", "k"), [(136, 40, 64), (300, 264, 256)])
@pytest.mark.parametrize("tiles", [WARP_SPECIALIZED, *THROUGH_RING])
@pytest.mark.thorough(every=2)
def test_warp_specialized_kernels_read_them_for_every_tile(tiles, m, n, k):
    result, expected = finished(m, n, k, tiles, 16, warp_specialized=True)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("tiles", [THROUGH_RING[0], THROUGH_RING[-1]])
def test_blocks_that_share_copies_bring_their_own(tiles):
    result, expected = finished(300, 264, 256, tiles, 16, warp_specialized=True, cluster=2)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


def test_large_tiles_have_registers_for_rows_alone_if_a_block_has_the_multiprocessor_to_itself():
    row, column, other = (RTile("other", dtypes.f16, *shape) for shape in ((1, 128), (128, 1), (128, 128)))
    alone = MatmulTiles(128, 128, 64, 2, (8, 1))
    assert alone.leaves_registers(row) and not alone.leaves_registers(other)
    assert not LARGE_WARP_SPECIALIZED.leaves_registers(row)
    assert WARP_SPECIALIZED.leaves_registers(other) and LARGE_WARP_SPECIALIZED.leaves_registers(column)


def test_a_tile_is_fetched_from_a_matrix_of_its_type():
    source = matrix(e.Var("x", PointerType(dtypes.f32)), 8, 8)
    with pytest.raises(ScheduleError, match="tile t of f16 is fetched from a matrix of f32"):
        fetch(RTile("t", dtypes.f16, 16, 16), source, 0, 0)
