"""The product of two matrices in tiles, run by the simulator: right for all sizes, and free of races."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.tile.machine import machine
from hidet.errors import ScheduleError
from hidet.gpu.simulator.traffic import Traffic
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import computed, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.printer import print_module
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module

SMALL = MatmulTiles(32, 16, 16, 2, (2, 1))
HOPPER = ("wgmma", "stmatrix")


def launched(kernel, grid, features=(), shifts_rows=False):
    """A module that launches a kernel of tiles."""
    function = lower_kernel(kernel, machine(features.__contains__), shifts_rows=shifts_rows)
    outer = tuple(e.Var(var.name, var.type) for var in function.params)
    block = (build.index(kernel.threads),)
    launch = s.Launch(function.name, tuple(map(build.index, grid)), outer, block=block)
    module = Module((function, Function("main", outer, launch, "host")), "main")
    verify_module(module)
    return module


def multiply(
    m,
    n,
    k,
    tiles=SMALL,
    dtype=dtypes.f16,
    out=dtypes.f32,
    ta=False,
    tb=False,
    align=16,
    traffic=None,
    features=(),
    given=None,
    has_groups=None,
    shifts_rows=False,
    **more,
):
    """A product by the kernel and by numpy; `given` takes the matrices, `has_groups` None: as `features` say."""
    rng = np.random.default_rng(0)
    if dtype.is_int:
        a, b = (rng.integers(-8, 8, shape).astype(dtype.numpy()) for shape in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(shape).astype(dtype.numpy()) for shape in ((m, k), (k, n)))
    held_a, held_b = np.ascontiguousarray(a.T if ta else a), np.ascontiguousarray(b.T if tb else b)
    pointers = [e.Var(name, PointerType(t)) for name, t in (("a", dtype), ("b", dtype), ("c", out))]
    kernel = matmul_kernel(
        "matmul",
        tuple(pointers),
        matrix(pointers[0], *held_a.shape, align=align),
        matrix(pointers[1], *held_b.shape, align=align),
        matrix(pointers[2], m, n, align=min(align, 4)),
        tiles,
        a_is_transposed=ta,
        b_is_transposed=tb,
        **more,
    )
    c = np.zeros((m, n), out.numpy())
    module = launched(kernel, (-(-n // tiles.n) * -(-m // tiles.m),), features, shifts_rows)
    assert ("cuda.wgmma.m64" in print_module(module)) == ("wgmma" in features if has_groups is None else has_groups)
    if given is not None:
        given += [a, b]
    run_module(module, [held_a, held_b, c], traffic=traffic)
    wide = np.int64 if dtype.is_int else np.float64
    return c, a.astype(wide) @ b.astype(wide)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_operands_come_in_either_order(ta, tb):
    result, expected = multiply(32, 16, 32, ta=ta, tb=tb)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 16, 16), (40, 24, 8), (1, 8, 40), (33, 16, 72), (8, 8, 8)])
def test_sizes_need_not_be_multiples_of_tiles(m, n, k):
    result, expected = multiply(m, n, k)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("align", [2, 4, 8])
def test_matrices_need_not_be_aligned(align):
    size = 16 + align // 2
    result, expected = multiply(20, size, size, align=align)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 17, 51), (5, 3, 7), (31, 29, 1), (32, 16, 33)])
def test_rows_that_begin_anywhere_are_shifted(m, n, k, ta, tb, stages):
    tiles = MatmulTiles(32, 16, 16, stages, (2, 1))
    result, expected = multiply(m, n, k, tiles, ta=ta, tb=tb, align=2, shifts_rows=True)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_warp_groups_multiply_shifted_rows():
    tiles = MatmulTiles(64, 64, 64, 3, (4, 1))
    result, expected = multiply(70, 61, 133, tiles, tb=True, align=2, shifts_rows=True, features=HOPPER)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "tiles",
    [
        MatmulTiles(16, 8, 16, 2, (1, 1)),
        MatmulTiles(16, 24, 48, 3, (1, 1)),
        MatmulTiles(64, 32, 32, 4, (2, 2)),
        MatmulTiles(32, 64, 64, 3, (1, 4)),
    ],
)
def test_tiles_stages_and_warps_do_not_change_the_result(tiles):
    result, expected = multiply(40, 40, 104, tiles, tb=True)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "accumulator", "out", "tolerance"),
    [
        (dtypes.bf16, dtypes.f32, dtypes.f32, 1e-5),
        (dtypes.f16, dtypes.f16, dtypes.f16, 2e-2),
        (dtypes.f16, dtypes.f32, dtypes.f16, 1e-3),
        (dtypes.i8, dtypes.i32, dtypes.i32, 0),
        (dtypes.f8e4m3, dtypes.f32, dtypes.f32, 1e-5),
    ],
)
def test_types_multiply(dtype, accumulator, out, tolerance):
    tiles = MatmulTiles(32, 16, 32, 2, (2, 1))
    result, expected = multiply(32, 16, 64, tiles, dtype, out, tb=True, accumulator=accumulator)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def rounded_to_tf32(a):
    """Ties away from zero."""
    return ((a.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("features", [(), HOPPER])
def test_f32_is_rounded_to_tf32_before_it_is_multiplied(ta, tb, features):
    """Whatever the order and however the warps stand: warp groups would drop digits of what threads copied."""
    tiles = MatmulTiles(64, 16, 16, 3, (4, 1))
    given = []
    result, _ = multiply(
        72,
        24,
        40,
        tiles,
        dtypes.f32,
        ta=ta,
        tb=tb,
        features=features,
        factors=dtypes.tf32,
        given=given,
        has_groups=False,
    )
    a, b = map(rounded_to_tf32, given)
    np.testing.assert_allclose(result, a @ b, rtol=1e-6, atol=1e-6)


def test_operators_are_fused_before_and_after():
    """c = relu(exp(x) b + row), where exp(x) is never stored."""
    rng = np.random.default_rng(0)
    x, b = rng.standard_normal((20, 24)).astype(np.float32), rng.standard_normal((24, 16)).astype(np.float16)
    x_ptr, b_ptr, c_ptr = (
        e.Var(name, PointerType(t)) for name, t in (("x", dtypes.f32), ("b", dtypes.f16), ("c", dtypes.f32))
    )
    source = matrix(x_ptr, 20, 24)
    a = computed(
        dtypes.f16,
        build.index(20),
        build.index(24),
        lambda row, column: build.cast(build.unary("exp", source.element(row, column)), dtypes.f16),
    )
    kernel = matmul_kernel(
        "fused",
        (x_ptr, b_ptr, c_ptr),
        a,
        matrix(b_ptr, 24, 16, align=16),
        matrix(c_ptr, 20, 16),
        SMALL,
        epilogue=lambda value, row, column: build.maximum(value + build.cast(row - 10, dtypes.f32), 0.0),
    )
    c = np.zeros((20, 16), np.float32)
    run_module(launched(kernel, (1,)), [x, b, c])
    expected = np.exp(x).astype(np.float16).astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, np.maximum(expected + np.arange(20)[:, None] - 10, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tiles", [MatmulTiles(32, 32, 32, 2, (2, 1)), MatmulTiles(32, 16, 64, 2, (1, 1))])
@pytest.mark.parametrize(("ta", "tb"), [(False, True), (True, False)])
def test_shared_memory_is_used_without_bank_conflicts(tiles, ta, tb):
    traffic = Traffic()
    result, expected = multiply(32, 32, 128, tiles, ta=ta, tb=tb, traffic=traffic)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert len(traffic.shared) > 2
    assert traffic.conflicts() == {}


@pytest.mark.parametrize(
    ("tiles", "ta", "tb", "dtype"),
    [
        (MatmulTiles(64, 16, 64, 2, (4, 1)), False, True, dtypes.f16),
        (MatmulTiles(64, 64, 64, 2, (4, 1)), True, False, dtypes.bf16),
        (MatmulTiles(128, 32, 32, 3, (8, 1)), False, False, dtypes.f16),
        (MatmulTiles(128, 128, 16, 2, (8, 1)), True, True, dtypes.f16),
        (MatmulTiles(64, 128, 128, 2, (4, 1)), False, False, dtypes.f16),
        (MatmulTiles(64, 24, 128, 2, (4, 1)), False, True, dtypes.f16),
        (MatmulTiles(64, 16, 64, 2, (4, 1)), False, True, dtypes.i8),
    ],
)
def test_warp_groups_multiply_whatever_the_layout(tiles, ta, tb, dtype):
    whole = dtypes.i32 if dtype is dtypes.i8 else dtypes.f32
    result, expected = multiply(72, 40, 144, tiles, dtype, whole, ta=ta, tb=tb, features=HOPPER, accumulator=whole)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=1e-5, atol=1e-4)


def test_what_the_instructions_lack_is_refused():
    with pytest.raises(ScheduleError, match="32 rows, which 3 warps cannot share in pieces of 16"):
        multiply(32, 16, 16, MatmulTiles(32, 16, 16, 2, (3, 1)))
    with pytest.raises(ScheduleError, match="24 elements along k, expected a multiple of 16"):
        multiply(32, 16, 16, MatmulTiles(32, 16, 24, 2, (2, 1)))
    with pytest.raises(ScheduleError, match="no product of f32 added to f32"):
        multiply(32, 16, 16, dtype=dtypes.f32)
    with pytest.raises(ScheduleError, match="single bytes are not transposed"):
        multiply(
            32, 16, 32, MatmulTiles(32, 16, 32, 2, (2, 1)), dtype=dtypes.i8, out=dtypes.i32, accumulator=dtypes.i32
        )
    with pytest.raises(ScheduleError, match="a pipeline of 1 stages"):
        multiply(32, 16, 16, MatmulTiles(32, 16, 16, 1, (2, 1)))
