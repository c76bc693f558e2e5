"""Threads, memory and what the language has besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hidet
from hidet.lang import (
    address,
    attrs,
    boolean,
    cast,
    f32,
    grid,
    i32,
    i64,
    meta,
    register_tensor,
    shared_tensor,
    u32,
    unroll,
    void_p,
)
from hidet.lang.cuda import (
    acquire_lock,
    acquire_seq_semaphore,
    atomic_add,
    blockDim,
    blockIdx,
    dynamic_shared_memory,
    gridDim,
    load,
    load_cluster,
    nano_sleep,
    release_lock,
    release_seq_semaphore,
    shfl_xor_sync,
    store,
    sync_grid,
    syncthreads,
    this_cluster,
    threadIdx,
    warp_groups,
)
from tests.script_kernels.case import ALL_LANES, WARP, Array, Kernel, normal, poisoned

# ruff: noqa: F821, SIM300  # scripts as users write them


def block_sum(n: int) -> Any:
    """A sum through shared memory, shuffles and an atomic addition, in dynamic shared memory."""
    with hidet.script_module() as module:

        @hidet.script
        def total(x: f32[n], out: f32[1]):
            attrs.cuda.grid_dim = (n + 63) // 64
            attrs.cuda.block_dim = 64
            attrs.cuda.dynamic_smem_bytes = 64 * 4
            tile = dynamic_shared_memory(0, f32)
            i = blockIdx.x * blockDim.x + threadIdx.x
            tile[threadIdx.x] = x[i] if i < n else 0.0
            syncthreads()
            if threadIdx.x < WARP:
                value = tile[threadIdx.x] + tile[threadIdx.x + WARP]
                for mask in [16, 8, 4, 2, 1]:
                    value += shfl_xor_sync(ALL_LANES, value, mask)
                if threadIdx.x == 0:
                    atomic_add(~out[0], value)

    return module


def histogram(n: int, bins: int) -> Any:
    with hidet.script_module() as module:

        @hidet.script
        def count(x: i32[n], out: i32[bins]):
            attrs.cuda.grid_dim = 2
            attrs.cuda.block_dim = 32
            mine = shared_tensor(i32, [bins])
            if threadIdx.x < bins:
                mine[threadIdx.x] = 0
            syncthreads()
            i = blockIdx.x * 32 + threadIdx.x
            while i < n:
                assert 0 <= x[i] and x[i] < bins, "a value has no bin"
                atomic_add(~mine[x[i]], 1)
                i += gridDim.x * 32
            syncthreads()
            if threadIdx.x < bins:
                atomic_add(~out[threadIdx.x], mine[threadIdx.x])

    return module


def warp_specialized() -> Any:
    """Two groups of warps, one that fills shared memory and two that use it."""
    with hidet.script_module() as module:

        @hidet.script
        def work(x: f32[256], y: f32[256]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 384
            tile = shared_tensor(f32, [256])
            with warp_groups([0]) as thread:
                tile[thread] = x[thread]
                tile[thread + 128] = x[thread + 128]
            syncthreads()
            with warp_groups([1, 2]) as thread:
                y[thread] = tile[255 - thread]

    return module


def pointers() -> Any:
    """Addresses of variables and of elements, comparisons and arithmetic of pointers, numbers written through them."""
    with hidet.script_module() as module:

        @hidet.script
        def exchange(a: ~i32, b: ~i32):
            kept = a[0]
            a[0] = b[0]
            b[0] = kept

        @hidet.script
        def launch(x: i32[8]):
            attrs.func_kind = "public"
            one, two = 10, 20
            first: i32 = one
            second: i32 = two
            exchange(~first, ~second)
            x[0] = first
            x[1] = second
            exchange(~x[2], ~x[3])
            nothing = void_p(0)
            here = ~x[4]
            x[4] = 1 if here == nothing else 2
            x[5] = 1 if here + 1 == ~x[5] else 2
            words = cast(here, ~u32) + 2
            words[0] = 7
            x[7] = (first - 27) / 2
            later: i32
            exchange(~later, ~x[6])
            exchange(address(x[6]), address(later))

    return module


def changed_variables() -> Any:
    """Variables whose address is taken, in loops, branches, tuples and functions inside of a script."""
    with hidet.script_module() as module:

        @hidet.script
        def bump(p: ~i64, by: int):
            p[0] = p[0] + by

        @hidet.script
        def launch(n: i64, x: i64[8], flag: boolean):
            attrs.func_kind = "public"
            bump(~n, 1)
            x[0] = n
            total = 0
            for i in range(4):
                bump(~total, i)
                total += 10
            x[1] = total
            a, b = total, n
            bump(~a, 1)
            a, b = b, a
            x[2], x[3] = a, b

            def twice(value):
                value *= 2
                if flag:
                    value += 1
                return value

            x[4] = twice(a) + twice(twice(1))
            k = 5
            while k > 0:
                bump(~k, -2)
            x[5] = k
            for j in grid(3):
                c = j
                bump(~c, 100)
                x[6] = c
            y = z = x[6] - 1
            z += y
            x[7] = z

    return module


def reversed_blocks(n: int) -> Any:
    """Parameters in groups, loops written out, a table from Python, a kernel and a host function."""
    scales = {"even": 2.0, "odd": 3.0}

    with hidet.script_module() as module:

        @hidet.script
        def scale(args: meta.types([f32[n], f32[n]]), factor: float, is_odd: boolean):
            attrs.cuda.grid_dim = n // 2
            attrs.cuda.block_dim = 1
            i = blockIdx.x * 2
            if is_odd:
                i += 1
            args[1][n - 1 - i] = args[0][i] * factor

        @hidet.script
        def launch(x: f32[n], y: f32[n]):
            attrs.func_kind = "public"
            for name in meta.each(sorted(scales)):
                scale(x, y, is_odd=name == "odd", factor=scales[name])

    return module


def fibonacci(n: int) -> Any:
    """Variables, while, break, continue, assignments to several targets, parallel loops of a CPU."""
    with hidet.script_module() as module:

        @hidet.script
        def launch(out: i32[n], squares: i32[n]):
            attrs.func_kind = "public"
            a = b = 1
            i = 0
            while True:
                if i >= n:
                    break
                out[i] = a
                a, b = b, a + b
                i += 1
            for j in grid(n, "p"):
                squares[j] = j * j
            for j, twice in grid(n // 2, 2, attrs="u."):
                if twice == 0:
                    continue
                squares[j * 2] -= 1

    return module


def counted(n: int) -> Callable[..., dict[int, Array]]:
    def expected(*given: Any) -> dict[int, Array]:
        numbers = [1, 1]
        while len(numbers) < n:
            numbers.append(numbers[-1] + numbers[-2])
        squares = np.arange(n, dtype=np.int32) ** 2
        squares[::2] -= 1
        return {0: np.array(numbers[:n], np.int32), 1: squares}

    return expected


def written_out() -> Any:
    with hidet.script_module() as module:

        @hidet.script
        def fill(x: f32[4, 64]):
            attrs.cuda.grid_dim = 4
            attrs.cuda.block_dim = 64
            held = register_tensor(f32, [4])
            for i in unroll(4):
                held[i] = i + 1.0
            half, rest = threadIdx.x / 2, threadIdx.x % 2
            for i in grid(4, attrs="u+"):
                if i == blockIdx.x:
                    x[i, half * 2 + rest] = held[i]

    return module


def exchanged(n: int) -> Any:
    """Two blocks of a cluster read each other's shared memory."""
    with hidet.script_module() as module:

        @hidet.script
        def swap(x: f32[2 * n], y: f32[2 * n]):
            attrs.cuda.grid_dim = 2
            attrs.cuda.block_dim = n
            attrs.cuda.cluster_dim = 2
            mine = shared_tensor(f32, [n])
            mine[threadIdx.x] = x[blockIdx.x * n + threadIdx.x]
            this_cluster.sync()
            other = this_cluster.map_shared_rank(~mine[threadIdx.x], 1 - this_cluster.block_rank)
            y[blockIdx.x * n + threadIdx.x] = load_cluster(other)
            this_cluster.sync()

    return module


