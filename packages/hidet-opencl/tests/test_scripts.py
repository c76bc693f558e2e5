"""Scripts on an OpenCL device: places, memory of a block, exchange in a warp, atomics, assertions, prints."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.driver import build_ir_module
from hidet.errors import CodegenError, CompileError, LaunchError
from hidet.gpu.lang import (
    atomic_add,
    blockDim,
    blockIdx,
    dynamic_shared_memory,
    shfl_down_sync,
    shfl_up_sync,
    shfl_xor_sync,
    shuffle,
    syncthreads,
    threadIdx,
    vote_ballot,
)
from hidet.lang import attrs, boolean, f16, f32, f64, i32, i64, printf, shared_tensor, u32
from hidet.runtime.module import CompiledModule

FULL = 0xFFFFFFFF


def built(module: hidet.lang.ScriptModule) -> CompiledModule:
    return module.build("opencl")


def test_a_block_reverses_its_part_through_shared_memory() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def reverse(x: f32[256], y: f32[256]):
            attrs.gpu.grid_dim = 4
            attrs.gpu.block_dim = 64
            part = shared_tensor("float32", [64])
            first = blockIdx.x * blockDim.x
            part[threadIdx.x] = x[first + threadIdx.x]
            syncthreads()
            y[first + threadIdx.x] = part[63 - threadIdx.x]

    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    built(module)(x, y)
    np.testing.assert_array_equal(y, x.reshape(4, 64)[:, ::-1].reshape(-1))


def test_lanes_of_a_warp_exchange_values() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def exchange(x: f32[64], half: f16[64], up: f32[64], down: f16[64], xor: f32[64], first: f32[64]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 64
            i = threadIdx.x
            up[i] = shfl_up_sync(FULL, x[i], 3, 8)
            down[i] = shfl_down_sync(FULL, half[i], 2, 32)
            xor[i] = shfl_xor_sync(FULL, x[i], 5, 16)
            first[i] = shuffle(FULL, x[i], 1, 32)

    x = np.arange(64, dtype=np.float32)
    results = [np.zeros(64, t) for t in (np.float32, np.float16, np.float32, np.float32)]
    built(module)(x, x.astype(np.float16), *results)
    lane = np.arange(64)
    np.testing.assert_array_equal(results[0], np.where(lane % 8 < 3, lane, lane - 3))
    np.testing.assert_array_equal(results[1], np.where(lane % 32 + 2 > 31, lane, lane + 2))
    np.testing.assert_array_equal(results[2], lane ^ 5)
    np.testing.assert_array_equal(results[3], lane // 32 * 32 + 1)


def test_votes_tell_which_lanes_agree() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def vote(x: i32[32], y: u32[1]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 32
            found = vote_ballot(FULL, x[threadIdx.x] > 2)
            if threadIdx.x == 0:
                y[0] = found

    x = np.array([0, 3, 5, 1] * 8, np.int32)
    y = np.zeros(1, np.uint32)
    built(module)(x, y)
    assert y[0] == 0b0110 * 0x11111111


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_atomic_sums_miss_nothing(dtype: str) -> None:
    with hidet.script_module() as module:

        @hidet.script
        def add(total: hidet.lang.types.tensor_type(dtype, [3])):
            attrs.gpu.grid_dim = 3
            attrs.gpu.block_dim = 32
            atomic_add(~total[1], total[0])

    total = np.array([1, 0, 0], hidet.dtypes.dtype(dtype).numpy())
    built(module)(total)
    assert total.tolist() == [1, 96, 0]


def test_launches_may_ask_for_shared_memory() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def use(y: i32[32]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 32
            attrs.gpu.dynamic_smem_bytes = 256
            part = dynamic_shared_memory(128, dtype=i32)
            part[threadIdx.x] = threadIdx.x * 2
            syncthreads()
            y[threadIdx.x] = part[31 - threadIdx.x]

    y = np.zeros(32, np.int32)
    built(module)(y)
    np.testing.assert_array_equal(y, 2 * np.arange(32)[::-1])


def test_truth_values_and_numbers_of_all_widths_are_arguments() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def store(flag: boolean, a: i64, b: f32, c: f64, y: f64[4]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 1
            if flag:
                y[0] = 1.0
            y[1] = a
            y[2] = b
            y[3] = c

    compiled = built(module)
    for flag in (True, False):
        y = np.zeros(4)
        compiled(flag, -(1 << 40), 0.5, 1e-300, y)
        assert y.tolist() == [float(flag), -float(1 << 40), 0.5, 1e-300]


def test_a_failed_assertion_ends_the_call_with_its_place_and_leaves_the_device_usable() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def check(x: i32[40]):
            attrs.gpu.grid_dim = 2
            attrs.gpu.block_dim = 20
            i = blockIdx.x * 20 + threadIdx.x
            assert x[i] >= 0, "negative"
            x[i] = 7

    compiled = built(module)
    x = np.arange(40, dtype=np.int32)
    x[33] = -1
    with pytest.raises(LaunchError, match="in check: assertion failed: negative") as raised:
        compiled(x)
    assert raised.value.loc is not None and raised.value.loc.file == __file__
    assert (x == 7).sum() == 39 and x[33] == -1
    compiled(x_good := np.arange(40, dtype=np.int32))
    assert (x_good == 7).all()


def test_checked_accesses_outside_of_arrays_end_the_call() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def shift(x: i32[8], y: i32[8]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 8
            y[threadIdx.x] = x[threadIdx.x + 1]

    x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    with pytest.raises(LaunchError, match=r"index 8 .* 8"):
        build_ir_module(module.ir_module(), "opencl", {"check_bounds": True})(x, y)


def test_kernels_print(capfd: pytest.CaptureFixture[str]) -> None:
    with hidet.script_module() as module:

        @hidet.script
        def tell(x: f32[1], n: i64):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 1
            printf("%d of %.2f\n", n, x[0])

    built(module)(np.array([0.25], np.float32), 1 << 35)
    assert capfd.readouterr().out == "34359738368 of 0.25\n"


def test_a_block_with_more_memory_than_the_device_has_is_refused_by_the_name_of_its_kernel() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def large(x: f32[1]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 32
            part = shared_tensor("float32", [1 << 22])
            part[threadIdx.x] = x[0]
            syncthreads()
            x[0] = part[31 - threadIdx.x]

    with pytest.raises((LaunchError, CompileError), match="large"):
        built(module)(np.zeros(1, np.float32))


def test_what_opencl_lacks_is_refused_by_its_name() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def stop(x: f32[1]):
            attrs.gpu.grid_dim = 1
            attrs.gpu.block_dim = 1
            hidet.gpu.lang.trap()

    with pytest.raises(CodegenError, match=r"gpu\.trap of gpu has no OpenCL spelling"):
        built(module)
