"""Pointers that move, and variables that functions change through their addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

import hidet
from hidet.lang import attrs, f32, i32, shared_tensor, tensor_pointer
from hidet.lang.cuda import syncthreads, threadIdx
from tests.script_kernels.case import Array, Kernel, normal, poisoned

# scripts as users write them


def extremes(n: int) -> Any:
    """Registers stay registers though their addresses are passed."""
    with hidet.script_module() as module:

        @hidet.script
        def widen(value: f32, low: ~f32, high: ~f32):
            low[0] = min(low[0], value)
            high[0] = max(high[0], value)

        @hidet.script
        def of_rows(x: f32[n, 4], y: f32[n, 2]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = n
            low, high = f32.max_value, f32.min_value
            for j in range(4):
                widen(x[threadIdx.x, j], ~low, ~high)
            y[threadIdx.x, 0] = low
            y[threadIdx.x, 1] = high

    return module


def alternating(rows: int) -> Any:
    """Two buffers that change roles in every step."""
    with hidet.script_module() as module:

        @hidet.script
        def add_reversed(x: f32[rows, 64], y: f32[64], n: i32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 64
            first = shared_tensor(f32, [64])
            second = shared_tensor(f32, [64])
            now = tensor_pointer(f32, [64])
            later = tensor_pointer(f32, [64])
            now = first
            later = second
            now[threadIdx.x] = x[0, threadIdx.x]
            for i in range(1, n):
                syncthreads()
                later[63 - threadIdx.x] = now[threadIdx.x] + x[i, threadIdx.x]
                kept = ~now[0]
                now = later
                later = kept
            syncthreads()
            y[threadIdx.x] = now[threadIdx.x]

    return module


def added_reversed(x: Array, y: Array, n: int) -> dict[int, Array]:
    total = x[0]
    for row in x[1:n]:
        total = (total + row)[::-1]
    return {1: total}


KERNELS: dict[str, Kernel] = {
    "extremes": Kernel(
        lambda: extremes(64),
        lambda random: [normal(random, 64, 4), poisoned(64, 2)],
        lambda x, y: {1: np.stack([x.min(1), x.max(1)], 1)},
    ),
    "alternating buffers": Kernel(
        lambda: alternating(5), lambda random: [normal(random, 5, 64), poisoned(64), 5], added_reversed
    ),
}
