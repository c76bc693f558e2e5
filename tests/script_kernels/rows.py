"""Rows and vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import hidet
from hidet.lang import (
    attrs,
    cast,
    f16,
    f32,
    float16x2,
    float32x2,
    float32x4,
    grid,
    load,
    register_tensor,
    static,
    store,
    tensor,
)
from hidet.lang.cpu import (
    avx_f32x8_find_sum,
    avx_f32x8_fmadd,
    avx_f32x8_load,
    avx_f32x8_multiply,
    avx_f32x8_set1,
    avx_f32x8_setzero,
    avx_f32x8_store,
)
from hidet.lang.cuda import (
    blockIdx,
    shfl_down_sync,
    shfl_sync,
    threadIdx,
)
from tests.script_kernels.case import ALL_LANES, WARP, Array, Kernel, normal, poisoned

# ruff: noqa: RUF005  # scripts as users write them


def softmax(rows: int, columns: int) -> Any:
    """A warp a row; functions inside of the script say how values are joined."""
    per_lane = (columns + WARP - 1) // WARP

    with hidet.script_module() as module:

        @hidet.script
        def softmax_rows(x: f32[rows, columns], y: f32[rows, columns]):
            attrs.cuda.grid_dim = rows
            attrs.cuda.block_dim = WARP

            def joined(value, join):
                for distance in (16, 8, 4, 2, 1):
                    value = join(value, shfl_down_sync(ALL_LANES, value, delta=distance))
                return shfl_sync(ALL_LANES, value, src_lane=0)

            held = register_tensor(f32, shape=[per_lane])
            largest = f32.min_value
            for step in range(per_lane):
                column = threadIdx.x + step * WARP
                if column < columns:
                    held[step] = x[blockIdx.x, column]
                    largest = max(largest, held[step])
            largest = joined(largest, lambda a, b: max(a, b))
            total = f32.zero
            for step in range(per_lane):
                column = threadIdx.x + step * WARP
                if column < columns:
                    held[step] = math.exp(held[step] - largest)
                    total += held[step]
            total = joined(total, lambda a, b: a + b)
            for step in range(per_lane):
                column = threadIdx.x + step * WARP
                if column < columns:
                    y[blockIdx.x, column] = held[step] / total

    return module


def softmax_of(x: Array, *others: Any) -> dict[int, Array]:
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return {1: powers / powers.sum(1, keepdims=True)}


def softmax_on_cpu(shape: tuple[int, ...], axis: int) -> Any:
    """Loops over any number of dims: one name stands for all their indices."""
    with hidet.script_module() as module:

        @hidet.script
        def kernel(x: f32[shape], y: f32[shape]):
            attrs.func_kind = "cpu_kernel"
            others = shape[:axis] + shape[axis + 1 :]
            extent = shape[axis]
            largest = tensor("default", f32, shape=others)
            powers = tensor("default", f32, shape=shape)
            total = tensor("default", f32, shape=others)
            for at in grid(others):
                largest[at] = -1e10
                for k in range(extent):
                    largest[at] = max(largest[at], x[at[:axis] + (k,) + at[axis:]])
            for at in grid(shape):
                powers[at] = math.exp(x[at] - largest[at[:axis] + at[axis + 1 :]])
            for at in grid(others):
                total[at] = 0.0
                for k in range(extent):
                    total[at] += powers[at[:axis] + (k,) + at[axis:]]
            for at in grid(shape):
                y[at] = powers[at] / total[at[:axis] + at[axis + 1 :]]

    return module


def vectors(n: int) -> Any:
    """Four numbers at a time, and pairs of halves."""
    with hidet.script_module() as module:

        @hidet.script
        def add(x: ~f32, y: ~f16, z: ~f32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = n // 4
            i = threadIdx.x * 4
            wide = load(x, i, type=float32x4)
            low = cast(load(y, i, type=float16x2), float32x2)
            high = cast(load(y, i + 2, type=float16x2), float32x2)
            store(z, i, wide * 2.0)
            for lane in static(range(2)):
                z[i + lane] += low[lane]
                z[i + 2 + lane] += high[lane]

    return module


def dot_on_cpu(n: int) -> Any:
    """Eight numbers at a time under the names of AVX, the rest one by one."""
    with hidet.script_module() as module:

        @hidet.script
        def launch(x: f32[n], y: f32[n], scaled: f32[n], out: f32[1]):
            attrs.func_kind = "public"
            total = avx_f32x8_setzero()
            for step in range(n // 8):
                left, right = avx_f32x8_load(~x[step * 8]), avx_f32x8_load(~y[step * 8])
                total = avx_f32x8_fmadd(left, right, total)
                avx_f32x8_store(~scaled[step * 8], avx_f32x8_multiply(left, avx_f32x8_set1(2.0)))
            out[0] = avx_f32x8_find_sum(total)
            for rest in range(n % 8):
                i = n - n % 8 + rest
                scaled[i] = x[i] * 2.0
                out[0] += x[i] * y[i]

    return module


KERNELS: dict[str, Kernel] = {
    "softmax": Kernel(lambda: softmax(3, 70), lambda random: [normal(random, 3, 70), poisoned(3, 70)], softmax_of),
    "softmax on a CPU": Kernel(
        lambda: softmax_on_cpu((3, 7), 1),
        lambda random: [normal(random, 3, 7), poisoned(3, 7)],
        softmax_of,
        on_cpu=True,
    ),
    "vectors": Kernel(
        lambda: vectors(64),
        lambda random: [normal(random, 64), normal(random, 64, dtype=np.float16), poisoned(64)],
        lambda x, y, z: {2: 2 * x + y},
    ),
    "dot product by vectors": Kernel(
        lambda: dot_on_cpu(29),
        lambda random: [normal(random, 29), normal(random, 29), poisoned(29), poisoned(1)],
        lambda x, y, scaled, out: {2: 2 * x, 3: np.array([x @ y])},
        on_cpu=True,
    ),
}
