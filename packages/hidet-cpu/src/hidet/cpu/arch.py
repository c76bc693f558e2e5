"""What schedules and code generation know of a CPU: its LLVM name and features, vector width, registers and caches.

`host_arch` describes this machine, `arch_from_text` any other one by name, so that code for it can be generated and
inspected here. Nothing else in this package asks the operating system about the CPU.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

from hidet.errors import CodegenError, OptionError, suggestion

_KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class CpuArch:
    """One kind of CPU core.

    name: processor name as LLVM spells it ("znver5", "x86-64-v3").
    triple: LLVM target triple.
    features: LLVM feature string ("+avx2,+fma,-avx512f"), complete enough that `has` needs nothing else.
    vector_bits: width of the vectors that code should use: 512, 256 or 128.
    vector_registers: architectural vector registers of that width.
    l1_bytes, l2_bytes: data cache of one core, in bytes.
    """

    name: str
    triple: str
    features: str
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int

    def has(self, feature: str) -> bool:
        """Whether LLVM feature `feature` ("avx512f", "fma", "neon", without sign) is present."""
        return feature in _enabled_features(self.features)

    @property
    def isa(self) -> str:
        """The instruction set family: first part of the triple, with Apple's spelling "arm64" read as "aarch64"."""
        return _isa_of(self.triple)

    @property
    def operating_system(self) -> str:
        """ "linux", "darwin" or "windows", whatever version or vendor the triple adds; else the triple's third part."""
        part = self.triple.split("-")[2] if self.triple.count("-") >= 2 else ""
        aliases = {"linux": "linux", "darwin": "darwin", "macosx": "darwin", "windows": "windows", "win32": "windows"}
        return next((known for prefix, known in aliases.items() if part.startswith(prefix)), part)


@dataclass(frozen=True, slots=True)
class _Model:
    """A row of the table of processors that can be named; sizes are of one core, from the vendors' manuals."""

    isa: str
    features: tuple[str, ...]
    l1_bytes: int = 32 * _KIB
    l2_bytes: int = 512 * _KIB


