"""Scripts on a GPU: the programs of the project's introduction and tutorials. Run by `pytest -m gpu`."""

from __future__ import annotations

import pytest
import torch

import hidet
from hidet.errors import LaunchError
from hidet.lang import (
    as_tensor_pointer,
    asm,
    attrs,
    auto_map,
    f16,
    f32,
    i32,
    local_layout,
    printf,
    register_tensor,
    row_major,
    shared_tensor,
    spatial,
    unroll,
)
from hidet.lang.cuda import (
    atomic_add,
    blockIdx,
    dynamic_shared_memory,
    lane_idx,
    mma,
    shfl_down_sync,
    syncthreads,
    threadIdx,
)
from tests.script_kernels.products import naive_matmul

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N = hidet.dims.symbol("n")


def compiled_matmul(m, n, k):
    return hidet.driver.build_ir_module(naive_matmul(m, n, k).ir_module())


class NaiveMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        m, k = a.shape
        k, n = b.shape
        c = torch.empty([m, n], dtype=a.dtype, device=a.device)
        compiled_matmul(m, n, k)(a, b, c)
        return c


def test_the_matmul_of_the_introduction():
    a, b = torch.randn([3, 4], device="cuda"), torch.randn([4, 5], device="cuda")
    torch.testing.assert_close(NaiveMatmul.apply(a, b), torch.matmul(a, b))


def test_tensors_of_the_host_are_refused_and_later_calls_work():
    matmul = compiled_matmul(3, 5, 4)
    a, b, c = (torch.ones(shape, device="cuda") for shape in ((3, 4), (4, 5), (3, 5)))
    with pytest.raises(LaunchError, match="argument a of launch is on cpu, expected a tensor on cuda:0"):
        matmul(a.cpu(), b, c)
    matmul(a, b, c)
    assert (c == 4).all()
    assert matmul.kernels["matmul"].registers > 0


