"""An operator with a program of your own
======================================

An operator of your own with a program of your own: tensor cores for products of halves.

``implement_cuda`` gives the program as a module of scripts; its entry takes the inputs, then the outputs. Without a GPU
the kernel runs in the simulator.
"""

from __future__ import annotations

# ruff: noqa: SIM113  # a script has no enumerate
import numpy as np

import hidet
from hidet.graph import Operator, Tensor
from hidet.graph.ops.utils import input_like
from hidet.ir import IRModule
from hidet.ir.compute import TensorNode, compute, reduce
from hidet.ir.interpret import run_module
from hidet.ir.task import Task


class BatchMatmulFp16Task(Task):
    def __init__(self, a: TensorNode, b: TensorNode):
        batch, rows, inner = a.const_shape
        columns = b.const_shape[2]
        c = compute(
            name="c",
            shape=[batch, rows, columns],
            fcompute=lambda p, i, j: reduce(
                shape=[inner], fcompute=lambda k: a[p, i, k] * b[p, k, j], reduce_type="sum"
            ),
        )
        super().__init__(
            name="batch_matmul_fp16",
            inputs=[a, b],
            outputs=[c],
            attributes={"batch": batch, "rows": rows, "columns": columns, "inner": inner},
        )

    def allow_epilogue(self) -> bool:
        return False

    def implement_cuda(self, working_dir: str) -> IRModule:
        return tensor_core_matmul(**self.attributes)


def tensor_core_matmul(batch: int, rows: int, columns: int, inner: int) -> IRModule:
    """c[p] = a[p] @ b[p] for halves. A block of four warps makes a tile of 64 x 64, each warp a quarter of it."""
    from hidet.lang import attrs, f16, grid, register_tensor, shared_tensor, spatial
    from hidet.lang.cuda import MmaConfig, blockIdx, mma_sync, syncthreads, threadIdx

    mma = MmaConfig.m16n8k8_f16_f16()
    warps, tiles = (2, 2), (2, 4)
    block_m, block_n, block_k = warps[0] * tiles[0] * mma.m, warps[1] * tiles[1] * mma.n, mma.k
    threads = 32 * warps[0] * warps[1]

    with hidet.script_module() as module:

        @hidet.script
        def load_tile(
            p: hidet.lang.i32,
            k: hidet.lang.i32,
            a: f16[batch, rows, inner],
            b: f16[batch, inner, columns],
            tile_a: ~f16,
            tile_b: ~f16,
        ):
            """Both tiles of a step; what is outside of the matrices is zero."""
            for i, j in spatial(threads // block_k, block_k).on(threadIdx.x):
                for part in range(block_m // (threads // block_k)):
                    row = part * (threads // block_k) + i
                    place = a[p, blockIdx.x * block_m :, k:]
                    tile_a[row * block_k + j] = place.read([row, j], protected=True)
            for i, j in spatial(threads // block_n, block_n).on(threadIdx.x):
                for part in range(block_k // (threads // block_n)):
                    row = part * (threads // block_n) + i
                    place = b[p, k:, blockIdx.y * block_n :]
                    tile_b[row * block_n + j] = place.read([row, j], protected=True)

        @hidet.script
        def batch_matmul(a: f16[batch, rows, inner], b: f16[batch, inner, columns], c: f16[batch, rows, columns]):
            attrs.cuda.grid_dim = (rows + block_m - 1) // block_m, (columns + block_n - 1) // block_n, batch
            attrs.cuda.block_dim = threads

            tile_a = shared_tensor(f16, [block_m, block_k])
            tile_b = shared_tensor(f16, [block_k, block_n])
            regs_a = register_tensor(f16, [tiles[0], mma.a_elements])
            regs_b = register_tensor(f16, [tiles[1], mma.b_elements])
            sums = register_tensor(f16, [tiles[0], tiles[1], mma.c_elements])
            warp, lane = threadIdx.x // 32, threadIdx.x % 32
            for i, j, e in grid(tiles[0], tiles[1], mma.c_elements):
                sums[i, j, e] = 0.0
            for step in range((inner + block_k - 1) // block_k):
                load_tile(blockIdx.z, step * block_k, a, b, ~tile_a[0, 0], ~tile_b[0, 0])
                syncthreads()
                for wm, wn in spatial(*warps).on(warp):
                    for i in range(tiles[0]):
                        e = 0
                        for row, column in mma.a_load_map.on(lane):
                            regs_a[i, e] = tile_a[(wm * tiles[0] + i) * mma.m + row, column]
                            e += 1
                    for j in range(tiles[1]):
                        e = 0
                        for row, column in mma.b_load_map.on(lane):
                            regs_b[j, e] = tile_b[row, (wn * tiles[1] + j) * mma.n + column]
                            e += 1
                for i, j in grid(tiles[0], tiles[1]):
                    mma_sync(mma, ~regs_a[i, 0], ~regs_b[j, 0], ~sums[i, j, 0])
                syncthreads()
            out = c[blockIdx.z, blockIdx.x * block_m :, blockIdx.y * block_n :]
            for wm, wn in spatial(*warps).on(warp):
                for i, j in grid(tiles[0], tiles[1]):
                    e = 0
                    for row, column in mma.c_store_map.on(lane):
                        place = (wm * tiles[0] + i) * mma.m + row, (wn * tiles[1] + j) * mma.n + column
                        out.write(place, sums[i, j, e], protected=True)
                        e += 1

    return module.ir_module()


class BatchMatmulFp16Op(Operator):
    def __init__(self, a: Tensor, b: Tensor):
        assert a.dtype == b.dtype == hidet.float16
        super().__init__(inputs=[a, b], attributes={}, task=BatchMatmulFp16Task(input_like(a, "a"), input_like(b, "b")))


def batch_matmul_fp16(a: Tensor, b: Tensor) -> Tensor:
    """The function that users call."""
    return BatchMatmulFp16Op(a, b).outputs[0]


def main() -> None:
    a, b = hidet.randn([2, 66, 20], dtype="float16"), hidet.randn([2, 20, 36], dtype="float16")
    expected = a.numpy().astype(np.float32) @ b.numpy().astype(np.float32)
    if hidet.cuda.available():
        c = batch_matmul_fp16(a.cuda(), b.cuda()).numpy()
    else:
        c = np.zeros(expected.shape, np.float16)
        task = BatchMatmulFp16Task(input_like(a, "a"), input_like(b, "b"))
        run_module(task.implement_cuda("."), [a.numpy(), b.numpy(), c])
        # The definition is the same operator for the host.
        np.testing.assert_allclose(batch_matmul_fp16(a, b).numpy(), expected, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(c, expected, rtol=2e-2, atol=5e-2)
    print(c[0, :2, :4])


if __name__ == "__main__":
    main()
