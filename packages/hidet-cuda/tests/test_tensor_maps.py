"""Tensor maps in host code: what the driver is asked to encode, and what happens when it refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import hidet
from hidet import dtypes
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import EncodedMap, FakeDriver
from hidet.cuda.tile.pipeline import lower_pipeline
from hidet.errors import LaunchError
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import matrix
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.table_entry import with_table_entries
from hidet.ir.types import PointerType
from hidet.lang import attrs, f16, f32, shared_tensor
from hidet.lang.cuda import (
    TensorMap,
    prefetch_tensor_map,
    tensor_map,
    tensor_map_im2col,
    tensor_reduce_add,
    tensor_store,
)
from hidet.target import CompileJob

ROWS, COLUMNS, DEPTH = 200, 72, 136
SMALL = MatmulTiles(64, 32, 64, 4, (4, 1))


def product(tiles: MatmulTiles, *, ta: bool = False, tb: bool = True, dtype: dtypes.DType = dtypes.f16) -> Module:
    """A module whose entry multiplies matrices of any size: c = a b^T, or in another order."""
    m, n, k = (Var(name, dtypes.i64) for name in "mnk")
    a, b, c = (Var(name, PointerType(dtype)) for name in "abc")
    kernel = matmul_kernel(
        "product",
        (a, b, c, m, n, k),
        matrix(a, *((k, m) if ta else (m, k)), align=16),
        matrix(b, *((n, k) if tb else (k, n)), align=16),
        matrix(c, m, n, align=16),
        tiles,
        a_is_transposed=ta,
        b_is_transposed=tb,
    )
    pipeline = lower_pipeline(kernel, CudaTarget("sm_90a"))
    outer = tuple(Var(var.name, var.type) for var in kernel.params)
    given = dict(zip(kernel.params, outer, strict=True))
    maps = [described.request(given).call() for described in pipeline.maps]
    launch = s.Launch("product", (build.index(3),), (*outer, *maps), block=(build.index(pipeline.threads),))
    return Module((pipeline.function, Function("main", outer, launch, "host")), "main")


def run_main(fake: FakeDriver, module: Module, *arguments: int) -> None:
    """Run the entry with addresses and sizes in a table, in stream 9."""
    target = CudaTarget("sm_90a")
    target.__dict__["memory"] = fake.memory()
    entered, names = with_table_entries(module)
    (binary,) = target.compile([CompileJob("job", entered)])
    table = (ctypes.c_int64 * len(arguments))(*arguments)
    target.load([binary]).function(names["main"], None)(ctypes.addressof(table), 9)


def launched(fake: FakeDriver) -> None:
    """Run a product."""
    run_main(fake, product(SMALL), 0x1000, 0x2000, 0x3000, ROWS, COLUMNS, DEPTH)


def only_map(module: Module) -> EncodedMap:
    """The one map that a module makes of a tensor."""
    fake = FakeDriver()
    run_main(fake, module, 0x1000)
    (described,) = fake.maps
    return described


def test_maps_say_where_matrices_lie_and_what_boxes_are_copied() -> None:
    seen: list[tuple[int, int]] = []
    fake = FakeDriver(on_launch=lambda launch: seen.append((launch.place(6), launch.place(7))))
    launched(fake)
    left, right = fake.maps
    assert (left.address, left.sizes, left.strides) == (0x1000, (DEPTH, ROWS), (2 * DEPTH,))
    assert (right.address, right.sizes, right.strides) == (0x2000, (DEPTH, COLUMNS), (2 * DEPTH,))
    assert (left.box, right.box) == ((64, 64), (64, 32))
    # Unsigned integers of 16 bits, swizzled over 128 bytes (CUtensorMapDataType, CUtensorMapSwizzle).
    assert [(described.dtype, described.swizzle) for described in fake.maps] == [(1, 3)] * 2
    assert all(described.place % 64 == 0 for described in fake.maps)
    # The kernel is given the maps themselves: parameters whose values lie where they were encoded.
    assert seen == [(left.place, right.place)]


@pytest.mark.parametrize(("depth", "promotion"), [(64, 3), (72, 2), (192, 3), (1000, 2)])
def test_rows_that_begin_within_lines_of_the_cache_bring_no_more_than_the_lines_they_touch(
    depth: int, promotion: int
) -> None:
    """CUtensorMapL2promotion: 2 is for 128 bytes, 3 for 256."""
    fake = FakeDriver()
    run_main(fake, product(SMALL), 0x1000, 0x2000, 0x3000, ROWS, COLUMNS, depth)
    assert [described.promotion for described in fake.maps] == [promotion] * 2


@pytest.mark.parametrize(("adds", "dtype"), [(False, 2), (True, 7)])
def test_what_is_added_to_has_its_own_type(adds: bool, dtype: int) -> None:
    """Copies move bits, as unsigned integers; sums need numbers (CUtensorMapDataType: 7 is f32)."""
    with hidet.script_module() as script:

        @hidet.script
        def put(target: TensorMap):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 1
            box = shared_tensor(f32, [4, 8])
            tensor_reduce_add(target, ~box[0, 0], 0, 0) if adds else tensor_store(target, ~box[0, 0], 0, 0)

        @hidet.script
        def main(x: f32[6, 40]):
            put(tensor_map(x, box=[4, 8]))

    described = only_map(script.ir_module())
    assert (described.dtype, described.sizes, described.strides) == (dtype, (40, 6), (160,))
    assert (described.address, described.box, described.swizzle) == (0x1000, (8, 4), 0)


def test_columns_of_pixels_are_described_by_corners_and_steps() -> None:
    with hidet.script_module() as script:

        @hidet.script
        def look(source: TensorMap):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 1
            prefetch_tensor_map(source)

        @hidet.script
        def main(x: f16[2, 9, 7, 64]):
            look(tensor_map_im2col(x, 32, 128, lower=[-1, -2], upper=[-3, 0], steps=[2, 1], swizzle=64))

    described = only_map(script.ir_module())
    assert (described.address, described.dtype, described.swizzle) == (0x1000, 1, 2)
    assert (described.sizes, described.strides) == ((64, 7, 9, 2), (128, 896, 8064))
    # Width before height, as all of a map: channels, then pixels of a copy.
    assert (described.lower, described.upper, described.steps) == ((-2, -1), (0, -3), (1, 1, 2, 1))
    assert described.box == (32, 128)


def test_a_map_that_the_driver_refuses_is_an_error_and_launches_nothing() -> None:
    fake = FakeDriver(refuse_maps=1)
    with pytest.raises(LaunchError, match="product"):
        launched(fake)
    assert fake.launches == []


@pytest.mark.parametrize(
    ("tiles", "ta", "tb", "dtype"),
    [
        (MatmulTiles(128, 256, 64, 4, (8, 1)), False, True, dtypes.f16),
        (MatmulTiles(128, 128, 64, 3, (8, 1)), False, False, dtypes.bf16),
        (MatmulTiles(64, 64, 64, 6, (4, 1)), True, False, dtypes.f16),
        (MatmulTiles(64, 16, 64, 10, (4, 1)), False, True, dtypes.f16),
    ],
)
def test_warp_specialized_kernels_compile_without_spills_and_are_not_serialised(
    tiles: MatmulTiles, ta: bool, tb: bool, dtype: Any
) -> None:
    cubin = compile_cubin(emit_module(product(tiles, ta=ta, tb=tb, dtype=dtype), 90), "sm_90a")
    assert cubin.usage["product"].spill_bytes == 0
    assert cubin.usage["product"].stack_bytes == 0
    assert cubin.remarks == ()
