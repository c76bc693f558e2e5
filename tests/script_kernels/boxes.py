"""Boxes of matrices and columns of pixels that TMA brings, stores and adds, described by tensor maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hidet
from hidet.lang import attrs, f32, register_tensor, shared_tensor, u16, u64
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
    tensor_load_im2col,
    tensor_map,
    tensor_map_im2col,
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


CHANNELS, PIXELS = 8, 16


def summed_windows(images: int, height: int, width: int, stride: int) -> Any:
    """Sums over windows of 3x3 pixels with a padding of 1: a column of pixels is brought for each tap."""
    lines, positions = (height - 1) // stride + 1, (width - 1) // stride + 1
    windows = images * lines * positions
    with hidet.script_module() as module:

        @hidet.script
        def add_taps(source: TensorMap, out: f32[windows, CHANNELS]):
            attrs.cuda.grid_dim = (windows + PIXELS - 1) // PIXELS
            attrs.cuda.block_dim = CHANNELS
            column = shared_tensor(f32, [PIXELS, CHANNELS])
            arrived = shared_tensor(u64, [1])
            total = register_tensor(f32, [PIXELS])
            if threadIdx.x == 0:
                mbarrier_init(~arrived[0], 1)
                fence_barrier_init()
            syncthreads()
            for i in range(PIXELS):
                total[i] = 0.0
            first = blockIdx.x * PIXELS
            x = first % positions * stride - 1
            y = first // positions % lines * stride - 1
            for tap in range(9):
                if threadIdx.x == 0:
                    mbarrier_arrive_and_expect_tx(~arrived[0], PIXELS * CHANNELS * 4)
                    image = first // (positions * lines)
                    tensor_load_im2col(~column[0, 0], source, ~arrived[0], 0, x, y, image, u16(tap % 3), u16(tap // 3))
                mbarrier_wait(~arrived[0], tap % 2)
                for i in range(PIXELS):
                    total[i] = total[i] + column[i, threadIdx.x]
                syncthreads()
            for i in range(PIXELS):
                if first + i < windows:
                    out[first + i, threadIdx.x] = total[i]

        @hidet.script
        def launch(x: f32[images, height, width, CHANNELS], out: f32[windows, CHANNELS]):
            attrs.func_kind = "public"
            corners = [-1, -1]
            add_taps(tensor_map_im2col(x, CHANNELS, PIXELS, corners, corners, [stride, stride]), out)

    return module


def window_sums(stride: int) -> Callable[[Array, Array], dict[int, Array]]:
    def sums(x: Array, out: Array) -> dict[int, Array]:
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::stride, ::stride]
        return {1: windows.sum((-2, -1)).reshape(-1, CHANNELS)}

    return sums


def squares(x: Array, y: Array, z: Array) -> dict[int, Array]:
    return {1: x * x, 2: z + x * x}


KERNELS: dict[str, Kernel] = {
    "boxes of matrices": Kernel(
        lambda: squared_boxes(13, 40),
        lambda random: [normal(random, 13, 40), poisoned(13, 40), np.ones((13, 40), np.float32)],
        squares,
        arch=90,
    ),
    "columns of pixels": Kernel(
        lambda: summed_windows(2, 5, 7, 1),
        lambda random: [normal(random, 2, 5, 7, CHANNELS), poisoned(70, CHANNELS)],
        window_sums(1),
        arch=90,
    ),
    "columns of every other pixel": Kernel(
        lambda: summed_windows(3, 9, 6, 2),
        lambda random: [normal(random, 3, 9, 6, CHANNELS), poisoned(45, CHANNELS)],
        window_sums(2),
        arch=90,
    ),
}
