"""Products of matrices, from a loop a thread to asynchronous copies and tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hidet
from hidet.lang import (
    as_tensor_pointer,
    attr,
    attrs,
    auto_map,
    col_spatial,
    f16,
    f32,
    float16,
    float32,
    grid,
    i32,
    int32,
    local_layout,
    register_tensor,
    repeat,
    row_layout,
    row_major,
    shared_tensor,
    spatial,
    tensor,
    tensor_pointer,
    u32,
    view,
)
from hidet.lang.cuda import (
    MmaConfig,
    WgmmaConfig,
    blockDim,
    blockIdx,
    cp_async,
    cp_async_wait_all,
    dynamic_shared_memory,
    fence_async_shared,
    ldmatrix,
    make_wgmma_desc,
    matrix_address,
    mma_sync,
    syncthreads,
    threadIdx,
    wgmma_async,
    wgmma_commit_group,
    wgmma_fence,
    wgmma_results,
    wgmma_wait_group,
)
from hidet.lang.types import tensor_type
from tests.script_kernels.case import WARP, Array, Kernel, normal, poisoned

# ruff: noqa: B007, RUF059, SIM113  # scripts as users write them


def naive_matmul(m_size: int, n_size: int, k_size: int) -> Any:
    """The kernel of the project's introduction, word for word."""
    with hidet.script_module() as module:

        @hidet.script
        def matmul(a: f32[m_size, k_size], b: f32[k_size, n_size], c: f32[m_size, n_size]):
            attr.cuda_grid_dim = ((m_size + 31) // 32, (n_size + 31) // 32)
            attr.cuda_block_dim = (32, 32)
            i = threadIdx.x + blockIdx.x * blockDim.x
            j = threadIdx.y + blockIdx.y * blockDim.y
            if i < m_size and j < n_size:
                c[i, j] = 0.0
                for k in range(k_size):
                    c[i, j] += a[i, k] * b[k, j]

    return module


def pointer_matmul() -> Any:
    """Sizes that are known at run time only."""
    with hidet.script_module() as module:

        @hidet.script
        def matmul(a_ptr: ~f32, b_ptr: ~f32, c_ptr: ~f32, m: i32, n: i32, k: i32):
            attrs.func_kind = "cuda_kernel"
            attrs.cuda.block_dim = 8, 8
            attrs.cuda.grid_dim = (m + 7) // 8, (n + 7) // 8
            a = tensor_pointer(dtype=f32, shape=[m, k], init=a_ptr)
            b = tensor_pointer(dtype=f32, shape=[k, n], init=b_ptr)
            c = tensor_pointer(dtype=f32, shape=[m, n], init=c_ptr)
            i, j = blockIdx.x * 8 + threadIdx.x, blockIdx.y * 8 + threadIdx.y
            if i < m and j < n:
                c[i, j] = 0.0
                for p in range(k):
                    c[i, j] += a[i, p] * b[p, j]

    return module


def tiled_matmul() -> Any:
    """Tiles in shared memory, sums in registers that a composed layout spreads over threads."""
    warps_m, warps_n, repeat_m, repeat_n = 2, 1, 1, 2
    lanes_m, lanes_n, own_m, own_n = 4, 8, 2, 2
    block_m, block_n, block_k = (
        warps_m * repeat_m * lanes_m * own_m,
        warps_n * repeat_n * lanes_n * own_n,
        8,
    )
    threads = warps_m * warps_n * WARP

    with hidet.lang.script_module() as module:

        @hidet.lang.script
        def relu(x: float32) -> float32:
            return x if x > 0.0 else 0.0

        @hidet.lang.script
        def matmul_relu(a_ptr: ~float32, b_ptr: ~float32, c_ptr: ~float32, m: int32, n: int32, k: int32):
            attr.func_name = "matmul_kernel"
            attr.cuda_block_dim = threads
            attr.cuda_grid_dim = ((m + block_m - 1) // block_m, (n + block_n - 1) // block_n)
            a = as_tensor_pointer(a_ptr, float32, [m, k])
            b = as_tensor_pointer(b_ptr, float32, [k, n])
            c = as_tensor_pointer(c_ptr, float32, [m, n])
            tile_a = tensor("shared", float32, shape=[block_m, block_k])
            tile_b = tensor("shared", float32, shape=[block_k, block_n])
            sums = tensor(
                scope="register",
                dtype=float32,
                layout=local_layout(warps_m, warps_n)
                * row_layout(repeat_m, repeat_n)
                * local_layout(lanes_m, lanes_n)
                * row_layout(own_m, own_n),
            )
            mine = spatial(warps_m, warps_n).repeat(repeat_m, repeat_n).spatial(lanes_m, lanes_n).repeat(own_m, own_n)
            for i, j in mine.on(threadIdx.x):
                sums[i, j] = 0.0
            for step in range((k + block_k - 1) // block_k):
                for i, p in auto_map(block_m, block_k, workers=threads).on(threadIdx.x):
                    row, column = (i + blockIdx.x * block_m, p + step * block_k)
                    tile_a[i, p] = a[row, column] if row < m and column < k else 0.0
                for p, j in auto_map(block_k, block_n, workers=threads).on(threadIdx.x):
                    row, column = (p + step * block_k, j + blockIdx.y * block_n)
                    tile_b[p, j] = b[row, column] if row < k and column < n else 0.0
                syncthreads()
                for i, j in mine.on(threadIdx.x):
                    for p in range(block_k):
                        sums[i, j] += tile_a[i, p] * tile_b[p, j]
                syncthreads()
            for i, j in mine.on(threadIdx.x):
                row, column = i + blockIdx.x * block_m, j + blockIdx.y * block_n
                if row < m and column < n:
                    c[row, column] = relu(sums[i, j])

    return module


def mma_matmul(config: MmaConfig, batch: int, m_size: int, n_size: int, k_size: int) -> Any:
    """A warp's products through mappings that say which thread holds which element; functions take any memory."""
    mma_m, mma_n, mma_k = config.m, config.n, config.k
    count_m, count_n = 1, 2
    warps_m, warps_n = 2, 1
    block_m, block_n = warps_m * count_m * mma_m, warps_n * count_n * mma_n
    threads = warps_m * warps_n * WARP

    with hidet.script_module() as module:

        @hidet.script
        def load_a(tile: f16[block_m, mma_k], regs: f16[count_m, config.a_elements]):
            warp, lane = threadIdx.x / WARP, threadIdx.x % WARP
            for wi, wj in spatial(warps_m, warps_n).on(warp):
                for mi in range(count_m):
                    p = 0
                    for i, k in config.a_load_map.on(lane):
                        regs[mi, p] = tile[(wi * count_m + mi) * mma_m + i, k]
                        p += 1

        @hidet.script
        def load_b(tile: f16[mma_k, block_n], regs: f16[count_n, config.b_elements]):
            warp, lane = threadIdx.x / WARP, threadIdx.x % WARP
            for wi, wj in spatial(warps_m, warps_n).on(warp):
                for mj in range(count_n):
                    p = 0
                    for k, j in config.b_load_map.on(lane):
                        regs[mj, p] = tile[k, (wj * count_n + mj) * mma_n + j]
                        p += 1

        @hidet.script
        def multiply(
            regs_a: f16[count_m, config.a_elements],
            regs_b: f16[count_n, config.b_elements],
            regs_c: f32[count_m, count_n, config.c_elements],
        ):
            for mi, mj in repeat(count_m, count_n).on(0):
                mma_sync(config, ~regs_a[mi, 0], ~regs_b[mj, 0], ~regs_c[mi, mj, 0])

        @hidet.script
        def write_c(regs_c: f32[count_m, count_n, config.c_elements], c: f32[batch, m_size, n_size]):
            warp, lane = threadIdx.x / WARP, threadIdx.x % WARP
            part = c[blockIdx.z, blockIdx.x * block_m :, blockIdx.y * block_n :]
            for wi, wj in spatial(warps_m, warps_n).on(warp):
                for mi, mj in repeat(count_m, count_n).on(0):
                    p = 0
                    for i, j in config.c_store_map.on(lane):
                        place = [(wi * count_m + mi) * mma_m + i, (wj * count_n + mj) * mma_n + j]
                        part.write(place, regs_c[mi, mj, p], protected=True)
                        p += 1

        @hidet.script
        def batch_matmul(a: f16[batch, m_size, k_size], b: f16[batch, k_size, n_size], c: f32[batch, m_size, n_size]):
            attrs.cuda.grid_dim = (m_size + block_m - 1) // block_m, (n_size + block_n - 1) // block_n, batch
            attrs.cuda.block_dim = threads
            tile_a = shared_tensor("float16", [block_m, mma_k])
            tile_b = shared_tensor("float16", [mma_k, block_n])
            regs_a = register_tensor("float16", [count_m, config.a_elements])
            regs_b = register_tensor("float16", [count_n, config.b_elements])
            regs_c = register_tensor("float32", [count_m, count_n, config.c_elements])
            for i, j, p in grid(count_m, count_n, config.c_elements):
                regs_c[i, j, p] = 0.0
            for step in range((k_size + mma_k - 1) // mma_k):
                of_a = a[blockIdx.z, blockIdx.x * block_m :, step * mma_k :]
                of_b = b[blockIdx.z, step * mma_k :, blockIdx.y * block_n :]
                for i, k in auto_map(block_m, mma_k, workers=threads).on(threadIdx.x):
                    tile_a[i, k] = of_a.read([i, k], protected=True)
                for k, j in auto_map(mma_k, block_n, workers=threads).on(threadIdx.x):
                    tile_b[k, j] = of_b.read([k, j], protected=True)
                syncthreads()
                load_a(tile_a, regs_a)
                load_b(tile_b, regs_b)
                multiply(regs_a, regs_b, regs_c)
                syncthreads()
            write_c(regs_c, c)

    return module


def pipelined_matmul(m_size: int, n_size: int, k_size: int) -> Any:
    """Two stages of swizzled tiles in dynamic shared memory, asynchronous copies, fragments by ldmatrix."""
    config = MmaConfig.m16n8k16_f16_f16()
    block_m, block_n, block_k = 32, 64, 16
    threads = 64
    a_type = tensor_type(
        "float16", shape=[block_m, block_k], layout=row_major(block_m, block_k // 8).swizzle(1) * row_major(1, 8)
    )
    b_type = tensor_type(
        "float16",
        shape=[block_k, block_n],
        layout=row_major(block_k // 8, block_n // 64) * row_major(8, 8).swizzle(1) * row_major(1, 8),
    )
    copy_a = auto_map(block_m, block_k // 8, workers=threads)
    copy_b = auto_map(block_k, block_n // 8, workers=threads)
    count_n = block_n // config.n

    with hidet.script_module() as module:

        @hidet.script
        def fetch_a(step: int, a: f16[m_size, k_size], tile: a_type):
            part = a[blockIdx.x * block_m :, step * block_k :]
            for i, segment in copy_a.on(threadIdx.x):
                k = segment * 8
                is_outside = blockIdx.x * block_m + i >= m_size or step * block_k + k >= k_size
                size = 0 if is_outside else min(k_size - (step * block_k + k), 8)
                cp_async(~tile[i, k], ~part[i, k], cp_size=16, src_size=size * 2, cache_level="global")

        @hidet.script
        def fetch_b(step: int, b: f16[k_size, n_size], tile: b_type):
            part = b[step * block_k :, blockIdx.y * block_n :]
            for k, segment in copy_b.on(threadIdx.x):
                j = segment * 8
                is_outside = step * block_k + k >= k_size or blockIdx.y * block_n + j >= n_size
                size = 0 if is_outside else min(n_size - (blockIdx.y * block_n + j), 8)
                cp_async(~tile[k, j], ~part[k, j], cp_size=16, src_size=size * 2)

        @hidet.script
        def read_a(tile: a_type, regs: f16[config.a_elements]):
            warp, lane = threadIdx.x / WARP, threadIdx.x % WARP
            p, q = col_spatial(16, 2).map(lane)
            words = view(regs, u32[4])
            ldmatrix(
                regs=[words[0], words[1], words[2], words[3]],
                smem_addr=~tile[warp * 16 + p, q * 8],
                shared_space_addr=False,
                trans=False,
            )

        @hidet.script
        def read_b(column: int, tile: b_type, regs: f16[config.b_elements]):
            p, q = col_spatial(16, 2).map(threadIdx.x % WARP)
            words = view(regs, u32[2])
            ldmatrix(regs=[words[0], words[1]], smem_addr=~tile[p, column], trans=True)

        @hidet.script
        def matmul(a: f16[m_size, k_size], b: f16[k_size, n_size], c: f16[m_size, n_size]):
            attrs.cuda.grid_dim = (m_size + block_m - 1) // block_m, (n_size + block_n - 1) // block_n
            attrs.cuda.block_dim = threads
            attrs.cuda.dynamic_smem_bytes = 2 * (block_m + block_n) * block_k * 2
            tile_a = tensor_pointer("float16", shape=[2, block_m, block_k], layout=row_major(2) + a_type.layout)
            tile_b = tensor_pointer("float16", shape=[2, block_k, block_n], layout=row_major(2) + b_type.layout)
            tile_a = dynamic_shared_memory(byte_offset=0, dtype=float16)
            tile_b = dynamic_shared_memory(byte_offset=2 * block_m * block_k * 2, dtype=float16)
            regs_a = register_tensor(float16, [config.a_elements])
            regs_b = register_tensor(float16, [config.b_elements])
            regs_c = register_tensor(float16, [count_n, config.c_elements])
            for j, p in grid(count_n, config.c_elements):
                regs_c[j, p] = 0.0
            fetch_a(0, a, ~tile_a[0, 0, 0])
            fetch_b(0, b, ~tile_b[0, 0, 0])
            cp_async_wait_all()
            syncthreads()
            for step in range((k_size + block_k - 1) // block_k):
                fetch_a(step + 1, a, ~tile_a[(step + 1) % 2, 0, 0])
                fetch_b(step + 1, b, ~tile_b[(step + 1) % 2, 0, 0])
                read_a(~tile_a[step % 2, 0, 0], regs_a)
                for j in range(count_n):
                    read_b(j * 8, ~tile_b[step % 2, 0, 0], regs_b)
                    mma_sync(config, regs_a, regs_b, ~regs_c[j, 0])
                cp_async_wait_all()
                syncthreads()
            warp, lane = threadIdx.x / WARP, threadIdx.x % WARP
            part = c[blockIdx.x * block_m + warp * 16 :, blockIdx.y * block_n :]
            for j in range(count_n):
                p = 0
                for row, column in config.c_store_map.on(lane):
                    part.write([row, j * 8 + column], regs_c[j, p], protected=True)
                    p += 1

    return module


def wgmma_product(n: int, steps: int, from_registers: bool) -> Any:
    """A product of one warp group whose operands lie in blocks of 8 rows and 16 bytes; A may lie in registers."""
    config = WgmmaConfig.get(64, n, 16, "f16", "f16", "f32")
    m, k = config.m, config.k
    # Blocks of 128 bytes: the next one along k lies behind this one, the next rows behind those of two.
    described = make_wgmma_desc(lead_dim_offset=128, stride_dim_offset=256, layout_type=0)
    results = getattr(wgmma_results, f"n{n}").f32

    with hidet.script_module() as module:

        @hidet.script
        def product(a: f16[m, steps * k], b: f16[steps * k, n], c: f32[m, n]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 128
            tile_a = shared_tensor(f16, layout=row_major(8, 2) * row_major(8, 8))
            tile_b = shared_tensor(f16, layout=row_major(n // 8, 2) * row_major(8, 8))
            of_a = register_tensor(f16, [config.a_elements])
            sums = register_tensor(f32, [config.c_elements])
            for at in range(config.c_elements):
                sums[at] = 0.0
            for step in range(steps):
                for i, p in auto_map(m, k, workers=128).on(threadIdx.x):
                    tile_a[i, p] = a[i, step * k + p]
                for j, p in auto_map(n, k, workers=128).on(threadIdx.x):
                    tile_b[j, p] = b[step * k + p, j]
                at = 0
                for i, p in config.a_load_map.on(threadIdx.x):
                    of_a[at] = a[i, step * k + p]
                    at += 1
                fence_async_shared()
                syncthreads()
                left = matrix_address(~tile_a[0, 0]) | described
                right = matrix_address(~tile_b[0, 0]) | described
                wgmma_fence()
                wgmma_async(config, of_a if from_registers else left, sums, right)
                wgmma_commit_group()
                wgmma_wait_group(0)
                results(sums)
                syncthreads()
            at = 0
            for i, j in config.c_store_map.on(threadIdx.x):
                c[i, j] = sums[at]
                at += 1

    return module


def products(m: int, n: int, k: int) -> Callable[[np.random.Generator], list[Any]]:
    return lambda random: [normal(random, m, k), normal(random, k, n), poisoned(m, n)]


def half_products(shape: tuple[int, ...], m: int, n: int, k: int, result: Any) -> Callable[..., list[Any]]:
    def make(random: np.random.Generator) -> list[Any]:
        a, b = normal(random, *shape, m, k, dtype=np.float16), normal(random, *shape, k, n, dtype=np.float16)
        return [a, b, poisoned(*shape, m, n, dtype=result)]

    return make


def multiplied(a: Array, b: Array, *others: Any) -> dict[int, Array]:
    return {2: a.astype(np.float64) @ b.astype(np.float64)}


KERNELS: dict[str, Kernel] = {
    "naive matmul": Kernel(lambda: naive_matmul(40, 50, 8), products(40, 50, 8), multiplied, on_cpu=True),
    "matmul of pointers": Kernel(
        pointer_matmul, lambda random: [*products(9, 11, 5)(random), 9, 11, 5], multiplied, on_cpu=True
    ),
    "tiled matmul": Kernel(
        tiled_matmul,
        lambda random: [*products(18, 33, 9)(random), 18, 33, 9],
        lambda a, b, *rest: {2: np.maximum(a @ b, 0)},
    ),
    "mma matmul": Kernel(
        lambda: mma_matmul(MmaConfig.m16n8k8_f16_f32(), 2, 40, 20, 24),
        half_products((2,), 40, 20, 24, np.float32),
        multiplied,
        tolerance=1e-4,
    ),
    "wider mma matmul": Kernel(
        lambda: mma_matmul(MmaConfig.m16n8k16_f16_f32(), 1, 16, 24, 40),
        half_products((1,), 16, 24, 40, np.float32),
        multiplied,
        tolerance=1e-4,
    ),
    "pipelined matmul": Kernel(
        lambda: pipelined_matmul(40, 72, 24),
        half_products((), 40, 72, 24, np.float16),
        multiplied,
        # Sums are kept in f16.
        tolerance=2e-2,
    ),
    "product of a warp group": Kernel(
        lambda: wgmma_product(32, 2, from_registers=False),
        half_products((), 64, 32, 32, np.float32),
        multiplied,
        tolerance=1e-4,
        arch=90,
    ),
    "product of a warp group with registers": Kernel(
        lambda: wgmma_product(24, 2, from_registers=True),
        half_products((), 64, 24, 32, np.float32),
        multiplied,
        tolerance=1e-4,
        arch=90,
    ),
}
