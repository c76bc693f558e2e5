"""How the host reads and writes a few numbers in the memory that compiled code works on."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Protocol

from hidet.dtypes import DType


class Memory(Protocol):
    """Memory of a kind of device. Every operation is ordered after the kernels launched before it."""

    def read(self, address: int, dtype: DType, count: int) -> list[int]:
        """`count` integers or bools (0 or 1) that lie next to each other. The host waits for them."""

    def write(self, address: int, value: int) -> None:
        """Store one i64."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes between two places on the device."""


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


_INTEGERS: Mapping[str, Any] = {
    "bool": ctypes.c_uint8,
    **{f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}
