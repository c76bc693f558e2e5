"""A script in autograd
====================

A kernel of a script in a function of torch that has a gradient.

The forward pass is a product by a script; the backward pass is torch's own. Without a GPU the kernel runs in the
simulator.
"""

import torch

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import attr, f32
from hidet.lang.cuda import blockDim, blockIdx, threadIdx


def naive_matmul(m_size: int, n_size: int, k_size: int) -> hidet.ir.IRModule:
    with hidet.script_module() as module:

        @hidet.script
        def matmul(a: f32[m_size, k_size], b: f32[k_size, n_size], c: f32[m_size, n_size]):
            attr.cuda_grid_dim = ((m_size + 7) // 8, (n_size + 7) // 8)
            attr.cuda_block_dim = (8, 8)
            i = threadIdx.x + blockIdx.x * blockDim.x
            j = threadIdx.y + blockIdx.y * blockDim.y
            if i < m_size and j < n_size:
                c[i, j] = 0.0
                for k in range(k_size):
                    c[i, j] += a[i, k] * b[k, j]

    return module.ir_module()


class NaiveMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        ir_module = naive_matmul(a.size(0), b.size(1), a.size(1))
        c = torch.empty([a.size(0), b.size(1)], device=a.device)
        if a.is_cuda:
            func = hidet.driver.build_ir_module(ir_module)
            func(a, b, c)
        else:
            run_module(ir_module, [a.numpy(), b.numpy(), c.numpy()])
        return c

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        return dc @ b.T, a.T @ dc


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    a, b = (torch.randn(*size, device=device, requires_grad=True) for size in ((9, 5), (5, 11)))
    c = NaiveMatmul.apply(a, b)
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)
    c.square().sum().backward()
    found = a.grad.clone()
    a.grad = None
    (a @ b).square().sum().backward()
    torch.testing.assert_close(found, a.grad, rtol=1e-3, atol=1e-3)
    print("gradient:", found.norm().item())


if __name__ == "__main__":
    main()
