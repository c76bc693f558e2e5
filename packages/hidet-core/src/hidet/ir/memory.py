"""Memory of the interpreter: bytes with an address, pointers into them, and arrays with a shape.

Every access is checked against the bytes it lies in, and for arrays against each axis. Fresh memory has all bits set,
which is NaN in every IEEE float type, so reading what nothing wrote shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hidet.dtypes import DType
from hidet.errors import LaunchError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A run of bytes. `address` is where it really lies: addresses in tables mean what they mean to compiled code."""

    name: str
    data: Array
    address: int


def block_of(name: str, array: Array) -> Block:
    """The memory of a contiguous, writeable array, shared with it. LaunchError for other arrays."""
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise LaunchError(f"array {name} must be contiguous and writeable to stand for memory")
    return Block(name, array.reshape(-1).view(np.uint8), array.__array_interface__["data"][0])


def fresh_block(name: str, nbytes: int) -> Block:
    """New memory, all bits set."""
    return block_of(name, np.full(nbytes, 0xFF, np.uint8))


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """The address of an element of `dtype`: `offset` bytes into `block`, or nowhere when there is no block."""

    block: Block | None
    offset: int
    dtype: DType

    @property
    def address(self) -> int:
        """The address as a number; 0 for nowhere."""
        return 0 if self.block is None else self.block.address + self.offset

    def moved(self, elements: int) -> Pointer:
        """The pointer to the element that lies `elements` further."""
        return Pointer(self.block, self.offset + elements * self.dtype.nbytes, self.dtype)

    def cells(self, count: int) -> Array:
        """`count` elements from here on, shared with memory. LaunchError when they do not lie inside the block."""
        if self.block is None:
            raise LaunchError(f"a null pointer to {self.dtype} is followed")
        size = count * self.dtype.nbytes
        if self.offset < 0 or self.offset + size > self.block.data.size:
            raise LaunchError(
                f"{self.block.name} has {self.block.data.size} bytes, but {count} x {self.dtype} are accessed "
                f"at byte {self.offset}"
            )
        return self.block.data[self.offset : self.offset + size].view(self.dtype.numpy())


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """An array in memory: `strides` count elements of `lanes` values each."""

    pointer: Pointer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lanes: int

    def element(self, indices: Sequence[int]) -> Pointer:
        """The pointer to one element. LaunchError when an index lies outside its axis."""
        for axis, (index, extent) in enumerate(zip(indices, self.shape, strict=True)):
            if not 0 <= index < extent:
                name = "a null buffer" if self.pointer.block is None else self.pointer.block.name
                raise LaunchError(f"{name} is accessed at {tuple(indices)}: axis {axis} has {extent} elements")
        offset = sum(index * stride for index, stride in zip(indices, self.strides, strict=True))
        return self.pointer.moved(offset * self.lanes)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class AddressSpace:
    """The blocks that addresses can be turned back into pointers to."""

    def __init__(self) -> None:
        self._blocks: dict[Block, None] = {}

    def add(self, block: Block) -> Block:
        """Make `block` reachable by address."""
        self._blocks[block] = None
        return block

    def number(self, pointer: Pointer) -> int:
        """The address of a pointer, which leads back to the memory from now on, even to that of a function."""
        if pointer.block is not None:
            self.add(pointer.block)
        return pointer.address

    def pointer(self, address: int, dtype: DType) -> Pointer:
        """The pointer to an address; one just past a block belongs to it. LaunchError where no block lies."""
        if address == 0:
            return Pointer(None, 0, dtype)
        inside = [b for b in self._blocks if b.address <= address < b.address + max(b.data.size, 1)]
        edges = [b for b in self._blocks if address == b.address + b.data.size]
        for block in (*inside, *edges):
            return Pointer(block, address - block.address, dtype)
        raise LaunchError(
            f"address {address:#x} lies in no known memory", hint="pass the arrays that tables point to as `reachable`"
        )
