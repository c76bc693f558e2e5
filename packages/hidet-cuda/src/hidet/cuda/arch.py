"""Names of GPU architectures as the compiler takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet.errors import OptionError

if TYPE_CHECKING:
    from hidet.target import GpuTarget

_NAME = re.compile(r"sm_(\d+)([af]?)")

# By suffix, the first capability whose code may have it: features of one device, and of a family (NVRTC, option
# --gpu-architecture).
_SUFFIXES = {"": 0, "a": 90, "f": 100}

OLDEST = 80
"""Compute capability 8.0, times ten: the first with asynchronous copies, bf16 and tf32."""

FIRST_WITH_CLUSTERS = 90
"""Compute capability times ten from which on blocks are launched in clusters."""

WARP_SIZE = 32
BLOCK_THREADS = 1024
MULTIPROCESSOR_REGISTERS = 1 << 16
"""Threads of a warp, threads of a block and registers of a multiprocessor of every architecture from sm_80 on."""

# What a single architecture has, and by capability times ten what later ones have as well.
_OF_ARCHITECTURE = {"sm_90a": frozenset({"wgmma"})}
_SINCE = {
    "clusters": FIRST_WITH_CLUSTERS,
    "stmatrix": 90,
    "programmatic-dependent-launch": 90,
    "async-copy": OLDEST,
    "f8": 89,
}

# By capability times ten, the technical specifications of the CUDA C++ Programming Guide: KiB of shared memory that a
# block can ask for, all of a multiprocessor but what the system keeps, and threads of a multiprocessor.
_SHARED_KIB = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 101: 227, 103: 227, 110: 227, 120: 99, 121: 99}
_THREADS = {80: 2048, 90: 2048, 100: 2048, 101: 2048, 103: 2048}
_FEWEST_THREADS = 1536

BLOCK_RESERVED_SHARED = 1024
"""Bytes of shared memory that the system keeps for each block."""

# Streaming multiprocessors of the largest device that is sold with each capability, times ten.
_MULTIPROCESSORS = {80: 108, 86: 84, 87: 16, 89: 128, 90: 132, 100: 148, 103: 160, 120: 188}


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Numbers of one device, or of a usual one of its architecture, as `hidet.target.GpuTarget` has them."""

    multiprocessors: int
    block_shared_memory: int
    multiprocessor_threads: int
    multiprocessor_shared_memory: int


def known_shared_memory(capability: int) -> int | None:
    """Bytes of shared memory that a block can ask for; None for architectures that are not known."""
    kib = _SHARED_KIB.get(capability)
    return None if kib is None else 1024 * kib


def usual_facts(capability: int) -> DeviceFacts:
    """What a device of compute capability `capability` / 10 is taken to be, unseen: of architectures that are not
    known, the least of all."""
    shared = known_shared_memory(capability) or 1024 * min(_SHARED_KIB.values())
    return DeviceFacts(
        _MULTIPROCESSORS.get(capability, _MULTIPROCESSORS[OLDEST]),
        shared,
        _THREADS.get(capability, _FEWEST_THREADS),
        shared + BLOCK_RESERVED_SHARED,
    )


def fitting_blocks(shared_bytes: int, target: GpuTarget) -> int:
    """Blocks whose shared memory fits into that of a multiprocessor."""
    return target.multiprocessor_shared_memory // (shared_bytes + BLOCK_RESERVED_SHARED)


def has_feature(architecture: str, feature: str) -> bool:
    """Whether code for exactly `architecture` ("sm_90a") may use a feature; False for names that are not known."""
    if feature in _OF_ARCHITECTURE.get(architecture, ()):
        return True
    first = _SINCE.get(feature)
    return first is not None and capability_of(architecture) >= first


def architecture_name(major: int, minor: int) -> str:
    """The exact architecture of a device: code with features of its own from 9.0 on ("sm_90a")."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def capability_of(name: str) -> int:
    """Compute capability times ten. OptionError for what is no architecture, or one before 8.0."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise OptionError(f"{name!r} is no CUDA architecture", hint="expected a name like sm_80 or sm_90a")
    if int(found[1]) < OLDEST:
        raise OptionError(f"CUDA architecture {name} is not supported", hint=f"the oldest one is sm_{OLDEST}")
    return int(found[1])


def unknown_architecture(name: str, capabilities: Sequence[int]) -> OptionError | None:
    """The error for an architecture that a compiler does not know; None for one that it does.

    capabilities: those that the compiler makes code for, times ten.
    """
    usable = sorted(capability for capability in capabilities if capability >= OLDEST)
    known = [
        f"sm_{capability}{suffix}"
        for capability in usable
        for suffix, first in _SUFFIXES.items()
        if capability >= first
    ]
    if name in known or not usable:
        return None
    wanted = capability_of(name)
    nearest = min(usable, key=lambda capability: abs(capability - wanted))
    return OptionError(
        f"{name} is no CUDA architecture that the installed NVRTC knows, which are {', '.join(known)}",
        hint=f"the nearest is {architecture_name(*divmod(nearest, 10))}; a newer nvidia-cuda-nvrtc may know more",
    )
