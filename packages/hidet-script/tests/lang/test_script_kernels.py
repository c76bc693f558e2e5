"""Kernels for blocks of threads, run by the simulator, which finds races and accesses outside of memory."""

import numpy as np
import pytest

from hidet import lang
from hidet.dims import symbol
from hidet.errors import HidetError
from hidet.ir.interpret import run_module
from hidet.lang import (
    as_tensor_pointer,
    attrs,
    auto_map,
    f16,
    f32,
    i32,
    local_layout,
    printf,
    register_tensor,
    row_major,
    shared_tensor,
    spatial,
    unroll,
)
from hidet.lang.cuda import (
    atomic_add,
    blockIdx,
    dynamic_shared_memory,
    lane_idx,
    mma,
    shfl_down_sync,
    sync_grid,
    syncthreads,
    this_cluster,
    threadIdx,
)

N = symbol("n")


def make_tiled_matmul(block_m=8, block_n=8, block_k=4, waits=True):
    tiles = spatial(4, 4).repeat(2, 2)
    load_a, load_b = auto_map(block_m, block_k, workers=16), auto_map(block_k, block_n, workers=16)

    with lang.script_module() as module:

        @lang.script
        def relu(x: f32) -> f32:
            return x if x > 0.0 else 0.0

        @lang.script
        def matmul(a_ptr: ~f32, b_ptr: ~f32, c_ptr: ~f32, m_size: i32, n_size: i32, k_size: i32):
            attrs.cuda.block_dim = 16
            attrs.cuda.grid_dim = (m_size + block_m - 1) // block_m, (n_size + block_n - 1) // block_n
            a = as_tensor_pointer(a_ptr, "float32", [m_size, k_size])
            b = as_tensor_pointer(b_ptr, "float32", [k_size, n_size])
            c = as_tensor_pointer(c_ptr, "float32", [m_size, n_size])
            smem_a = shared_tensor("float32", [block_m, block_k])
            smem_b = shared_tensor("float32", [block_k, block_n])
            regs_c = register_tensor("float32", layout=local_layout(4, 4) * row_major(2, 2))
            offset_m, offset_n = blockIdx.x * block_m, blockIdx.y * block_n
            for i, j in tiles.on(threadIdx.x):
                regs_c[i, j] = 0.0
            for k0 in range((k_size + block_k - 1) // block_k):
                for i, k in load_a.on(threadIdx.x):
                    smem_a[i, k] = a.read([offset_m + i, k0 * block_k + k], protected=True)
                for k, j in load_b.on(threadIdx.x):
                    smem_b[k, j] = b.read([k0 * block_k + k, offset_n + j], protected=True)
                if waits:
                    syncthreads()
                for k in range(block_k):
                    for i, j in tiles.on(threadIdx.x):
                        regs_c[i, j] += smem_a[i, k] * smem_b[k, j]
                syncthreads()
            for i, j in tiles.on(threadIdx.x):
                c.write([offset_m + i, offset_n + j], relu(regs_c[i, j]), protected=True)

    return module.ir_module()


def operands(m, n, k):
    rng = np.random.default_rng([m, n, k])
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


@pytest.mark.parametrize("shape", [(8, 8, 8), (9, 5, 3), (1, 12, 5)])
def test_a_tiled_matmul_is_right_at_sizes_that_do_not_divide(shape):
    m, n, k = shape
    a, b = operands(m, n, k)
    c = np.zeros((m, n), np.float32)
    run_module(make_tiled_matmul(), [a, b, c, m, n, k])
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def test_a_forgotten_barrier_is_found_at_its_line():
    a, b = operands(8, 8, 8)
    with pytest.raises(HidetError) as caught:
        run_module(make_tiled_matmul(waits=False), [a, b, np.zeros((8, 8), np.float32), 8, 8, 8])
    assert "smem_" in str(caught.value)
    assert caught.value.loc.file == __file__


def test_sums_of_a_block_through_dynamic_shared_memory_and_shuffles(capsys):
    @lang.script
    def total(x: f32[N], out: f32[1]):
        attrs.cuda.grid_dim = (N + 63) // 64
        attrs.cuda.block_dim = 64
        attrs.cuda.dynamic_smem_bytes = 64 * 4
        tile = dynamic_shared_memory(0, f32)
        i = blockIdx.x * 64 + threadIdx.x
        tile[threadIdx.x] = x[i] if i < N else 0.0
        syncthreads()
        if threadIdx.x < 32:
            value = tile[threadIdx.x] + tile[threadIdx.x + 32]
            for step in (16, 8, 4, 2, 1):
                value += shfl_down_sync(0xFFFFFFFF, value, step)
            if lane_idx() == 0:
                atomic_add(~out[0], value)
        if i == 0:
            printf("n = %d\n", N)

    x, out = np.arange(100, dtype=np.float32), np.zeros(1, np.float32)
    run_module(lang.module.module_of([total]), [x, out, 100])
    assert out[0] == x.sum()
    assert capsys.readouterr().out == "n = 100\n"


def test_tensor_cores_multiply_fragments():
    @lang.script
    def product(a: f16[16, 16], b: f16[8, 16], c: f32[16, 8]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 32
        regs_a = register_tensor(f16, [8])
        regs_b = register_tensor(f16, [4])
        acc = register_tensor(f32, [4])
        row, column = threadIdx.x // 4, threadIdx.x % 4 * 2
        for i in unroll(4):
            acc[i] = 0.0
        for half in unroll(2):
            for e in unroll(2):
                for r in unroll(2):
                    regs_a[(half * 2 + r) * 2 + e] = a[row + r * 8, column + half * 8 + e]
                regs_b[half * 2 + e] = b[row, column + half * 8 + e]
        mma.m16n8k16.f32.f16.f16(acc, regs_a, regs_b)
        for r in unroll(2):
            for e in unroll(2):
                c[row + r * 8, column + e] = acc[r * 2 + e]

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 16)).astype(np.float16) for n in (16, 8))
    c = np.zeros((16, 8), np.float32)
    run_module(lang.module.module_of([product]), [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-3, atol=1e-3)


def test_a_cluster_may_have_more_extents_than_the_grid_says():
    with lang.script_module() as module:

        @lang.script
        def ranks(x: i32[4]):
            attrs.cuda.grid_dim = 4
            attrs.cuda.block_dim = 1
            attrs.cuda.cluster_dim = 2, 1, 1
            x[blockIdx.x] = this_cluster.block_rank

    x = np.full(4, -1, np.int32)
    run_module(module.ir_module(), [x])
    assert x.tolist() == [0, 1, 0, 1]


def test_a_lone_kernel_may_be_called_launch():
    with lang.script_module() as module:

        @lang.script
        def launch(x: f32[4]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            x[threadIdx.x] += 1.0

    x = np.zeros(4, np.float32)
    run_module(module.ir_module(), [x])
    assert x.tolist() == [1, 1, 1, 1]


def test_blocks_that_do_not_wait_for_each_other_race():
    def make(waits):
        with lang.script_module() as module:

            @lang.script
            def turn(x: f32[2, 32], y: f32[2, 32], arrived: lang.u32[1]):
                attrs.cuda.grid_dim = 2
                attrs.cuda.block_dim = 32
                attrs.cuda.cooperative = True
                x[blockIdx.x, threadIdx.x] = 1.0
                if waits:
                    sync_grid(~arrived[0])
                y[blockIdx.x, threadIdx.x] = x[1 - blockIdx.x, threadIdx.x]

        return module.ir_module()

    x, y = (np.full((2, 32), np.nan, np.float32) for _ in range(2))
    arrived = np.zeros(1, np.uint32)
    with pytest.raises(HidetError, match=r"race|not been written"):
        run_module(make(waits=False), [x, y, arrived])
    run_module(make(waits=True), [x, y, arrived])
    assert (y == 1).all()


def test_whether_a_launch_is_cooperative_is_known_when_it_is_written():
    with pytest.raises(HidetError, match=r"cuda\.cooperative is True or False, got 1"):

        @lang.script
        def kernel(x: f32[4]):
            attrs.cuda.cooperative = 1
