"""Products with matrices and rows as epilogue operands, in tiles too large to keep these in registers: run by the
simulator."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.tile.machine import machine
from hidet.gpu.simulator.traffic import Traffic
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import GTensor, RTile, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.printer import print_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module

LARGE = MatmulTiles(16, 128, 16, 2, (1, 1))
K = 24


def finished(
    m, n, tiles=LARGE, *, out=dtypes.f16, operand=dtypes.f16, align=16, operand_align=16, features=(), traffic=None, k=K
):
    """relu(a b * column * one + row + matrix * 2 + column number / 128), by the kernel and by numpy; and the module's
    text."""
    assert not tiles.leaves_registers(RTile("operand", operand, tiles.m, tiles.n))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    other, row = (rng.standard_normal(shape).astype(operand.numpy()) for shape in ((m, n), (n,)))
    column, one = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((m, 1), (1, 1)))
    names = {"a": dtypes.f16, "b": dtypes.f16, "other": operand, "row": operand}
    names |= {"column": dtypes.f32, "one": dtypes.f32, "c": out}
    params = tuple(e.Var(name, PointerType(dtype)) for name, dtype in names.items())
    c = matrix(params[6], m, n, align=align)
    kernel = matmul_kernel(
        "matmul",
        params,
        matrix(params[0], m, k, align=16),
        matrix(params[1], n, k, align=16),
        c,
        tiles,
        b_is_transposed=True,
        epilogue_operands=(
            GTensor(params[2], c.rows, c.columns, build.index(n), operand_align),
            GTensor(params[3], c.rows, c.columns, build.index(0), operand_align),
            GTensor(params[4], c.rows, build.index(1), build.index(1), 4),
            GTensor(params[5], c.rows, build.index(1), build.index(0), 4),
        ),
        epilogue=lambda total, i, j, of_matrix, of_row, of_column, one: build.cast(
            build.maximum(
                total * of_column * one
                + build.cast(of_row, dtypes.f32)
                + build.cast(of_matrix, dtypes.f32) * 2
                + build.cast(j, dtypes.f32) / 128,
                0,
            ),
            out,
        ),
    )
    function = lower_kernel(kernel, machine(features.__contains__))
    outer = tuple(e.Var(var.name, var.type) for var in function.params)
    grid = (build.index(-(-n // tiles.n) * -(-m // tiles.m)),)
    launch = s.Launch(function.name, grid, outer, block=(build.index(kernel.threads),))
    module = Module((function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    result = np.full((m, n), np.nan, out.numpy())
    run_module(module, [a, b, other, row, column, one, result], traffic=traffic)
    scaled = a.astype(np.float64) @ b.astype(np.float64).T * column.astype(np.float64) * one.astype(np.float64)
    exact = scaled + row.astype(np.float64) + 2 * other.astype(np.float64)
    return result.astype(np.float64), np.maximum(exact + np.arange(n) / 128, 0), print_module(module)


def agrees(result, expected):
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("m", "n"), [(16, 128), (32, 256), (20, 128), (16, 136), (7, 40), (37, 264)])
def test_inside_and_at_the_ends_of_the_matrix(m, n):
    result, expected, text = finished(m, n)
    agrees(result, expected)
    assert "staged" in text


@pytest.mark.parametrize("tiles", [MatmulTiles(32, 256, 16, 2, (2, 1)), MatmulTiles(32, 128, 32, 2, (1, 2))], ids=str)
def test_every_warp_turns_its_own_part(tiles):
    result, expected, _ = finished(40, 264, tiles)
    agrees(result, expected)


@pytest.mark.parametrize(
    ("out", "operand"), [(dtypes.f32, dtypes.f16), (dtypes.f32, dtypes.f32), (dtypes.f16, dtypes.f32)]
)
def test_types_may_differ(out, operand):
    result, expected, text = finished(20, 128, out=out, operand=operand)
    agrees(result, expected)
    assert "staged" in text


@pytest.mark.parametrize("operand_align", [2, 4, 8])
def test_epilogue_operands_are_read_as_their_alignment_lets(operand_align):
    result, expected, _ = finished(16, 128, operand_align=operand_align)
    agrees(result, expected)


@pytest.mark.parametrize("align", [2, 4])
def test_without_wide_rows_elements_are_mapped_as_products_leave_them(align):
    """What is staged then are results, not products."""
    result, expected, text = finished(20, 136, align=align)
    agrees(result, expected)
    assert "~f16 @ shared" in text and "~f32 @ shared" not in text
    assert "~f32 @ shared" in finished(20, 136, align=16)[2]


def test_warp_groups_finish_like_single_warps():
    result, expected, text = finished(72, 136, MatmulTiles(64, 128, 16, 2, (4, 1)), features=("wgmma", "stmatrix"))
    agrees(result, expected)
    assert "cuda.wgmma.m64" in text


def test_rows_are_read_and_written_in_whole_sectors():
    traffic = Traffic()
    finished(16, 128, traffic=traffic)
    assert not [text for text in traffic.scattered() if "copy_async" not in text]


@pytest.mark.parametrize(("m", "n"), [(37, 128), (32, 264), (9, 136), (33, 24)])
def test_cut_tiles_of_whole_chunks_are_written_like_others(m, n):
    """Rows that are left over are written 16 bytes at a time by all lanes, as those of whole tiles are: written one by
    one, they would be waited for row after row."""
    traffic = Traffic()
    result, expected, _ = finished(m, n, traffic=traffic)
    agrees(result, expected)
    written = [text for text in traffic.outside if text.startswith("`c[")]
    assert written and all("f16x8" in text for text in written)


@pytest.mark.parametrize(("m", "n"), [(37, 132), (16, 1), (3, 260)])
def test_chunks_that_are_cut_are_written_one_by_one(m, n):
    result, expected, _ = finished(m, n, align=16 if n % 8 == 0 else 2, operand_align=2)
    agrees(result, expected)


@pytest.mark.parametrize(
    ("m", "n", "align", "operand_align"), [(40, 72, 16, 16), (24, 64, 16, 16), (50, 61, 2, 2), (21, 136, 16, 4)]
)
def test_transposed_tiles_add_matrices_and_rows(m, n, align, operand_align):
    tiles = MatmulTiles(24, 64, 32, 3, (1, 4), is_transposed=True)
    features = ("wgmma", "stmatrix")
    result, expected, text = finished(m, n, tiles, align=align, operand_align=operand_align, features=features, k=64)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)
    assert "cuda.wgmma.m64n24k16" in text
