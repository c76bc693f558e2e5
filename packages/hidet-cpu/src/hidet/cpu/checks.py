"""What `hidet doctor` says of this processor: its SIMD and matrix instructions, and how many threads there may be."""

from __future__ import annotations

from collections.abc import Iterator

from hidet.cpu.arch import host_arch
from hidet.cpu.toolchain import toolchain_version
from hidet.cpus import available_cpus
from hidet.doctor import Check

_SIMD = ("sse4.2", "avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16", "neon", "sve", "bf16")
_MATRIX = ("amx-tile", "amx-int8", "amx-bf16", "i8mm", "sme")


def check_processor() -> Iterator[Check]:
    """The processor as LLVM sees it."""
    arch, threads = host_arch(), available_cpus()
    detail = f"{arch.name}, vectors of {arch.vector_bits} bits: {' '.join(filter(arch.has, _SIMD)) or 'none known'}"
    yield Check("cpu", "ok", f"{detail}; {threads} {'thread' if threads == 1 else 'threads'}, {toolchain_version()}")
    units = [name for name in _MATRIX if arch.has(name)]
    yield Check("cpu matrix units", "ok" if units else "none", " ".join(units) or "this processor has none")
    if arch.isa == "x86_64" and not arch.has("avx2"):
        hint = "a virtual machine may hide them: ask for the host's processor"
        yield Check("cpu", "warn", "without AVX2, kernels are several times slower", hint)
