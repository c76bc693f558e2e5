"""What one call of a host program owns, and how its steps find and leave values there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hidet.dtypes import boolean
from hidet.errors import ShapeError
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.memory import Memory
from hidet.runtime.program import ObjectSlot, SymbolSource, TensorSlot
from hidet.runtime.shape_class import ResolvedArgument, ResolvedTensor


@dataclass(slots=True)
class Frame:
    """What one call of a program owns while it runs.

    table: slots with addresses and sizes. values: of the symbols known so far, in order, by name. stream: of a device,
    into which work is put; () on the host. objects: host values by slot. made: tensors that steps have made, by slot;
    they live as long as the frame.
    """

    table: Any
    adapter: TensorAdapter
    memory: Memory
    values: dict[str, int]
    stream: tuple[int, ...] = ()
    objects: dict[int, Any] = field(default_factory=dict)
    made: dict[int, Any] = field(default_factory=dict)

    def keep(self, place: TensorSlot | ObjectSlot, value: Any) -> None:
        """Note what a step has made."""
        if isinstance(place, ObjectSlot):
            self.objects[place.slot] = value
        else:
            self.made[place.slot] = value
            self.table[place.slot] = self.adapter.pointer(value)


@dataclass(frozen=True, slots=True)
class Located:
    """A tensor by its address; `owner` keeps the memory."""

    address: int
    shape: Sequence[int]
    owner: object = None


def address_of(argument: Located) -> int:
    """Where a tensor lies."""
    return argument.address


def tell(
    name: str,
    places: Sequence[TensorSlot | ObjectSlot],
    defines: Sequence[SymbolSource],
    results: Sequence[Any],
    frame: Frame,
) -> None:
    """Values of the symbols that results define, and a check of extents that are fixed."""
    for source in defines:
        value = results[source.input]
        frame.values[source.name] = value if source.axis is None else value.shape[source.axis]
    for number, (place, value) in enumerate(zip(places, results, strict=False)):
        if isinstance(place, TensorSlot):
            pairs = zip(place.shape, value.shape, strict=False)
            if len(place.shape) != len(value.shape) or any(isinstance(w, int) and w != have for w, have in pairs):
                shape = ", ".join(map(str, place.shape))
                raise ShapeError(f"operator {name}: result {number} is {list(value.shape)}, expected [{shape}]")


def located(argument: ResolvedArgument, frame: Frame) -> Any:
    """An argument of a program inside: a tensor by its address, a host value or a size as they are."""
    if isinstance(argument, ResolvedTensor):
        return Located(address_in(argument, frame), argument.shape)
    return frame.objects[argument.slot] if isinstance(argument, ObjectSlot) else argument


def address_in(tensor: ResolvedTensor, frame: Frame) -> int:
    """Where a tensor lies in a call."""
    address: int = frame.table[tensor.slot] + tensor.offset * tensor.itemsize
    return address


def flag(condition: ResolvedArgument, frame: Frame) -> bool:
    """A bool of rank 0. The host waits for it."""
    assert isinstance(condition, ResolvedTensor)
    return bool(frame.memory.read(address_in(condition, frame), boolean, 1)[0])


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one in memory, gaps included."""
    if 0 in shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements."""
    strides: list[int] = []
    running = 1
    for extent in reversed(shape):
        strides.append(running)
        running *= max(extent, 1)
    return tuple(reversed(strides))
