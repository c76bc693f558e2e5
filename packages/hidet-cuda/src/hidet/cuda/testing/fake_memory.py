"""What a CUDA driver in Python does with memory: blocks of its devices are memory of this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

FIRST_POOL = 0x4000
ALIGNMENT = 256


@dataclass
class FakeMemory:
    """Functions of the driver that allocate, free and copy.

    free_bytes: what allocations may take. reuses: whether they get memory that was freed. blocks: bytes of those that
    are allocated, by address. log: what was done with streams, events and blocks, in order.
    """

    free_bytes: int = 1 << 30
    reuses: bool = False
    blocks: dict[int, int] = field(default_factory=dict)
    log: list[tuple[object, ...]] = field(default_factory=list)
    _alive: dict[int, Any] = field(default_factory=dict)
    _freed: dict[int, list[int]] = field(default_factory=dict)
    _made: int = 0

    def _handle(self, result: int, first: int) -> int:
        self._made += 1
        return write(result, first + self._made)

    def _take(self, result: int, nbytes: int) -> int:
        if nbytes > self.free_bytes:
            return 2
        if self.reuses and self._freed.get(nbytes):
            address = self._freed[nbytes].pop()
        else:
            memory = ctypes.create_string_buffer(nbytes + ALIGNMENT)
            address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
            self._alive[address] = memory
        self.blocks[address] = nbytes
        self.free_bytes -= nbytes
        return write(result, address)

    def _give(self, address: int) -> int:
        # The memory stays, so that a use after the end is seen as such and not as a crash.
        nbytes = self.blocks.pop(address)
        self._freed.setdefault(nbytes, []).append(address)
        self.free_bytes += nbytes
        return 0

    def cuMemGetInfo_v2(self, free: int, total: int) -> int:
        write(free, self.free_bytes)
        return write(total, self.free_bytes + sum(self.blocks.values()))

    def cuMemAlloc_v2(self, result: int, nbytes: int) -> int:
        return self._take(result, nbytes)

    def cuMemFree_v2(self, address: int) -> int:
        return self._give(address)

    def cuMemPoolCreate(self, result: int, properties: int) -> int:
        return self._handle(result, FIRST_POOL)

    def cuMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> int:
        return 0

    def cuMemPoolGetAttribute(self, pool: int, attribute: int, result: int) -> int:
        return write(result, sum(self.blocks.values()))

    def cuMemPoolTrimTo(self, pool: int, nbytes: int) -> int:
        self.log.append(("trim", nbytes))
        return 0

    def cuMemAllocFromPoolAsync(self, result: int, nbytes: int, pool: int, stream: int | None) -> int:
        status = self._take(result, nbytes)
        if status == 0:
            self.log.append(("allocate", nbytes, stream or 0))
        return status

    def cuMemFreeAsync(self, address: int, stream: int | None) -> int:
        self.log.append(("free", self.blocks[address], stream or 0))
        return self._give(address)

    def cuMemcpyHtoD_v2(self, target: int, source: int, nbytes: int) -> int:
        return self._copy(target, source, nbytes, on_device=(target,))

    def cuMemcpyHtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int | None) -> int:
        return self._copy(target, source, nbytes, on_device=(target,))

    def cuMemcpyDtoHAsync_v2(self, target: int, source: int, nbytes: int, stream: int | None) -> int:
        return self._copy(target, source, nbytes, on_device=(source,))

    def cuMemcpyDtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int | None) -> int:
        self.log.append(("copy on device", nbytes, stream or 0))
        return self._copy(target, source, nbytes, on_device=(target, source))

    def _copy(self, target: int, source: int, nbytes: int, on_device: tuple[int, ...]) -> int:
        """Copy, or refuse where a place on the device is none: CUDA_ERROR_INVALID_VALUE."""
        for place in on_device:
            if not any(start <= place and place + nbytes <= start + size for start, size in self.blocks.items()):
                return 1
        ctypes.memmove(target, source, nbytes)
        return 0

    def cuMemcpy(self, target: int, source: int, nbytes: int) -> int:
        return self._copy(target, source, nbytes, on_device=())

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int | None) -> int:
        ctypes.memset(address, value, count)
        return 0


def write(result: int, value: int) -> int:
    """Give a caller a word of 8 bytes; no error."""
    ctypes.c_uint64.from_address(result).value = value
    return 0


def write32(result: int, value: int) -> int:
    """Give a caller a word of 4 bytes; no error."""
    ctypes.c_int32.from_address(result).value = value
    return 0
