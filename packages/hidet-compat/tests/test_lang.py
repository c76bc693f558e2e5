"""What only scripts of hidet 0.6 call of `hidet.lang` and `hidet.lang.cuda`."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.errors import ScriptError, ShapeError, UnsupportedOp
from hidet.ir.interpret import run_module
from hidet.lang import ForStmtAttr, attrs, f32, grid, i32, range
from hidet.lang.cuda import (
    blockIdx,
    cublas,
    dynamic_shared_memory,
    fast_intdiv,
    fast_intmod,
    memcpy,
    memcpy_async,
    set_kernel_max_dynamic_smem_bytes,
    threadIdx,
)


def test_memory_of_a_device_is_copied_in_the_order_of_launches() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def grow(x: f32[8]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 8
            x[threadIdx.x] += 1.0

        @hidet.script
        def launch(x: f32[8], y: f32[8]):
            attrs.func_kind = "public"
            grow(x)
            memcpy(y, x, 32)
            grow(x)
            memcpy_async(~y[2], ~x[0], 8, "cuda_to_cuda")

    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    run_module(module.ir_module(), [x, y])
    assert x.tolist() == [2.0] * 8
    assert y.tolist() == [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]


def test_a_kernel_copies_by_itself() -> None:
    with pytest.raises(ScriptError, match="memcpy stands in functions of the host"):

        @hidet.script
        def kernel(x: f32[8], y: f32[8]):
            attrs.func_kind = "cuda_kernel"
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 8
            memcpy(y, x, 32)


def test_quotients_are_those_of_integers() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def divide(x: i32[12], d: i32):
            attrs.cuda.grid_dim = 3
            attrs.cuda.block_dim = 4
            i = blockIdx.x * 4 + threadIdx.x
            x[i] = fast_intdiv(i, d) * 100 + fast_intmod(i, d)

    x = np.zeros(12, np.int32)
    run_module(module.ir_module(), [x, 5])
    assert x.tolist() == [i // 5 * 100 + i % 5 for i in [*range(12)]]


@pytest.mark.parametrize("limit", [16, 64])
def test_shared_memory_beyond_the_limit_that_is_set_is_refused(limit) -> None:
    with hidet.script_module():

        @hidet.script
        def kernel(x: f32[8]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 8
            attrs.cuda.dynamic_smem_bytes = 32
            shared = dynamic_shared_memory(0, f32)
            shared[threadIdx.x] = x[threadIdx.x]

        def define():
            @hidet.script
            def launch(x: f32[8]):
                attrs.func_kind = "public"
                set_kernel_max_dynamic_smem_bytes(kernel, limit)
                kernel(x)

        if limit < 32:
            with pytest.raises(ScriptError, match="kernel takes 32 bytes of shared memory, more than 16"):
                define()
        else:
            define()


def test_no_library_is_called() -> None:
    with pytest.raises(UnsupportedOp, match=r"cublas\.gemm") as refused:
        cublas.gemm(1, 2, 3)
    assert refused.value.hint == "hidet.ops.matmul"


def test_the_loops_of_an_attribute_are_those_of_its_text() -> None:
    assert [str(loop) for loop in ForStmtAttr.parse("p4u+.")] == ["p4", "u+", "."]
    assert ForStmtAttr.parse("u", num_loops=2) == [ForStmtAttr(unroll=True)] * 2
    with pytest.raises(ShapeError, match="stands for 2 loops"):
        ForStmtAttr.parse("uu", num_loops=3)
    with pytest.raises(ShapeError, match="says nothing of loops"):
        ForStmtAttr.parse("x")
    with hidet.script_module() as module:

        @hidet.script
        def count(x: i32[2, 3]):
            attrs.func_kind = "public"
            for i, j in grid(2, 3, attrs=str(ForStmtAttr(unroll=True))):
                x[i, j] = i * 3 + j

    assert "for j in unroll(3)" in str(module.ir_module())
    x = hidet.zeros([2, 3], "int32")
    module.build()(x)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
