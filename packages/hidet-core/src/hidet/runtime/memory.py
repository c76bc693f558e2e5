"""Memory that compiled code works on: arenas, and how the host reads and writes a few numbers there."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hidet.dtypes import DType
from hidet.errors import OutOfMemory
from hidet.runtime.plan import ALIGNMENT

Allocate = Callable[[int], tuple[object, int]]
"""From a number of bytes to the owner of uninitialised memory and its address; (None, 0) for no bytes."""

LARGE_ARENA = 1 << 20
"""Bytes from which an arena is mapped, so that its pages are huge where possible and go back when it is dropped."""

SURELY_THERE = 1 << 28
"""Bytes up to which nobody asks whether the machine has them."""


class Memory(Protocol):
    """Memory of a kind of device. Every operation is ordered after the kernels launched before it."""

    def read(self, address: int, dtype: DType, count: int) -> list[int]:
        """`count` integers or bools (0 or 1) that lie next to each other. The host waits for them."""

    def write(self, address: int, value: int) -> None:
        """Store one i64."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes between two places on the device."""

    def to_host(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes of the device to `target` in this process. The host waits for them."""

    def from_host(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes of this process at `source` to the device. They may change as soon as it returns."""


class HostMemory:
    """The memory of this process."""

    def read(self, address: int, dtype: DType, count: int) -> list[int]:
        """The integers."""
        return [int(value) for value in (_INTEGERS[dtype.name] * count).from_address(address)]

    def write(self, address: int, value: int) -> None:
        """Store one i64."""
        ctypes.c_int64.from_address(address).value = value

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """A plain copy."""
        ctypes.memmove(target, source, nbytes)

    to_host = from_host = copy


_INTEGERS: Mapping[str, Any] = {
    "bool": ctypes.c_uint8,
    **{f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}


def require_memory(nbytes: int) -> None:
    """OutOfMemory for more bytes than the machine has, which the system may grant and end the process for later."""
    if nbytes > SURELY_THERE and nbytes > _physical_memory():
        raise out_of_memory(nbytes)


def out_of_memory(nbytes: int) -> OutOfMemory:
    """The error that `nbytes` of the host's memory cannot be had."""
    return OutOfMemory(
        f"{nbytes} bytes ({nbytes / 2**30:.1f} GiB) of memory are needed at once, and cannot be had",
        hint="the sizes of the inputs, or elements of them that sizes are computed from, decide how much it is",
    )


@functools.cache
def _physical_memory() -> int:
    """Bytes of memory that the machine has; 2**63 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 63


def host_arena(nbytes: int) -> tuple[object, int]:
    """Uninitialised memory and its address, a multiple of ALIGNMENT; (None, 0) for no bytes. OutOfMemory."""
    if nbytes == 0:
        return None, 0
    require_memory(nbytes)
    try:
        if nbytes < LARGE_ARENA or sys.platform == "win32":
            small = ctypes.create_string_buffer(nbytes + ALIGNMENT)
            return small, -(-ctypes.addressof(small) // ALIGNMENT) * ALIGNMENT
        # Private, so that a forked child has a copy; Python's default would let both write to the same pages.
        mapped = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (MemoryError, OSError, OverflowError, ValueError) as error:
        raise out_of_memory(nbytes) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    view = ctypes.c_char.from_buffer(mapped)
    # The view keeps the mapping alive, and the mapping goes when the view does.
    return view, ctypes.addressof(view)
