"""What kernels take of a GPU, read from machine code and compared with what the assembler writes about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hidet.cuda.cubin import KernelResources, read_resources
from hidet.cuda.nvrtc import Cubin, CubinBatch, compile_cubin, kernel_usage
from hidet.cuda.testing.schedules import compile_cubins
from hidet.errors import CompileError
from hidet.gpu.codegen.source import KernelFacts, KernelSource

LIVE = 64

REVERSE = """
extern "C" __global__ void reverse(float* x) {
  __shared__ float tile[300];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[299 - threadIdx.x];
}
"""

# More values alive than the 32 registers that two blocks of 1024 threads leave to a thread.
MIXED = f"""
extern "C" __global__ void __launch_bounds__(1024, 2) mixed(float* x, int n) {{
{"".join(f"  float v{i} = x[{i} * n + threadIdx.x];" for i in range(LIVE))}
  for (int j = 0; j < n; j++) {{
{"".join(f"    v{i} = v{i} * v{(7 * i + 3) % LIVE} + v{(5 * i + 1) % LIVE};" for i in range(LIVE))}
  }}
{"".join(f"  x[{i} * n + threadIdx.x] = v{i};" for i in range(LIVE))}
}}
"""


def compiled(arch: str) -> Cubin:
    return compile_cubin(
        KernelSource(REVERSE + MIXED, (KernelFacts("reverse", "reverse"), KernelFacts("mixed", "mixed"))), arch
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_machine_code_states_registers_stack_and_shared_memory(arch: str) -> None:
    cubin = compiled(arch)
    assert cubin.usage["mixed"].registers == 32
    assert cubin.usage["mixed"].stack_bytes > 0
    assert cubin.usage["mixed"].spill_bytes > cubin.usage["mixed"].stack_bytes
    assert cubin.usage["reverse"].stack_bytes == cubin.usage["reverse"].spill_bytes == 0
    assert cubin.usage["reverse"].shared_bytes == 1200
    assert 0 < cubin.usage["reverse"].registers < 32


def test_without_a_log_local_memory_counts_as_spilled() -> None:
    cubin = compiled("sm_80")
    silent = kernel_usage(cubin.data, "")
    assert silent["mixed"].registers == 32
    assert silent["mixed"].spill_bytes == cubin.usage["mixed"].stack_bytes
    assert silent["reverse"] == cubin.usage["reverse"]


def test_equal_sources_compiled_again_have_their_log_again() -> None:
    assert compiled("sm_80").usage == compiled("sm_80").usage


def test_a_kernel_is_found_by_its_name() -> None:
    found = read_resources(compiled("sm_90a").data)
    assert set(found) == {"reverse", "mixed"}
    assert isinstance(found["reverse"], KernelResources)


def test_other_bytes_are_refused() -> None:
    with pytest.raises(CompileError, match="no ELF file"):
        read_resources(b"PTX")
    with pytest.raises(CompileError, match="damaged"):
        read_resources(compiled("sm_80").data[:200])


def named(symbol: str, factor: int = 2) -> KernelSource:
    text = f"""
__device__ float scaled(float x) {{ return x * {factor}.0f; }}
extern "C" __global__ void {symbol}(float* x) {{
  __shared__ float tile[300];
  tile[threadIdx.x] = scaled(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = tile[299 - threadIdx.x];
}}
"""
    return KernelSource(text, (KernelFacts("reverse", symbol),))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_that_differ_in_their_names_alone_are_compiled_once_and_are_what_compiling_each_gives(arch) -> None:
    numbers = ("6f65f7088e73e064_kernel0", "975c6dcc83d67937_kernel3", "975c6dcc83d67937_kernel12")
    names = [f"reverse_{number}" for number in numbers]
    sources = [named(names[0]), named(names[1]), named(names[2]), named(names[1], factor=3)]
    seen: list[tuple[int, int]] = []
    with CubinBatch(arch, lambda *counts: seen.append(counts)) as batch:
        for source in sources:
            batch.submit(source)
        found = batch.finish()
    # A name of another length, and other text, have machine code of their own.
    assert seen == sorted(seen) and seen[-1] == (3, 3)
    for source, cubin in zip(sources, found, strict=True):
        assert cubin == compile_cubin(source, arch)
        assert list(cubin.usage) == [source.kernels[0].symbol]


def test_short_names_may_be_like_other_text() -> None:
    """The name of one is part of the other's type."""
    sources = [named("fl"), named("xy")]
    assert compile_cubins(sources, "sm_80") == [compile_cubin(source, "sm_80") for source in sources]


def test_a_source_that_is_refused_ends_a_batch_with_its_name() -> None:
    broken = replace(named("reverse_6f65f7088e73e064_kernel0"), text="__global__ void broken() { not C; }")
    with pytest.raises(CompileError, match="refused reverse for sm_80, line 1"), CubinBatch("sm_80") as batch:
        batch.submit(named("reverse_975c6dcc83d67937_kernel3"))
        batch.submit(broken)
        batch.finish()
