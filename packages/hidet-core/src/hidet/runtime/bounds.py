"""Words of device memory that a checked launch notes its first access outside of an array in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy

from hidet import dtypes
from hidet.errors import LaunchError
from hidet.target import DeviceMemory


@dataclass(frozen=True, slots=True, eq=False)
class BoundsChecks:
    """How calls of a checked module are watched.

    memory: of the device. words: how many i32 a launch gets, all zero. error: what words of a finished launch tell of,
    None for nothing.
    """

    memory: DeviceMemory
    words: int
    error: Callable[[Sequence[int]], LaunchError | None]

    def words_for_call(self) -> tuple[object, int]:
        """Zeroed words: their owner and address. Calls at the same time get different ones."""
        return self.memory.upload(numpy.zeros(self.words, numpy.int32))

    def verify(self, address: int, stream: int) -> None:
        """Wait for the work in a stream. LaunchError if an access lay outside of its array."""
        found = self.error(self.memory.in_stream(stream).read(address, dtypes.i32, self.words))
        if found is not None:
            raise found
