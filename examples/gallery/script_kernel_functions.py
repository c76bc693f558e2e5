"""Script: kernels for the host and for a GPU
==========================================

Kernels: one for the host, one for a GPU, whose launch is written by hidet.

Without a GPU the second kernel runs in the simulator.
"""

import numpy as np
import torch

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32
from hidet.lang.cuda import blockDim, blockIdx, threadIdx


def matmul_on_the_host(m_size: int, n_size: int, k_size: int) -> hidet.lang.ScriptModule:
    with hidet.script_module() as script_module:

        @hidet.script
        def matmul(a: f32[m_size, k_size], b: f32[k_size, n_size], c: f32[m_size, n_size]):
            attrs.func_kind = "cpu_kernel"
            for i in range(m_size):
                for j in range(n_size):
                    c[i, j] = 0.0
                    for k in range(k_size):
                        c[i, j] += a[i, k] * b[k, j]

    return script_module


def matmul_on_a_gpu(m_size: int, n_size: int, k_size: int) -> hidet.lang.ScriptModule:
    with hidet.script_module() as script_module:

        @hidet.script
        def matmul(a: f32[m_size, k_size], b: f32[k_size, n_size], c: f32[m_size, n_size]):
            attrs.func_kind = "cuda_kernel"
            attrs.cuda.grid_dim = (m_size + 31) // 32, (n_size + 31) // 32
            attrs.cuda.block_dim = 32, 32
            i = threadIdx.x + blockIdx.x * blockDim.x
            j = threadIdx.y + blockIdx.y * blockDim.y
            if i < m_size and j < n_size:
                c[i, j] = 0.0
                for k in range(k_size):
                    c[i, j] += a[i, k] * b[k, j]

    return script_module


def main() -> None:
    a, b = torch.randn(40, 8), torch.randn(8, 33)

    module = matmul_on_the_host(40, 33, 8).build()
    c = torch.empty(40, 33)
    module(a, b, c)
    hidet.utils.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)

    kernel = matmul_on_a_gpu(40, 33, 8)
    if hidet.cuda.available():
        built = kernel.build()
        on_device = torch.empty(40, 33, device="cuda")
        built(a.cuda(), b.cuda(), on_device)
        print(built.source())
        c = on_device.cpu()
    else:
        result = np.empty((40, 33), np.float32)
        run_module(kernel.ir_module(), [a.numpy(), b.numpy(), result])
        c = torch.from_numpy(result)
        print(kernel.ir_module())
    hidet.utils.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main()