# Levels of the x86-64 psABI, section 3.1.1 "Processor Architecture".
_X86_V1 = ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_X86_V2 = (*_X86_V1, "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_X86_V3 = (*_X86_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_X86_V4 = (*_X86_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_X86_BF16 = (*_X86_V4, "avx512vnni", "avx512bf16")
_ARM_V8 = ("fp-armv8", "neon")
_ARM_V82 = (*_ARM_V8, "lse", "crc", "rdm", "fullfp16", "dotprod")

_MODELS = {
    "x86-64": _Model("x86_64", _X86_V1),
    "x86-64-v2": _Model("x86_64", _X86_V2),
    "x86-64-v3": _Model("x86_64", _X86_V3),
    "x86-64-v4": _Model("x86_64", _X86_V4, l2_bytes=1024 * _KIB),
    "haswell": _Model("x86_64", _X86_V3, l2_bytes=256 * _KIB),
    "skylake-avx512": _Model("x86_64", _X86_V4, l2_bytes=1024 * _KIB),
    "sapphirerapids": _Model("x86_64", (*_X86_BF16, "avx512fp16"), 48 * _KIB, 2048 * _KIB),
    "znver3": _Model("x86_64", _X86_V3),
    "znver4": _Model("x86_64", _X86_BF16, l2_bytes=1024 * _KIB),
    "znver5": _Model("x86_64", _X86_BF16, 48 * _KIB, 1024 * _KIB),
    "aarch64-generic": _Model("aarch64", _ARM_V8),
    "neoverse-n1": _Model("aarch64", _ARM_V82, 64 * _KIB, 1024 * _KIB),
    "neoverse-v2": _Model("aarch64", (*_ARM_V82, "bf16", "i8mm"), 64 * _KIB, 2048 * _KIB),
    "apple-m1": _Model("aarch64", (*_ARM_V82, "fp16fml"), 128 * _KIB, 3072 * _KIB),
}
_LLVM_NAMES = {"aarch64-generic": "generic"}
_COMMON = {"x86_64": "x86-64-v2", "aarch64": "aarch64-generic"}
_DEFAULT_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


@functools.cache
def host_arch() -> CpuArch:
    """This machine. Raises CodegenError when LLVM cannot tell the features of its processor."""
    try:
        enabled = dict(llvm.get_host_cpu_features())
    except RuntimeError as error:
        raise CodegenError(
            f"LLVM cannot tell the features of this {llvm.get_process_triple()} processor",
            hint="LLVM of a newer llvmlite may know it",
        ) from error
    l1_bytes, l2_bytes = _host_caches()
    return _make_arch(llvm.get_host_cpu_name(), llvm.get_process_triple(), enabled, l1_bytes, l2_bytes)


def arch_from_text(text: str) -> CpuArch:
    """The CPU that `text` names: "host", or a known name and features to add or remove ("x86-64-v3,+avx512f,-fma").

    "common" is a machine whose code most processors with this one's instruction set run. A CPU of this machine's
    instruction set gets this machine's operating system, so that its code can run here; others are for Linux.
    Cache sizes are those of the named processor. Raises OptionError for an unknown name or a feature without sign.
    """
    name, *changes = (part.strip() for part in text.split(","))
    for change in changes:
        if change[:1] not in ("+", "-") or len(change) < 2:
            raise OptionError(
                f"feature {change!r} of CPU {text!r} has no sign, expected '+name' or '-name'",
                hint=f"write '+{change}'",
            )
    wanted = {change[1:]: change[0] == "+" for change in changes}
    if name in ("host", "native"):
        host = host_arch()
        enabled = {part[1:]: part[0] == "+" for part in host.features.split(",") if part}
        return _make_arch(host.name, host.triple, {**enabled, **wanted}, host.l1_bytes, host.l2_bytes)
    name = _COMMON[host_arch().isa] if name == "common" else name
    model = _MODELS.get(name)
    if model is None:
        raise OptionError(f"CPU {name!r} is unknown", hint=suggestion(name, ["host", "common", *_MODELS], limit=20))
    enabled = {**dict.fromkeys(model.features, True), **wanted}
    llvm_name = _LLVM_NAMES.get(name, name)
    return _make_arch(llvm_name, _triple_for(model.isa), enabled, model.l1_bytes, model.l2_bytes)


def _make_arch(name: str, triple: str, enabled: dict[str, bool], l1_bytes: int, l2_bytes: int) -> CpuArch:
    isa = _isa_of(triple)
    vector_bits, vector_registers = 128, 32 if isa == "aarch64" else 16
    if enabled.get("avx512f"):
        vector_bits, vector_registers = 512, 32
        # LLVM tunes Intel's server cores for 256-bit vectors, which halves what their two 512-bit FMA units can do.
        enabled = {**enabled, "prefer-256-bit": enabled.get("prefer-256-bit", False)}
        if enabled["prefer-256-bit"]:
            vector_bits = 256
    elif enabled.get("avx2"):
        vector_bits = 256
    features = ",".join(("+" if present else "-") + feature for feature, present in sorted(enabled.items()))
    return CpuArch(name, triple, features, vector_bits, vector_registers, l1_bytes, l2_bytes)


@functools.cache
def _enabled_features(features: str) -> frozenset[str]:
    return frozenset(part[1:] for part in features.split(",") if part.startswith("+"))


def _isa_of(triple: str) -> str:
    isa = triple.split("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(isa, isa)


def _triple_for(isa: str) -> str:
    host: str = llvm.get_process_triple()
    return host if _isa_of(host) == isa else _DEFAULT_TRIPLES[isa]


def _host_caches() -> tuple[int, int]:
    """Bytes of the L1 data and L2 cache of one core, from sysfs; 32 KiB and 512 KiB where that is missing."""
    sizes = {1: 32 * _KIB, 2: 512 * _KIB}
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    for folder in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
            if level in sizes and kind in ("Data", "Unified"):
                sizes[level] = int(size.rstrip("KMG")) * {"K": _KIB, "M": _KIB**2, "G": _KIB**3}.get(size[-1], 1)
        except (OSError, ValueError):
            continue
    return sizes[1], sizes[2]
