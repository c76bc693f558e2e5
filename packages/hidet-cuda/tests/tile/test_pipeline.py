"""Kernels in which one thread copies and warp groups multiply, run by the simulator: right, and free of races."""

import math

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.target import CudaTarget
from hidet.cuda.tile.pipeline import CLUSTER, can_share_copies, fits_pipeline, lower_pipeline
from hidet.gpu.tile.lower.statements import array_bytes
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import GTensor, computed, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module
from hidet.ir.visit import walk

TARGET = CudaTarget("sm_90a")
NARROW = MatmulTiles(64, 16, 64, 4, (4, 1))


def pointers(dtype=dtypes.f16, out=dtypes.f16):
    return [e.Var(name, PointerType(type_)) for name, type_ in (("a", dtype), ("b", dtype), ("c", out))]


def launched(kernel, blocks, *, cluster=1, weights=""):
    """A module that launches `blocks` blocks, whatever the number of tiles, in clusters that share copies. weights:
    names of parameters that point to weights."""
    of_weights = [param for param in kernel.params if param.name in weights]
    pipeline = lower_pipeline(kernel, TARGET, shares_copies=cluster > 1, weights=of_weights)
    outer = tuple(e.Var(var.name, var.type) for var in kernel.params)
    given = dict(zip(kernel.params, outer, strict=True))
    maps = [described.request(given).call() for described in pipeline.maps]
    launch = s.Launch(
        kernel.name,
        (build.index(blocks),),
        (*outer, *maps),
        block=(build.index(pipeline.threads),),
        cluster=(build.index(cluster),) if cluster > 1 else (),
    )
    module = Module((pipeline.function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    return module


def multiply(
    m,
    n,
    k,
    tiles=NARROW,
    blocks=2,
    *,
    ta=False,
    tb=True,
    dtype=dtypes.f16,
    out=dtypes.f16,
    align=16,
    cluster=1,
    weights="",
    **more,
):
    """A product by the kernel, which finds NaN in the result, and by numpy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype.numpy()) for shape in ((m, k), (k, n)))
    held_a, held_b = np.ascontiguousarray(a.T if ta else a), np.ascontiguousarray(b.T if tb else b)
    at, bt, ct = params = pointers(dtype, out)
    kernel = matmul_kernel(
        "matmul",
        tuple(params),
        matrix(at, *held_a.shape, align=16),
        matrix(bt, *held_b.shape, align=16),
        matrix(ct, m, n, align=align),
        tiles,
        a_is_transposed=ta,
        b_is_transposed=tb,
        **more,
    )
    c = np.full((m, n), np.nan, out.numpy())
    run_module(launched(kernel, blocks, cluster=cluster, weights=weights), [held_a, held_b, c])
    return c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize(
    ("tiles", "ta", "tb", "dtype"),
    [
        (MatmulTiles(64, 32, 64, 3, (4, 1)), False, True, dtypes.f16),
        (MatmulTiles(64, 64, 64, 2, (4, 1)), True, False, dtypes.bf16),
        (MatmulTiles(128, 64, 64, 3, (8, 1)), False, False, dtypes.f16),
        (MatmulTiles(64, 128, 32, 2, (4, 1)), True, True, dtypes.f16),
    ],
)
def test_operands_come_in_either_order(tiles, ta, tb, dtype):
    result, expected = multiply(72, 136, 144, tiles, ta=ta, tb=tb, dtype=dtype)
    tolerance = 2e-3 if dtype is dtypes.f16 else 2e-2
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def test_tma_rounds_f32_to_tf32():
    tiles = MatmulTiles(64, 32, 32, 3, (4, 1))
    result, expected = multiply(72, 40, 72, tiles, dtype=dtypes.f32, out=dtypes.f32, factors=dtypes.tf32)
    off = np.abs(result - expected)
    # Seventy products whose factors are right to 2^-11 each; dropped digits would be wrong by twice that in one way.
    assert 1e-5 < np.sqrt(np.mean(off**2)) < 2**-11 * np.sqrt(72 * 2 / 3)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (64, 16, 64), (65, 24, 72), (130, 40, 520)])
@pytest.mark.parametrize("blocks", [1, 3])
def test_blocks_walk_over_all_tiles_of_any_size(m, n, k, blocks):
    result, expected = multiply(m, n, k, blocks=blocks)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("weights", ["b", "a", "ab"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (64, 16, 256), (130, 40, 520)])
@pytest.mark.parametrize(("blocks", "cluster"), [(1, 1), (3, 1), (4, CLUSTER)])
@pytest.mark.thorough(every=6)
def test_stages_that_are_begun_early_are_those_of_the_first_tile(weights, m, n, k, blocks, cluster):
    """Fewer steps than stages, as many, and more; one tile a block, and several."""
    result, expected = multiply(m, n, k, blocks=blocks, cluster=cluster, weights=weights)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-2)


def test_rows_of_tiles_are_swept_in_groups_and_none_is_left_out():
    result, expected = multiply(64 * 9, 40, 8, blocks=5)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("align", [2, 4, 16])
@pytest.mark.parametrize("out", [dtypes.f16, dtypes.f32])
def test_results_are_written_as_far_as_they_are_aligned(align, out):
    result, expected = multiply(70, 24, 64, out=out, align=max(align, out.nbytes))
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("tiles", "out", "slots"),
    [
        (MatmulTiles(64, 64, 64, 3, (4, 1)), dtypes.f16, 1),
        (MatmulTiles(64, 128, 64, 3, (4, 1)), dtypes.f16, 2),
        (MatmulTiles(64, 96, 64, 3, (4, 1)), dtypes.f32, 1),
        (MatmulTiles(64, 96, 64, 6, (4, 1)), dtypes.f32, 3),
        (MatmulTiles(128, 160, 64, 3, (8, 1)), dtypes.bf16, 5),
        (MatmulTiles(128, 256, 64, 4, (8, 1)), dtypes.f16, 2),
        (MatmulTiles(64, 256, 64, 5, (4, 1)), dtypes.f16, 2),
        (MatmulTiles(192, 192, 64, 4, (12, 1)), dtypes.f16, 1),
    ],
)
@pytest.mark.parametrize(("m", "n", "blocks"), [(150, 264, 2), (70, 8, 1)])
@pytest.mark.thorough(every=2)
def test_boxes_of_results_are_written_while_the_next_tile_is_multiplied(tiles, out, slots, m, n, blocks):
    at, bt, ct = params = pointers(out=out)
    a, b, c = matrix(at, m, 72, align=16), matrix(bt, n, 72, align=16), matrix(ct, m, n, align=16)
    pipeline = lower_pipeline(matmul_kernel("matmul", tuple(params), a, b, c, tiles, b_is_transposed=True), TARGET)
    (staging,) = (
        node.var for node in walk(pipeline.function.body) if isinstance(node, s.Declare) and node.var.name == "staging"
    )
    width = math.gcd(tiles.n, 128 // out.nbytes)
    assert len(pipeline.maps) == 3 and array_bytes(staging) == slots * tiles.m * width * staging.dtype.nbytes
    assert pipeline.shared_bytes <= TARGET.block_shared_memory
    result, expected = multiply(m, n, 72, tiles, blocks, out=out)
    tolerance = 2e-2 if out is dtypes.bf16 else 2e-3
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=2e-2)


@pytest.mark.parametrize(("m", "n", "blocks"), [(304, 200, 4), (64, 40, 2), (200, 520, 2)])
@pytest.mark.parametrize(
    ("tiles", "ta", "tb"),
    [
        (MatmulTiles(64, 64, 64, 3, (4, 1)), False, True),
        (MatmulTiles(64, 128, 64, 3, (4, 1)), True, False),
        (MatmulTiles(128, 80, 64, 3, (8, 1)), False, True),
        (MatmulTiles(128, 256, 64, 4, (8, 1)), False, False),
        (MatmulTiles(192, 192, 64, 4, (12, 1)), False, True),
    ],
)
@pytest.mark.thorough(every=4)
def test_blocks_of_a_cluster_copy_for_each_other(tiles, ta, tb, m, n, blocks):
    result, expected = multiply(m, n, 200, tiles, blocks, ta=ta, tb=tb, cluster=CLUSTER)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("n", "tb", "shares"),
    [(80, True, True), (72, True, False), (64, False, True), (128, False, True), (192, False, False)],
)
def test_blocks_share_copies_of_tiles_that_have_as_many_parts(n, tb, shares):
    at, bt, ct = params = pointers()
    a, b = matrix(at, 300, 136, align=16), matrix(bt, *((200, 136) if tb else (136, 200)), align=16)
    tiles = MatmulTiles(64, n, 64, 3, (4, 1))
    kernel = matmul_kernel("matmul", tuple(params), a, b, matrix(ct, 300, 200, align=16), tiles, b_is_transposed=tb)
    assert can_share_copies(kernel) == shares


def test_what_follows_the_product_is_computed_from_its_place():
    def epilogue(value, row, column):
        return build.cast(value + build.cast(row * 100 + column, dtypes.f32), dtypes.f32)

    result, expected = multiply(70, 24, 64, out=dtypes.f32, epilogue=epilogue)
    places = np.arange(70)[:, None] * 100 + np.arange(24)
    np.testing.assert_allclose(result, expected + places, rtol=1e-5, atol=1e-3)


def test_matrices_of_a_batch_are_tiles_of_one_grid():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 70, 72)).astype(np.float16), rng.standard_normal((3, 24, 72)).astype(np.float16)
    number = build.size_var("number")
    at, bt, ct = params = pointers()

    def of_batch(pointer, rows, columns):
        place = build.binary("add", pointer, number * (rows * columns))
        return GTensor(place, build.index(rows), build.index(columns), build.index(columns), 16)

    kernel = matmul_kernel(
        "matmul",
        tuple(params),
        of_batch(at, 70, 72),
        of_batch(bt, 24, 72),
        of_batch(ct, 70, 24),
        NARROW,
        b_is_transposed=True,
        batch=(number, build.index(3)),
    )
    c = np.full((3, 70, 24), np.nan, np.float16)
    run_module(launched(kernel, 4), [a, b, c])
    expected = a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1)
    np.testing.assert_allclose(c.astype(np.float64), expected, rtol=2e-3, atol=2e-2)


def test_only_kernels_of_the_shape_are_warp_specialized():
    at, bt, ct = params = pointers()

    def fits(a, tiles=NARROW):
        b, c = matrix(bt, 64, 64, align=16), matrix(ct, 64, 64, align=16)
        return fits_pipeline(matmul_kernel("matmul", tuple(params), a, b, c, tiles, b_is_transposed=True))

    a = matrix(at, 64, 64, align=16)
    assert fits(a)
    assert not fits(matrix(at, 64, 64, align=8))
    assert not fits(computed(dtypes.f16, a.rows, a.columns, a.element))
    # Rows of 32 elements for two warps along the columns are no products of warp groups.
    assert not fits(a, MatmulTiles(64, 32, 64, 4, (2, 2)))
    # Too small for the swizzle to repeat within each stage.
    assert not fits(a, MatmulTiles(64, 16, 64, 2, (4, 1)))


@pytest.mark.parametrize(("row_stride", "given"), [(0, 80), (72, 80), (96, 96)])
def test_the_map_of_one_row_has_the_stride_of_a_dense_matrix_at_least(row_stride, given):
    at, bt, ct = params = pointers()
    a, b, c = matrix(at, 1, 76, row_stride, align=16), matrix(bt, 64, 76, 80, align=16), matrix(ct, 1, 64, align=16)
    pipeline = lower_pipeline(matmul_kernel("matmul", tuple(params), a, b, c, NARROW, b_is_transposed=True), TARGET)
    (stride,) = pipeline.maps[0].request({}).strides
    assert stride.value == given * 2


@pytest.mark.parametrize(
    ("m", "k", "ta", "boxes"),
    [
        (20, 72, False, [24, 16]),  # zeros for rows 20 to 23 alone
        (64, 72, False, [64, 16]),
        (65, 72, False, [64, 16]),  # rows of two tiles come by boxes of one size
        (64, 24, True, [64, 16]),  # rows are terms of sums, which want zeros
    ],
)
def test_no_rows_of_a_tile_are_copied_that_no_row_of_a_smaller_matrix_is_for(m, k, ta, boxes):
    at, bt, ct = params = pointers()
    a, b = matrix(at, *((k, m) if ta else (m, k)), align=16), matrix(bt, 40, k, align=16)
    c = matrix(ct, m, 40, align=16)
    kernel = matmul_kernel("matmul", tuple(params), a, b, c, NARROW, a_is_transposed=ta, b_is_transposed=True)
    requests = [described.request({}) for described in lower_pipeline(kernel, TARGET).maps[:2]]
    assert [request.box[1].value for request in requests] == boxes


@pytest.mark.parametrize(
    "tiles",
    [
        MatmulTiles(64, 32, 64, 3, (4, 1)),
        MatmulTiles(128, 32, 64, 3, (8, 1)),  # the rows of a whole warp group are missing
        MatmulTiles(32, 64, 64, 4, (1, 4), True),
    ],
)
@pytest.mark.parametrize("m", [1, 8, 27])
def test_products_of_fewer_rows_than_a_tile_has_are_right(tiles, m):
    result, expected = multiply(m, 72, 200, tiles, out=dtypes.f32)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


def transposed(m, n, stages=4, k=64):
    """Tiles whose columns are the rows of warp groups."""
    return MatmulTiles(m, n, k, stages, (1, n // 16), is_transposed=True)


@pytest.mark.parametrize("out", [dtypes.f16, dtypes.f32])
@pytest.mark.parametrize(
    ("m", "n", "k", "tiles"),
    [
        (8, 128, 128, transposed(8, 64)),
        (70, 200, 192, transposed(24, 128)),
        (65, 72, 320, transposed(32, 64)),
        (130, 264, 64, transposed(40, 128)),
        (150, 328, 64, transposed(64, 128)),
        (120, 264, 72, transposed(112, 256)),
    ],
)
@pytest.mark.thorough(every=2)
def test_columns_of_the_result_are_the_rows_of_warp_groups(m, n, k, tiles, out):
    result, expected = multiply(m, n, k, tiles, out=out)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, True), (True, False)])
def test_transposed_tiles_take_operands_in_either_order(ta, tb):
    result, expected = multiply(64, 136, 128, transposed(32, 64), ta=ta, tb=tb)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("n", "align"), [(99, 2), (100, 8), (98, 4)])
def test_rows_of_results_of_transposed_tiles_begin_anywhere(n, align):
    result, expected = multiply(33, n, 64, transposed(16, 64), align=align)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)
