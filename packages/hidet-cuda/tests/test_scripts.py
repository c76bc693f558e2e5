"""Scripts as CUDA C++ that NVRTC accepts."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cache import open_cache
from hidet.compiler.modules import compile_module
from hidet.context import CompileContext, Options
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.devices import Device
from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.nvrtc import Cubin, compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver, Launch
from hidet.dims import symbol
from hidet.errors import CodegenError, CompileError, LaunchError, UnsupportedOp
from hidet.gpu.check_bounds import FAULT_WORDS
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
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
    cp_async,
    cp_async_commit_group,
    cp_async_wait_group,
    dynamic_shared_memory,
    grid_dependency_wait,
    lane_idx,
    load_constant,
    load_matrix_x4,
    mma,
    shfl_down_sync,
    syncthreads,
    threadIdx,
)
from hidet.plugins.host import load_registry
from hidet.runtime.adapter import NumpyAdapter, TensorFacts
from hidet.runtime.module import CompiledModule


def compiled(module: hidet.lang.ScriptModule) -> tuple[str, Cubin]:
    """The CUDA C++ of a script module, and its machine code for sm_80."""
    source = emit_module(module.ir_module(), 80)
    return source.text, compile_cubin(source, "sm_80")


def test_assembly_has_registers_of_its_operands() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def bits(x: i32[64], y: f32[64]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            lane = 0
            low: i32 = 1
            asm("mov.u32 %0, %%laneid;", outputs=[x[threadIdx.x]], is_volatile=True)
            asm("add.s64 %0, %0, %1;", output_inputs=[lane], inputs=[threadIdx.x + lane])
            asm("{ .reg .f32 t; add.f32 t, %1, %1; mov.f32 %0, t; }", outputs=[y[threadIdx.x]], inputs=[y[lane]])
            asm("st.global.s32 [%0], %1;", inputs=[~x[32 + threadIdx.x], low], memory_fence=True)

    text, cubin = compiled(module)
    assert 'asm volatile("mov.u32 %0, %%laneid;" : "=r"(operand[0]) : );' in text
    assert '"+l"(' in text and '"=f"(' in text
    assert ': "memory")' in text
    assert cubin.usage["bits"].stack_bytes == 0
    with pytest.raises(UnsupportedOp, match="what assembly does is known to its target alone"):
        run_module(module.ir_module(), [np.zeros(64, np.int32), np.zeros(64, np.float32)])
    assert print_module(parse_module(print_module(module.ir_module()), INTRINSICS)) == print_module(module.ir_module())


def test_what_the_assembler_refuses_has_its_line_in_the_script() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def wrong(x: i32[32]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            x[0] = 1
            asm("no_such_instruction %0;", outputs=[x[threadIdx.x]])

    with pytest.raises(CompileError, match="no_such_instruction") as caught:
        compiled(module)
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    assert 'asm("no_such_instruction %0;"' in str(caught.value)


def test_threads_print() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def show(x: f16[32]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            printf("%d: %f%%\n", threadIdx.x, x[threadIdx.x])

    text, _ = compiled(module)
    assert r'printf("%lld: %f%%\012", (long long)(int)threadIdx.x, ' in text


def test_a_tiled_matmul_keeps_its_registers() -> None:
    block_m, block_n, block_k = 64, 64, 8
    tiles = spatial(16, 16).repeat(4, 4)

    with hidet.script_module() as module:

        @hidet.script
        def relu(x: f32) -> f32:
            return x if x > 0.0 else 0.0

        @hidet.script
        def matmul(a_ptr: ~f32, b_ptr: ~f32, c_ptr: ~f32, m_size: i32, n_size: i32, k_size: i32):
            attrs.cuda.block_dim = 256
            attrs.cuda.grid_dim = (m_size + block_m - 1) // block_m, (n_size + block_n - 1) // block_n
            a = as_tensor_pointer(a_ptr, "float32", [m_size, k_size])
            b = as_tensor_pointer(b_ptr, "float32", [k_size, n_size])
            c = as_tensor_pointer(c_ptr, "float32", [m_size, n_size])
            smem_a = shared_tensor("float32", [block_m, block_k])
            smem_b = shared_tensor("float32", [block_k, block_n])
            regs_c = register_tensor("float32", layout=local_layout(16, 16) * row_major(4, 4))
            offset_m, offset_n = blockIdx.x * block_m, blockIdx.y * block_n
            for i, j in tiles.on(threadIdx.x):
                regs_c[i, j] = 0.0
            for k0 in range((k_size + block_k - 1) // block_k):
                for i, k in auto_map(block_m, block_k, workers=256).on(threadIdx.x):
                    smem_a[i, k] = a.read([offset_m + i, k0 * block_k + k], protected=True)
                for k, j in auto_map(block_k, block_n, workers=256).on(threadIdx.x):
                    smem_b[k, j] = b.read([k0 * block_k + k, offset_n + j], protected=True)
                syncthreads()
                for k in range(block_k):
                    for i, j in tiles.on(threadIdx.x):
                        regs_c[i, j] += smem_a[i, k] * smem_b[k, j]
                syncthreads()
            for i, j in tiles.on(threadIdx.x):
                c.write([offset_m + i, offset_n + j], relu(regs_c[i, j]), protected=True)

    _, cubin = compiled(module)
    usage = cubin.usage["matmul"]
    assert (usage.stack_bytes, usage.spill_bytes, usage.shared_bytes) == (0, 0, 4096)
    assert not cubin.remarks


def test_copies_tensor_cores_and_warps() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def clear(p: ~f32, n: i32):
            p[n] = 0.0

        @hidet.script
        def kernel(x: f16[128, 128], out: f32[128], count: ~i32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 128
            attrs.cuda.dynamic_smem_bytes = 128 * 4
            tile = shared_tensor(f16, [64, 64], layout=row_major(64, 64).swizzle(1, 0, 0))
            flat = dynamic_shared_memory(0, f32)
            regs = register_tensor(f16, [8])
            acc = register_tensor(f32, [4])
            clear(~flat[0], threadIdx.x)
            for i in unroll(4):
                acc[i] = 0.0
            cp_async(~tile[threadIdx.x % 64, 0], ~x[threadIdx.x, 0], 16)
            cp_async_commit_group()
            cp_async_wait_group(0)
            syncthreads()
            load_matrix_x4(~regs[0], ~tile[threadIdx.x % 16, 0])
            mma.m16n8k16.f32.f16.f16(acc, regs, ~regs[4])
            total = acc[0] + flat[threadIdx.x]
            for step in (16, 8, 4, 2, 1):
                total += shfl_down_sync(0xFFFFFFFF, total, step)
            if lane_idx() == 0:
                old = atomic_add(~count[0], 1)
                out[old] = total + load_constant(~out[0], lanes=4)[1]

    text, _ = compiled(module)
    assert text.count("__shfl_down_sync") == 5
    assert "cuda_mma_m16n8k16_f32_f16_f16(acc, regs, regs + 4);" in text


class DeviceTensors(NumpyAdapter):
    """Arrays that stand for tensors of a GPU, used in stream 7."""

    is_host = False

    def describe(self, tensor: Any) -> TensorFacts:
        return replace(super().describe(tensor), device="cuda:0")

    def stream_of(self, tensor: Any) -> int:
        return 7


class DeviceTensor(np.ndarray[Any, Any]):
    """A type of its own, for its adapter to be found by."""


def on_device(array: Any) -> Any:
    return array.view(DeviceTensor)


@pytest.fixture
def adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {DeviceTensor: DeviceTensors()}
    monkeypatch.setattr("hidet.runtime.module.adapter_for", lambda kind, _: kinds.get(kind, NumpyAdapter()))


def build(module: hidet.lang.ScriptModule, fake: FakeDriver, **options_given: Any) -> CompiledModule:
    target = CudaTarget("sm_80")
    target.__dict__["memory"] = fake.memory()
    options, cache = Options(cache=False, **options_given), open_cache(enabled=False)
    return compile_module(
        module.ir_module(), CompileContext(target=target, registry=load_registry(), options=options, cache=cache)
    )


def scaled() -> hidet.lang.ScriptModule:
    n = symbol("n")
    with hidet.script_module() as module:

        @hidet.script
        def scale(x: f32[n, 4], factor: f32):
            attrs.cuda.grid_dim = n
            attrs.cuda.block_dim = 4
            attrs.cuda.dynamic_smem_bytes = 64
            x[blockIdx.x, threadIdx.x] *= factor

    return module


@pytest.mark.usefixtures("adapters")
def test_a_call_launches_in_the_stream_of_the_tensors_with_sizes_found_in_them() -> None:
    seen: list[list[int]] = []
    fake = FakeDriver(on_launch=lambda launch: seen.append([launch.word(0), launch.word(1), launch.word(2)]))
    module = build(scaled(), fake)
    x = on_device(np.zeros((5, 4), np.float32))
    module(x, 1.0)
    (launch,) = fake.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((5, 1, 1), (4, 1, 1), 64, 7)
    assert seen == [[x.ctypes.data, 0x3F800000, 5]]
    assert module.kernels["scale"].registers > 0
    assert module.kernels["scale"].spill_bytes == 0
    assert "__global__" in module.source()


@pytest.mark.usefixtures("adapters")
def test_tensors_of_the_host_are_refused_and_nothing_is_launched_for_an_empty_grid() -> None:
    fake = FakeDriver()
    module = build(scaled(), fake)
    with pytest.raises(LaunchError, match="argument x of launch is on cpu, expected a tensor on cuda:0"):
        module["launch"](np.zeros((5, 4), np.float32), 1.0)
    module(on_device(np.zeros((0, 4), np.float32)), 1.0)
    assert not fake.launches


@pytest.mark.usefixtures("adapters")
def test_an_index_outside_that_a_checked_kernel_noted_is_raised_with_its_line() -> None:
    fault = [0] * FAULT_WORDS

    def notes(launch: Launch) -> None:
        # Pointer, factor and size come first; the words for faults are the last parameter.
        (ctypes.c_int32 * FAULT_WORDS).from_address(launch.word(3))[:] = fault

    fake = FakeDriver(on_launch=notes)
    module = build(scaled(), fake, check_bounds=True)
    x = on_device(np.zeros((5, 4), np.float32))
    module(x, 1.0)
    # Block 4, thread 3; index -2 and extent 2 ** 33 + 5 in halves.
    fault[:] = [1, 4, 0, 0, 3, 0, 0, -2, -1, 5, 2]
    told = (
        r"in scale, block \(4, 0, 0\), thread \(3, 0, 0\): x\[.*: index -2 of dim 0 is outside of its 8589934597 elem"
    )
    with pytest.raises(LaunchError, match=told) as error:
        module(x, 1.0)
    assert "x[blockIdx.x, threadIdx.x] *= factor" in str(error.value)
    assert "hidet_note_fault" in module.source()


def test_an_operation_that_the_architecture_lacks_has_its_line_in_the_script() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def waits(x: f32[32]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            x[threadIdx.x] = 1.0
            grid_dependency_wait()

    with pytest.raises(CodegenError, match="grid_dependency_wait, which needs sm_90") as caught:
        module.build("cuda:sm_80")
    assert "             grid_dependency_wait()\n" in str(caught.value)


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(index: int) -> Device:
        raise LaunchError("no CUDA driver was found on this machine")

    monkeypatch.setattr("hidet.cuda.memory.device_at", absent)


@pytest.mark.usefixtures("no_driver")
def test_code_with_checks_of_indices_is_made_without_a_device() -> None:
    options = {"check_bounds": True}
    module = hidet.driver.build_ir_module(scaled().ir_module(), "cuda:sm_80", options)
    assert "hidet_note_fault" in module.source()
    assert module.kernels["scale"].registers > 0
    with pytest.raises(LaunchError, match="no CUDA driver was found"):
        module(np.zeros((5, 4), np.float32), 1.0)


@pytest.mark.usefixtures("no_driver")
def test_code_for_a_named_architecture_can_be_looked_at_without_a_device() -> None:
    module = scaled().build("cuda:sm_80")
    assert "__global__" in module.source()
    assert module.kernels["scale"].registers > 0
    for ask in (lambda: module(np.zeros((5, 4), np.float32), 1.0), lambda: module["launch"]):
        with pytest.raises(LaunchError, match="no CUDA driver was found"):
            ask()
    with pytest.raises(LaunchError, match="no CUDA driver was found"):
        scaled().build("cuda")
