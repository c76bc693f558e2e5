"""Scripts with blocks of threads, run by the interpreter: right ones compute, wrong ones name the user's line."""

import numpy as np
import pytest

import hidet
from hidet.errors import DataRace, Deadlock, LaunchError, OptionError
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32, i32, register_tensor, shared_tensor
from hidet.lang.cuda import blockIdx, shfl_xor_sync, syncthreads, threadIdx


def row_sums(waits=True, offset=0):
    """Sums of rows of 64, by two warps each: within the warps by shuffles, then through shared memory."""
    with hidet.script_module() as script_module:

        @hidet.script
        def launch_rows(x: f32[4, 64], y: f32[4]):
            attrs.cuda.grid_dim = 4
            attrs.cuda.block_dim = 64
            parts = shared_tensor("float32", [2])
            total = register_tensor("float32", [1])
            total[0] = x[blockIdx.x, threadIdx.x + offset]
            for step in range(5):
                total[0] += shfl_xor_sync(0xFFFFFFFF, total[0], 1 << step)
            if threadIdx.x % 32 == 0:
                parts[threadIdx.x // 32] = total[0]
            if waits:
                syncthreads()
            if threadIdx.x == 0:
                y[blockIdx.x] = parts[0] + parts[1]

    return script_module.ir_module()


def test_rows_are_summed_by_shuffles_and_shared_memory():
    x, y = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32), np.zeros(4, np.float32)
    run_module(row_sums(), [x, y])
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5)


def test_a_race_names_the_lines_of_both_accesses():
    with pytest.raises(DataRace) as error:
        run_module(row_sums(waits=False), [np.zeros((4, 64), np.float32), np.zeros(4, np.float32)])
    message = str(error.value)
    assert "thread (32, 0, 0) writes it" in message
    assert "| " + " " * 16 + "y[blockIdx.x] = parts[0] + parts[1]" in message
    assert "^" in message


def test_an_index_outside_names_the_line_and_the_thread():
    with pytest.raises(LaunchError) as error:
        run_module(row_sums(offset=1), [np.zeros((4, 64), np.float32), np.zeros(4, np.float32)])
    message = str(error.value)
    assert "thread (63, 0, 0)" in message
    assert "x is accessed at (0, 64): axis 1 has 64 elements" in message
    assert "total[0] = x[blockIdx.x, threadIdx.x + offset]" in message


def test_a_barrier_in_a_branch_names_the_line():
    with hidet.script_module() as script_module:

        @hidet.script
        def half(n: i32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 64
            if threadIdx.x < n:
                syncthreads()

    module = script_module.ir_module()
    run_module(module, [64])
    with pytest.raises(Deadlock, match="at barrier 0, which 32 of 64 threads have come to") as error:
        run_module(module, [32])
    assert "syncthreads()" in str(error.value)


def test_whether_indices_are_checked_is_a_truth_value():
    with pytest.raises(OptionError, match="check_bounds must be True, False or None"):
        hidet.driver.build_ir_module(row_sums(), target="cpu", options={"check_bounds": 1})
