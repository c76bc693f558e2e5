"""What results of the CUDA driver mean for the user: which device is lost, which launch was refused, what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet.cuda.arch import BLOCK_THREADS, MULTIPROCESSOR_REGISTERS
from hidet.errors import DeviceLost

# Results after which every call of the context fails until the process ends (CUDA driver API, CUresult).
_STICKY = frozenset({214, 700, 702, 710, 713, 714, 715, 716, 717, 718, 719})
_OUT_OF_MEMORY, _ASSERT = 2, 710

_SEARCH = (
    "CUDA_LAUNCH_BLOCKING=1 makes the launch of the kernel that fails the call that raises, and option check_bounds of "
    "build_ir_module finds accesses outside of arrays"
)

_HINTS: Mapping[int, str] = {
    2: "free tensors, or use smaller batches; hidet.cuda.memory_statistics() tells what hidet itself holds",
    3: "a forked process cannot use CUDA after its parent did: start it with the method 'spawn'",
    34: "this is the stub library of the CUDA toolkit: install NVIDIA's driver, or take stubs out of LD_LIBRARY_PATH",
    100: "no device is visible: is CUDA_VISIBLE_DEVICES empty?",
    200: "the driver may be older than NVRTC: update it, or install an older nvidia-cuda-nvrtc",
    209: "the code was made for another device: target 'cuda' makes it for the one that is there",
    720: "the blocks of a cooperative launch run at the same time: launch as many as the multiprocessors hold together",
    803: "the driver was updated while it ran: restart the machine",
    999: "nvidia-smi may tell more; the system may have to be restarted",
}

MAX_GRID = (2**31 - 1, 65535, 65535)
"""Blocks along the axes of a grid (CUDA C++ Programming Guide, technical specifications)."""


def is_sticky(status: int) -> bool:
    """Whether every later call of the context will fail as well."""
    return status in _STICKY


def is_out_of_memory(status: int) -> bool:
    """Whether there was not enough memory on the device."""
    return status == _OUT_OF_MEMORY


def hint_for(status: int) -> str | None:
    """What to do about a result; None where there is no general advice."""
    return _HINTS.get(status)


def launches_block() -> bool:
    """Whether each launch waits for its kernel, so that a failure belongs to the kernel that is launched."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")


def lost_device(status: int, text: str, suspects: Sequence[str]) -> DeviceLost:
    """The exception for a device that failed. text: where the result `status` was noticed. suspects: what was launched
    before, newest first.

    Kernels run after their launches return, so that a failure shows at some later call of the driver.
    """
    names = list(dict.fromkeys(suspects))
    if len(names) == 1:
        who = f" in {names[0]}"
    elif names:
        who = f" in one of those launched last: {', '.join(names)} (newest first)"
    else:
        who = ""
    shown = "stderr says which assertion of a kernel failed" if status == _ASSERT else _SEARCH
    return DeviceLost(
        f"the CUDA device failed{who}; noticed while {text}",
        hint=f"the process has to be started again; {shown}",
    )


@dataclass(frozen=True, slots=True)
class AskedLaunch:
    """What a launch asked for that the driver refused. registers: that the kernel takes a thread."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    registers: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z

    def __str__(self) -> str:
        return (
            f"launching kernel {self.kernel} with grid {self.grid}, block {self.block} and {self.shared_bytes} bytes "
            "of shared memory at launch"
        )


def launch_hint(asked: AskedLaunch, shared_limit: int) -> str | None:
    """Why a launch cannot work, where its numbers tell. shared_limit: bytes that a block of the device can have."""
    if asked.threads > BLOCK_THREADS or asked.block[2] > 64:
        return f"a block has at most {BLOCK_THREADS} threads, 64 of them along z; this one has {asked.threads}"
    if asked.threads <= 0:
        return "a block has at least one thread"
    if any(not 0 < extent <= most for extent, most in zip(asked.grid, MAX_GRID, strict=True)):
        return f"extents of a grid are from 1 to {MAX_GRID}"
    if asked.shared_bytes > shared_limit:
        return f"a block of this device has at most {shared_limit} bytes of shared memory"
    if asked.registers * asked.threads > MULTIPROCESSOR_REGISTERS:
        return (
            f"{asked.threads} threads of {asked.registers} registers are more than the {MULTIPROCESSOR_REGISTERS} of a "
            "multiprocessor: use smaller blocks, or attrs.cuda.min_blocks"
        )
    return None
