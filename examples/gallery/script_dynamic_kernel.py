"""Script: a product in tiles, for any sizes
=========================================

A product in tiles: shared memory, registers that layouts spread over threads, mappings of tasks, any sizes.

Blocks of 8 warps keep a tile of 64 x 128 of the result in registers and walk over the sum in steps of 8. Without a GPU
small sizes run in the simulator.
"""

import numpy as np

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import (
    as_tensor_pointer,
    attrs,
    auto_map,
    f32,
    i32,
    local_layout,
    register_tensor,
    row_major,
    shared_tensor,
    spatial,
)
from hidet.lang.cuda import blockIdx, syncthreads, threadIdx
from hidet.utils.benchmark import benchmark_func

WARPS_M, WARPS_N = 4, 2
LANES_M, LANES_N = 4, 8
OWN_M, OWN_N = 4, 8
BLOCK_M, BLOCK_N, BLOCK_K = WARPS_M * LANES_M * OWN_M, WARPS_N * LANES_N * OWN_N, 8
THREADS = WARPS_M * WARPS_N * 32


def make_matmul() -> hidet.lang.ScriptModule:
    with hidet.script_module() as script_module:

        @hidet.script
        def relu(x: f32) -> f32:
            return x if x > 0.0 else 0.0

        @hidet.script
        def matmul(a_ptr: ~f32, b_ptr: ~f32, c_ptr: ~f32, m_size: i32, n_size: i32, k_size: i32):
            """c = relu(a @ b)"""
            attrs.func_name = "matmul_relu"
            attrs.cuda.block_dim = THREADS
            attrs.cuda.grid_dim = (m_size + BLOCK_M - 1) // BLOCK_M, (n_size + BLOCK_N - 1) // BLOCK_N
            a = as_tensor_pointer(a_ptr, f32, [m_size, k_size])
            b = as_tensor_pointer(b_ptr, f32, [k_size, n_size])
            c = as_tensor_pointer(c_ptr, f32, [m_size, n_size])
            row, column = blockIdx.x * BLOCK_M, blockIdx.y * BLOCK_N

            tile_a = shared_tensor(f32, [BLOCK_M, BLOCK_K])
            tile_b = shared_tensor(f32, [BLOCK_K, BLOCK_N])
            sums = register_tensor(
                f32,
                layout=local_layout(WARPS_M, WARPS_N) * local_layout(LANES_M, LANES_N) * row_major(OWN_M, OWN_N),
            )
            mine = spatial(WARPS_M, WARPS_N).spatial(LANES_M, LANES_N).repeat(OWN_M, OWN_N)
            for i, j in mine.on(threadIdx.x):
                sums[i, j] = 0.0
            for step in range((k_size + BLOCK_K - 1) // BLOCK_K):
                start = step * BLOCK_K
                for i, k in auto_map(BLOCK_M, BLOCK_K, workers=THREADS).on(threadIdx.x):
                    tile_a[i, k] = a.read([row + i, start + k], protected=True)
                for k, j in auto_map(BLOCK_K, BLOCK_N, workers=THREADS).on(threadIdx.x):
                    tile_b[k, j] = b.read([start + k, column + j], protected=True)
                syncthreads()
                for k in range(BLOCK_K):
                    for i, j in mine.on(threadIdx.x):
                        sums[i, j] += tile_a[i, k] * tile_b[k, j]
                syncthreads()
            for i, j in mine.on(threadIdx.x):
                c.write([row + i, column + j], relu(sums[i, j]), protected=True)

        assert isinstance(matmul, hidet.ir.Function)
    return script_module


def check(script_module: hidet.lang.ScriptModule, m_size: int, n_size: int, k_size: int) -> None:
    """Against numpy; on a GPU with a time, too."""
    device = "cuda" if hidet.cuda.available() else "cpu"
    a, b = hidet.randn([m_size, k_size], device=device), hidet.randn([k_size, n_size], device=device)
    c = hidet.zeros([m_size, n_size], device=device)
    if device == "cuda":
        module = script_module.build()
        module(a, b, c, m_size, n_size, k_size)
        print(f"{benchmark_func(lambda: module(a, b, c, m_size, n_size, k_size)):.3f} ms")
    else:
        run_module(script_module.ir_module(), [a.numpy(), b.numpy(), c.numpy(), m_size, n_size, k_size])
    np.testing.assert_allclose(c.numpy(), np.maximum(a.numpy() @ b.numpy(), 0), rtol=1e-4, atol=1e-3)
    print(m_size, n_size, k_size, "right")


def main() -> None:
    module = make_matmul()
    sizes = [(1024, 1024, 1024), (333, 444, 555)] if hidet.cuda.available() else [(70, 130, 9)]
    for size in [*sizes, (1, 12, 13)]:
        check(module, *size)


if __name__ == "__main__":
    main()
