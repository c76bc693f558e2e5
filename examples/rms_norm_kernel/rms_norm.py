"""A kernel of your own: add a residual, then normalise rows by their root mean square, in one pass over memory.

`python rms_norm.py` checks it in the simulator, and on a GPU, where there is one, against torch, with times.
"""

from __future__ import annotations

import numpy as np

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import attrs, cast, f16, f32, float16x8, float32x8, load, register_tensor, shared_tensor, store
from hidet.lang.cuda import blockIdx, shfl_xor_sync, syncthreads, threadIdx

WARP, LANES, ALL = 32, 8, 0xFFFFFFFF


def make_rms_norm(columns: int, epsilon: float = 1e-6) -> hidet.lang.ScriptModule:
    """y = (x + residual) / rms(x + residual) * weight for rows of `columns` halves; the sum stays in `residual`.

    A block computes a row, whose elements stay in registers: 16 bytes a thread and access, sums in f32.
    """
    if columns % LANES:
        raise ValueError(f"rows of {columns} halves are no multiple of 16 bytes")
    threads = min(1024, -(-columns // (LANES * WARP)) * WARP)
    steps = -(-columns // (LANES * threads))
    warps = threads // WARP
    rows = hidet.symbol_var("rows")

    with hidet.script_module() as module:

        @hidet.script
        def rms_norm(x: f16[rows, columns], residual: f16[rows, columns], weight: f16[columns], y: f16[rows, columns]):
            attrs.cuda.grid_dim = rows
            attrs.cuda.block_dim = threads

            held = register_tensor(float32x8, [steps])
            partial = shared_tensor(f32, [WARP])

            def over_warp(value):
                for distance in (16, 8, 4, 2, 1):
                    value += shfl_xor_sync(ALL, value, distance)
                return value

            squares = f32.zero
            for step in range(steps):
                at = (step * threads + threadIdx.x) * LANES
                if at < columns:
                    total = cast(load(x, [blockIdx.x, at], type=float16x8), float32x8)
                    total += cast(load(residual, [blockIdx.x, at], type=float16x8), float32x8)
                    store(residual, [blockIdx.x, at], cast(total, float16x8))
                    held[step] = total
                    for lane in hidet.lang.meta.range(LANES):
                        squares += total[lane] * total[lane]
            squares = over_warp(squares)
            if threadIdx.x % WARP == 0:
                partial[threadIdx.x / WARP] = squares
            syncthreads()
            squares = over_warp(partial[threadIdx.x % WARP] if threadIdx.x % WARP < warps else 0.0)
            scale = hidet.lang.rsqrt(squares / columns + epsilon)
            for step in range(steps):
                at = (step * threads + threadIdx.x) * LANES
                if at < columns:
                    factors = cast(load(weight, [at], type=float16x8), float32x8)
                    store(y, [blockIdx.x, at], cast(held[step] * factors * scale, float16x8))

    return module


def check_in_the_simulator() -> None:
    """Races, accesses outside of memory and wrong numbers would end this with an error."""
    random = np.random.default_rng(0)
    x, residual, weight = (random.standard_normal(s).astype(np.float16) for s in ((3, 520), (3, 520), (520,)))
    total = x.astype(np.float32) + residual.astype(np.float32)
    expected = total / np.sqrt((total**2).mean(1, keepdims=True) + 1e-6) * weight.astype(np.float32)
    y = np.full_like(x, np.nan)
    run_module(make_rms_norm(520).ir_module(), [x, residual, weight, y, 3])
    np.testing.assert_allclose(y.astype(np.float32), expected, rtol=2e-3, atol=2e-3)
    assert (residual == total.astype(np.float16)).all()
    print("simulator: right")


def compare_on_a_gpu() -> None:
    """Against torch's own operators, as they are and compiled."""
    import torch

    def in_torch(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        residual += x
        return torch.nn.functional.rms_norm(residual, weight.shape, weight, 1e-6)

    rows, columns = 4096, 4096
    x, residual, weight = (torch.randn(s, device="cuda").half() for s in ((rows, columns), (rows, columns), (columns,)))
    y, other = torch.empty_like(x), residual.clone()
    kernel = make_rms_norm(columns).build()
    kernel(x, residual, weight, y)
    torch.testing.assert_close(y, in_torch(x, other, weight), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(residual, other)
    print("GPU: right")
    ours = hidet.utils.benchmark_func(lambda: kernel(x, residual, weight, y), warmup=10, number=50)
    eager = hidet.utils.benchmark_func(lambda: in_torch(x, other, weight), warmup=10, number=50)
    least = 4 * x.nbytes / 3.35e9
    print(f"kernel {ours:.3f} ms, torch {eager:.3f} ms; an H100's memory alone would take {least:.3f} ms")


if __name__ == "__main__":
    check_in_the_simulator()
    try:
        has_gpu = __import__("torch").cuda.is_available()
    except ImportError:
        has_gpu = False
    if has_gpu:
        compare_on_a_gpu()
