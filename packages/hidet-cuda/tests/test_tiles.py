"""Kernels written in tiles compile for every architecture from sm_80 on, without spills."""

import pytest

from hidet import dtypes
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.tile.machine import machine
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.attention import AttentionTiles, Heads, attention_kernel, causal
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import matrix
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.types import PointerType


def product(dtype, tiles, name="sm_80"):
    """A module that multiplies matrices of any size and adds a row to each row of the result."""
    m, n, k = (Var(name, dtypes.i64) for name in "mnk")
    a, b, c = (Var(name, PointerType(dtype)) for name in "abc")
    row = Var("row", PointerType(dtypes.f32))
    kernel = matmul_kernel(
        "matmul",
        (a, b, c, row, m, n, k),
        matrix(a, m, k, align=16),
        matrix(b, n, k, align=16),
        matrix(c, m, n, align=16),
        tiles,
        b_is_transposed=True,
        epilogue=lambda value, _, column: build.cast(
            value + build.select(column < n, build.load(row, column), 0.0), dtype
        ),
    )
    outer = tuple(Var(var.name, var.type) for var in kernel.params)
    blocks = (build.index(1),)
    launch = s.Launch("matmul", blocks, outer, block=(build.index(kernel.threads),))
    return Module(
        (lower_kernel(kernel, machine(CudaTarget(name).has)), Function("main", outer, launch, "host")), "main"
    )


@pytest.mark.parametrize(("arch", "name"), [(80, "sm_80"), (89, "sm_89"), (90, "sm_90a")])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16])
@pytest.mark.thorough(every=2)
def test_a_product_in_tiles_compiles_without_spills(arch, name, dtype):
    usage = compile_cubin(emit_module(product(dtype, MatmulTiles(64, 64, 32, 3, (2, 2)), name), arch), name).usage[
        "matmul"
    ]
    assert usage.spill_bytes == 0
    assert usage.stack_bytes == 0
    assert usage.registers <= 128


@pytest.mark.parametrize("tiles", [MatmulTiles(64, 64, 64, 3, (4, 1)), MatmulTiles(128, 128, 64, 3, (8, 1))])
def test_a_product_of_warp_groups_compiles_without_spills_and_is_not_serialised(tiles):
    cubin = compile_cubin(emit_module(product(dtypes.f16, tiles, "sm_90a"), 90), "sm_90a")
    assert cubin.usage["matmul"].spill_bytes == 0
    assert cubin.usage["matmul"].registers <= 255
    assert cubin.remarks == ()


@pytest.mark.parametrize(("arch", "name"), [(80, "sm_80"), (90, "sm_90a")])
def test_attention_in_tiles_compiles_without_spills(arch, name):
    rows, length = Var("rows", dtypes.i64), Var("length", dtypes.i64)
    pointers = [Var(which, PointerType(dtypes.f16)) for which in ("q", "k", "v", "out")]
    counts = (rows, length, length, rows)
    heads = Heads(*(matrix(p, n, 64, align=16) for p, n in zip(pointers, counts, strict=True)), 64, 64)
    block = build.size_var("block")
    params = (*pointers, rows, length)
    kernel = attention_kernel(
        "attention", params, heads, 0.125, AttentionTiles(), grid_vars=(block,), block=block, band=causal()
    )
    outer = tuple(Var(var.name, var.type) for var in kernel.params)
    launch = s.Launch("attention", (build.index(1),), outer, block=(build.index(kernel.threads),))
    module = Module(
        (lower_kernel(kernel, machine(CudaTarget(name).has)), Function("main", outer, launch, "host")), "main"
    )
    cubin = compile_cubin(emit_module(module, arch), name)
    assert cubin.usage["attention"].spill_bytes == 0
    assert cubin.usage["attention"].registers <= 255
    assert cubin.remarks == ()
