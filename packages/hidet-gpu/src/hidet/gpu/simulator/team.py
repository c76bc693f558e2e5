"""The threads of some neighbouring blocks, numbered block after block, and where each of them stands."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WARP = 32


@dataclass(frozen=True, slots=True)
class Geometry:
    """Extents of a launch along x, y and z, three each: blocks of the grid, threads of a block, blocks of a cluster.

    shared_bytes: shared memory of a block beyond what the kernel declares.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster."""
        return prod(self.cluster)

    def block_of(self, numbers: Array) -> tuple[Array, Array, Array]:
        """The x, y and z of blocks from their numbers. The blocks of a cluster have neighbouring numbers."""
        rank, cluster = numbers % self.cluster_blocks, numbers // self.cluster_blocks
        inside = _split(rank, self.cluster)
        outside = _split(cluster, self.clusters)
        x, y, z = (o * c + i for o, c, i in zip(outside, self.cluster, inside, strict=True))
        return x, y, z

    @property
    def clusters(self) -> tuple[int, int, int]:
        """Clusters of the grid along each axis."""
        x, y, z = (g // c for g, c in zip(self.grid, self.cluster, strict=True))
        return x, y, z

    def thread_of(self, numbers: Array) -> tuple[Array, Array, Array]:
        """The x, y and z of threads from their numbers in their block."""
        return _split(numbers, self.block)

    def describe(self, agent: int) -> str:
        """Block and thread of an agent, as messages name them."""
        block, thread = divmod(agent, self.threads + 1)
        where = "block (" + ", ".join(str(int(i)) for i in self.block_of(np.asarray(block))) + ")"
        if thread == self.threads:
            return f"{where}, its copy engine"
        return f"{where}, thread (" + ", ".join(str(int(i)) for i in self.thread_of(np.asarray(thread))) + ")"


def _split(numbers: Array, extents: tuple[int, int, int]) -> tuple[Array, Array, Array]:
    """Numbers as indices of which the first runs fastest."""
    return numbers % extents[0], numbers // extents[0] % extents[1], numbers // (extents[0] * extents[1])


class Team:
    """The threads of blocks `first` to `first + blocks`, which start in lockstep.

    thread: number in the block. block: number in the launch. agent: identity in `Clocks`. slot: number of the block
    among those that run at the same time, `first_slot` for the first one.
    """

    def __init__(self, geometry: Geometry, first: int, blocks: int, first_slot: int) -> None:
        threads = geometry.threads
        self.geometry = geometry
        self.size = blocks * threads
        self.threads = threads
        self.thread = np.tile(np.arange(threads), blocks)
        self.block = np.repeat(np.arange(first, first + blocks), threads)
        self.slot = self.block - first + first_slot
        self.agent = self.block * (threads + 1) + self.thread
        self.block_numbers = np.arange(first, first + blocks)
        self.warp = self.block * -(-threads // WARP) + self.thread // WARP
