"""Inputs that do not begin where steps take them to begin: copies of them that do, made for one call.

Nothing writes to these inputs, and their elements lie next to each other (`TaskGraph.aligned`): bytes are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hidet import dims
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.frame import span
from hidet.runtime.memory import Memory
from hidet.runtime.program import ALIGNED, HostProgram, TensorSlot


class Realigner:
    """The inputs of a program that have to begin at multiples of `ALIGNED` bytes."""

    def __init__(self, program: HostProgram) -> None:
        given = [(program.inputs[number], program.inputs[number].tensor) for number in program.aligned]
        self._tensors = {tensor.slot: tensor for _, tensor in given if tensor is not None}
        self._names = [source.name for source in program.symbols]
        self.slots = tuple(self._tensors)
        """Of all of them."""
        self.others = tuple([t.slot for slot, t in given if t is not None and not slot.is_parameter])
        """Of those that are no parameters."""

    def replace(
        self,
        slots: Iterable[int],
        addresses: dict[int, int],
        sources: Mapping[int, int],
        values: Sequence[int],
        adapter: TensorAdapter,
        memory: Memory,
    ) -> list[Any]:
        """Copy the inputs in `slots` from where `sources` says that they lie, and put the places of the copies into
        `addresses`. What it returns keeps them. values: of the program's symbols."""
        held = []
        named = dict(zip(self._names, values, strict=True))
        for slot in slots:
            nbytes = input_bytes(self._tensors[slot], named)
            owner, address = adapter.empty((nbytes,), (1,), "uint8") if nbytes else (None, 0)
            if nbytes:
                memory.copy(address, sources[slot], nbytes)
            addresses[slot] = address
            held.append(owner)
        return held


def find_misaligned(slots: Iterable[int], addresses: Mapping[int, int]) -> list[int]:
    """Those slots whose addresses are no multiples of `ALIGNED`."""
    return [slot for slot in slots if addresses[slot] % ALIGNED]


def input_bytes(tensor: TensorSlot, values: Mapping[str, int]) -> int:
    """Bytes from the first to the last element of an input. values: of symbols by name."""
    shape = [dims.evaluate(dim, values) for dim in tensor.shape]
    strides = [dims.evaluate(dim, values) for dim in tensor.strides]
    return span(shape, strides) * tensor.dtype.nbytes
