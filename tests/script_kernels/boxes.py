"""Boxes of matrices that the copy engine brings, stores and adds, described by tensor maps."""

from __future__ import annotations

from typing import Any

import numpy as np

import hidet
from hidet.lang import attrs, f32, shared_tensor, u64
from hidet.lang.cuda import (
    TensorMap,
    blockIdx,
    bulk_commit,
    bulk_wait,
    fence_async_shared,
    fence_barrier_init,
    mbarrier_arrive_and_expect_tx,
    mbarrier_init,
    mbarrier_wait,
    syncthreads,
    tensor_load,
    tensor_map,
    tensor_reduce_add,
    tensor_store,
    threadIdx,
)
from tests.script_kernels.case import Array, Kernel, normal, poisoned

# scripts as users write them

ROWS, COLUMNS = 8, 32


def squared_boxes(m: int, n: int) -> Any:
    """Boxes are brought to shared memory, changed there, stored to one matrix and added to another."""
    with hidet.script_module() as module:

        @hidet.script
        def square(source: TensorMap, stored: TensorMap, added: TensorMap):
            attrs.cuda.grid_dim = (n + COLUMNS - 1) // COLUMNS, (m + ROWS - 1) // ROWS
            attrs.cuda.block_dim = COLUMNS
            box = shared_tensor(f32, [ROWS, COLUMNS])
            arrived = shared_tensor(u64, [1])
            column, row = blockIdx.x * COLUMNS, blockIdx.y * ROWS
            if threadIdx.x == 0:
                mbarrier_init(~arrived[0], 1)
                fence_barrier_init()
            syncthreads()
            if threadIdx.x == 0:
                mbarrier_arrive_and_expect_tx(~arrived[0], ROWS * COLUMNS * 4)
                tensor_load(~box[0, 0], source, ~arrived[0], column, row)
            mbarrier_wait(~arrived[0], 0)
            for i in range(ROWS):
                box[i, threadIdx.x] = box[i, threadIdx.x] * box[i, threadIdx.x]
            fence_async_shared()
            syncthreads()
            if threadIdx.x == 0:
                tensor_store(stored, ~box[0, 0], column, row)
                tensor_reduce_add(added, ~box[0, 0], column, row)
                bulk_commit()
                bulk_wait(0)

        @hidet.script
        def launch(x: f32[m, n], y: f32[m, n], z: f32[m, n]):
            attrs.func_kind = "public"
            shape = ROWS, COLUMNS
            square(tensor_map(x, box=shape), tensor_map(y, box=shape), tensor_map(z, box=shape))

    return module


def squares(x: Array, y: Array, z: Array) -> dict[int, Array]:
    return {1: x * x, 2: z + x * x}


KERNELS: dict[str, Kernel] = {
    "boxes of matrices": Kernel(
        lambda: squared_boxes(13, 40),
        lambda random: [normal(random, 13, 40), poisoned(13, 40), np.ones((13, 40), np.float32)],
        squares,
        arch=90,
    ),
}