def tiled_matmul():
    block, depth, workers = 64, 8, 256
    tiles = spatial(16, 16).repeat(4, 4)

    with hidet.script_module() as module:

        @hidet.script
        def relu(x: f32) -> f32:
            return x if x > 0.0 else 0.0

        @hidet.script
        def matmul(a_ptr: ~f32, b_ptr: ~f32, c_ptr: ~f32, m: i32, n: i32, k: i32):
            attrs.cuda.grid_dim = (m + block - 1) // block, (n + block - 1) // block
            attrs.cuda.block_dim = workers
            a = as_tensor_pointer(a_ptr, f32, [m, k])
            b = as_tensor_pointer(b_ptr, f32, [k, n])
            c = as_tensor_pointer(c_ptr, f32, [m, n])
            tile_a = shared_tensor(f32, [block, depth])
            tile_b = shared_tensor(f32, [depth, block])
            sums = register_tensor(f32, layout=local_layout(16, 16) * row_major(4, 4))
            row, column = blockIdx.x * block, blockIdx.y * block
            for i, j in tiles.on(threadIdx.x):
                sums[i, j] = 0.0
            for step in range((k + depth - 1) // depth):
                for i, p in auto_map(block, depth, workers=workers).on(threadIdx.x):
                    tile_a[i, p] = a.read([row + i, step * depth + p], protected=True)
                for p, j in auto_map(depth, block, workers=workers).on(threadIdx.x):
                    tile_b[p, j] = b.read([step * depth + p, column + j], protected=True)
                syncthreads()
                for p in range(depth):
                    for i, j in tiles.on(threadIdx.x):
                        sums[i, j] += tile_a[i, p] * tile_b[p, j]
                syncthreads()
            for i, j in tiles.on(threadIdx.x):
                c.write([row + i, column + j], relu(sums[i, j]), protected=True)

    return module.build()


def test_one_tiled_matmul_for_every_size():
    matmul = tiled_matmul()
    for m, n, k in [(1024, 1024, 1024), (333, 444, 555), (1, 12, 13)]:
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        c = torch.empty(m, n, device="cuda")
        matmul(a, b, c, m, n, k)
        expected = torch.relu(a.double() @ b.double())
        assert (c - expected).abs().max() < 1e-5 * k


def test_a_sum_through_shared_memory_shuffles_and_atomics(capfd):
    @hidet.script
    def total(x: f32[N], out: f32[1]):
        attrs.cuda.grid_dim = (N + 255) // 256
        attrs.cuda.block_dim = 256
        attrs.cuda.dynamic_smem_bytes = 256 * 4
        tile = dynamic_shared_memory(0, f32)
        i = blockIdx.x * 256 + threadIdx.x
        tile[threadIdx.x] = x[i] if i < N else 0.0
        syncthreads()
        if threadIdx.x < 32:
            value = 0.0
            for k in range(8):
                value += tile[threadIdx.x + k * 32]
            for step in (16, 8, 4, 2, 1):
                value += shfl_down_sync(0xFFFFFFFF, value, step)
            if lane_idx() == 0:
                atomic_add(~out[0], value)
        if i == 0:
            printf("n = %d\n", N)

    for n in (1000, 1, 70000):
        x, out = torch.rand(n, device="cuda"), torch.zeros(1, device="cuda")
        total(x, out)
        torch.testing.assert_close(out, x.sum()[None], rtol=1e-4, atol=1e-4)
    torch.cuda.synchronize()
    assert capfd.readouterr().out == "n = 1000\nn = 1\nn = 70000\n"


def test_tensor_cores_multiply_fragments():
    @hidet.script
    def product(a: f16[16, 16], b: f16[8, 16], c: f32[16, 8]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 32
        regs_a = register_tensor(f16, [8])
        regs_b = register_tensor(f16, [4])
        acc = register_tensor(f32, [4])
        row, column = threadIdx.x // 4, threadIdx.x % 4 * 2
        for i in unroll(4):
            acc[i] = 0.0
        for half in unroll(2):
            for e in unroll(2):
                for r in unroll(2):
                    regs_a[(half * 2 + r) * 2 + e] = a[row + r * 8, column + half * 8 + e]
                regs_b[half * 2 + e] = b[row, column + half * 8 + e]
        mma.m16n8k16.f32.f16.f16(acc, regs_a, regs_b)
        for r in unroll(2):
            for e in unroll(2):
                c[row + r * 8, column + e] = acc[r * 2 + e]

    a, b = torch.randn(16, 16, device="cuda").half(), torch.randn(8, 16, device="cuda").half()
    c = torch.zeros(16, 8, device="cuda")
    product(a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float().T, rtol=1e-3, atol=1e-3)


def test_assembly_runs():
    @hidet.script
    def lanes(x: i32[64], y: f32[64]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 64
        doubled = y[threadIdx.x]
        asm("mov.u32 %0, %%laneid;", outputs=[x[threadIdx.x]], is_volatile=True)
        asm("add.f32 %0, %0, %1;", output_inputs=[doubled], inputs=[y[threadIdx.x]])
        y[threadIdx.x] = doubled

    x, y = torch.zeros(64, dtype=torch.int32, device="cuda"), torch.rand(64, device="cuda")
    expected = 2 * y
    lanes(x, y)
    assert x.tolist() == [*range(32), *range(32)]
    assert torch.equal(y, expected)


def test_work_goes_into_the_current_stream():
    @hidet.script
    def add_one(x: f32[N]):
        attrs.cuda.grid_dim = N
        attrs.cuda.block_dim = 1
        x[blockIdx.x] += 1.0

    x = torch.zeros(1000, device="cuda")
    add_one(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_one(x)
    graph.replay()
    graph.replay()
    assert (x == 3).all()


def test_tensors_of_hidet_are_made_on_the_device_and_shared_with_torch():
    matmul = compiled_matmul(33, 18, 7)
    a, b = hidet.randn([33, 7], device="cuda"), hidet.randn([7, 18]).cuda()
    c = hidet.zeros([33, 18], dtype=hidet.float32, device="cuda")
    matmul(a, b, c)
    assert c.device == "cuda:0"
    torch.testing.assert_close(c.torch(), a.torch() @ b.torch(), rtol=1e-4, atol=1e-4)
    hidet.utils.assert_close(c, a.numpy() @ b.cpu().numpy(), rtol=1e-4, atol=1e-4)
    shared = torch.zeros(33, 18, device="cuda")
    matmul(a, b, hidet.from_torch(shared))
    assert torch.equal(shared, c.torch())
    assert 0 < hidet.utils.benchmark_func(lambda: matmul(a, b, c)) < 1000