def large_shared_memory(declared: int, asked: int) -> Any:
    """More shared memory than a kernel may declare without asking, and more besides."""
    with hidet.script_module() as module:

        @hidet.script
        def turn(x: f32[declared], y: f32[declared]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 128
            attrs.cuda.dynamic_smem_bytes = asked * 4
            held = shared_tensor(f32, [declared])
            more = dynamic_shared_memory(0, f32)
            for step in range(declared // 128):
                held[step * 128 + threadIdx.x] = x[step * 128 + threadIdx.x]
            more[asked - 1 - threadIdx.x] = 1.0
            syncthreads()
            for step in range(declared // 128):
                at = step * 128 + threadIdx.x
                y[at] = held[declared - 1 - at] + more[asked - 128 + threadIdx.x]

    return module


def locked_numbers(n: int) -> Any:
    """Release and acquire: one block tells the others that a number is there."""
    with hidet.script_module() as module:

        @hidet.script
        def hand_over(x: f32[n], flag: i32[1], y: f32[n]):
            attrs.cuda.grid_dim = 2
            attrs.cuda.block_dim = 1
            if blockIdx.x == 0:
                for i in range(n):
                    x[i] = i + 1.0
                store(~flag[0], 1, sync="release", scope="gpu")
            else:
                while load(~flag[0], sync="acquire", scope="gpu") == 0:
                    nano_sleep(20)
                for i in range(n):
                    y[i] = x[i]

    return module


def scaled(x: Array, *others: Any) -> dict[int, Array]:
    factors = np.where(np.arange(len(x)) % 2 == 0, 2.0, 3.0)
    return {1: (x * factors)[::-1]}


def smoothed(blocks: int, steps: int) -> Any:
    """Steps of a grid of blocks that read what their neighbours wrote in the step before."""
    n = 32 * blocks
    with hidet.script_module() as module:

        @hidet.script
        def smooth(x: f32[n], y: f32[n], arrived: u32[1]):
            attrs.cuda.grid_dim = blocks
            attrs.cuda.block_dim = 32
            attrs.cuda.cooperative = True
            i = blockIdx.x * 32 + threadIdx.x
            for _ in range(steps):
                y[i] = 0.5 * (x[(i + 1) % n] + x[(i + n - 1) % n])
                sync_grid(~arrived[0])
                x[i] = y[i]
                sync_grid(~arrived[0])

    return module


def smoothing(x: Array, y: Array, arrived: Array) -> dict[int, Array]:
    for _ in range(3):
        x = (0.5 * (np.roll(x, -1) + np.roll(x, 1))).astype(np.float32)
    return {0: x, 1: x, 2: arrived}


def counted_under_a_lock(blocks: int) -> Any:
    """Every block adds to the same elements, one after the other."""
    with hidet.script_module() as module:

        @hidet.script
        def add(x: f32[32], lock: i32[1]):
            attrs.cuda.grid_dim = blocks
            attrs.cuda.block_dim = 32
            acquire_lock(~lock[0])
            x[threadIdx.x] = x[threadIdx.x] + 1.0
            release_lock(~lock[0])

    return module


def appended_in_turn(blocks: int) -> Any:
    """Block after block makes its number of what the block before made."""
    with hidet.script_module() as module:

        @hidet.script
        def fold(x: f32[32], turn: i32[1]):
            attrs.cuda.grid_dim = blocks
            attrs.cuda.block_dim = 32
            acquire_seq_semaphore(~turn[0], blockIdx.x)
            x[threadIdx.x] = 2.0 * x[threadIdx.x] + blockIdx.x
            release_seq_semaphore(~turn[0], blockIdx.x + 1)

    return module


def folded(x: Array, turn: Array) -> dict[int, Array]:
    for block in range(5):
        x = 2 * x + block
    return {0: x, 1: np.array([5], np.int32)}


KERNELS: dict[str, Kernel] = {
    "sum of blocks": Kernel(
        lambda: block_sum(150),
        lambda random: [normal(random, 150), np.zeros(1, np.float32)],
        lambda x, out: {1: x.sum(keepdims=True)},
    ),
    "histogram": Kernel(
        lambda: histogram(200, 5),
        lambda random: [random.integers(0, 5, 200, np.int32), np.zeros(5, np.int32)],
        lambda x, out: {1: np.bincount(x, minlength=5).astype(np.int32)},
    ),
    "warp-specialized groups": Kernel(
        warp_specialized, lambda random: [normal(random, 256), poisoned(256)], lambda x, y: {1: x[::-1]}
    ),
    "pointers": Kernel(
        pointers,
        lambda random: [np.arange(8, dtype=np.int32)],
        lambda x: {0: np.array([20, 10, 3, 2, 2, 1, 7, -3], np.int32)},
        on_cpu=True,
    ),
    "changed variables": Kernel(
        changed_variables,
        lambda random: [3, np.zeros(8, np.int64), True],
        lambda n, x, flag: {1: np.array([4, 46, 4, 47, 16, -1, 102, 202])},
        on_cpu=True,
    ),
    "grouped parameters": Kernel(
        lambda: reversed_blocks(8), lambda random: [normal(random, 8), poisoned(8)], scaled, on_cpu=True
    ),
    "fibonacci": Kernel(
        lambda: fibonacci(10),
        lambda random: [np.zeros(10, np.int32), np.zeros(10, np.int32)],
        counted(10),
        on_cpu=True,
    ),
    "loops written out": Kernel(
        written_out,
        lambda random: [poisoned(4, 64)],
        lambda x: {0: np.repeat(np.arange(1, 5, dtype=np.float32)[:, None], 64, 1)},
        on_cpu=True,
    ),
    "cluster": Kernel(
        lambda: exchanged(64),
        lambda random: [normal(random, 128), poisoned(128)],
        lambda x, y: {1: np.concatenate([x[64:], x[:64]])},
        arch=90,
    ),
    "cooperative blocks": Kernel(
        lambda: smoothed(6, 3), lambda random: [normal(random, 192), poisoned(192), np.zeros(1, np.uint32)], smoothing
    ),
    "lock": Kernel(
        lambda: counted_under_a_lock(6),
        lambda random: [normal(random, 32), np.zeros(1, np.int32)],
        lambda x, lock: {0: x + 6, 1: lock},
    ),
    "turns of blocks": Kernel(
        lambda: appended_in_turn(5), lambda random: [normal(random, 32), np.zeros(1, np.int32)], folded
    ),
    "large shared memory": Kernel(
        lambda: large_shared_memory(16384, 4096),
        lambda random: [normal(random, 16384), poisoned(16384)],
        lambda x, y: {1: x[::-1] + 1},
    ),
    "release and acquire": Kernel(
        lambda: locked_numbers(5),
        lambda random: [poisoned(5), np.zeros(1, np.int32), poisoned(5)],
        lambda x, flag, y: {0: np.arange(1, 6, dtype=np.float32), 2: np.arange(1, 6, dtype=np.float32)},
    ),
}
