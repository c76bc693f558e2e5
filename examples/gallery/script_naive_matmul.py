"""Script: sizes known at run time
===============================

Sizes that are known at run time only: pointers as parameters, tensors made of them in the script.
"""

import torch

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32, i32, tensor_pointer
from hidet.lang.cuda import blockDim, blockIdx, threadIdx

with hidet.script_module() as script_module:

    @hidet.script
    def matmul(a_ptr: ~f32, b_ptr: ~f32, c_ptr: ~f32, m_size: i32, n_size: i32, k_size: i32):
        attrs.func_kind = "cuda_kernel"
        attrs.cuda.block_dim = 16, 16
        attrs.cuda.grid_dim = (m_size + 15) // 16, (n_size + 15) // 16
        a = tensor_pointer(f32, shape=[m_size, k_size], init=a_ptr)
        b = tensor_pointer(f32, shape=[k_size, n_size], init=b_ptr)
        c = tensor_pointer(f32, shape=[m_size, n_size], init=c_ptr)
        i = blockIdx.x * blockDim.x + threadIdx.x
        j = blockIdx.y * blockDim.y + threadIdx.y
        if i < m_size and j < n_size:
            c[i, j] = 0.0
            for k in range(k_size):
                c[i, j] += a[i, k] * b[k, j]


def run(m_size: int, n_size: int, k_size: int) -> None:
    """The same kernel for any sizes."""
    a, b = torch.randn(m_size, k_size), torch.randn(k_size, n_size)
    if hidet.cuda.available():
        c = torch.empty(m_size, n_size, device="cuda")
        script_module.build()(a.cuda(), b.cuda(), c, m_size, n_size, k_size)
    else:
        c = torch.empty(m_size, n_size)
        run_module(script_module.ir_module(), [a.numpy(), b.numpy(), c.numpy(), m_size, n_size, k_size])
    hidet.utils.assert_close(c.cpu(), a @ b, rtol=1e-4, atol=1e-4)
    print(m_size, n_size, k_size, "right")


def main() -> None:
    run(32, 32, 16)
    run(17, 40, 5)


if __name__ == "__main__":
    main()
