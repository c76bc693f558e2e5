"""Memory of a launch: global arrays, shared memory of blocks, and arrays of threads; pointers of many threads at once.

A memory has one segment for each block (shared memory) or thread (local arrays), or one segment in all (global). An
address stays with the memory and segment it was made for, so leaving either is found wherever it would lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hidet.dtypes import DType
from hidet.errors import LaunchError
from hidet.gpu.simulator.clocks import NEVER
from hidet.gpu.simulator.lanes import Lanes, pick, put, spread, take
from hidet.gpu.simulator.shadow import Shadow

Array = np.ndarray[Any, Any]

_PADDING = 16
SHARED_ALIGNMENT = 1024
"""Shared arrays start at multiples of this in the window of shared memory: what the widest swizzle needs."""


class Memory:
    """Bytes with a name. `size` is that of one segment; `address` is where segment 0 lies in its window.

    data: the bytes of all segments, `stride` apart. unit: bytes of a declared element. stored: when each segment of an
    array of threads was written last by an ordinary store.
    """

    def __init__(
        self, name: str, space: str, size: int, segments: int, unit: int, address: int, data: Array | None = None
    ) -> None:
        self.name = name
        self.space = space
        self.size = size
        self.stride = size if data is not None else -(-size // _PADDING) * _PADDING
        self.address = address
        self.data = np.full(self.stride * segments, 0xFF, np.uint8) if data is None else data
        races = space in ("global", "shared", "constant")
        self.shadow = Shadow(self.data.size, max(unit, 1), data is not None, races)
        self.stored = np.full(segments if space == "local" else 0, NEVER, np.int64)
        self._views: dict[np.dtype[Any], Array] = {}

    def view(self, dtype: np.dtype[Any]) -> Array:
        """All whole elements of `dtype`, shared with memory."""
        known = self._views.get(dtype)
        if known is None:
            whole = self.data.size // dtype.itemsize * dtype.itemsize
            known = self._views[dtype] = self.data[:whole].view(dtype)
        return known


NOWHERE = Memory("null", "none", 0, 1, 1, 0)
"""What null pointers point to."""


@dataclass(frozen=True, slots=True, eq=False)
class Pointers:
    """Addresses of elements of `dtype`, one a thread or one for all.

    which: index into `memories`; None when there is one. segment: of the memory. offset: in bytes, into the segment.
    """

    memories: tuple[Memory, ...]
    which: Array | None
    segment: Array
    offset: Array
    dtype: DType

    def moved(self, elements: Array) -> Pointers:
        """The pointers that many elements further."""
        offset = self.offset + np.asarray(elements, np.int64) * self.dtype.nbytes
        return Pointers(self.memories, self.which, self.segment, offset, self.dtype)

    def cast(self, dtype: DType) -> Pointers:
        """The same addresses, of other elements."""
        return Pointers(self.memories, self.which, self.segment, self.offset, dtype)

    def bits(self) -> Array:
        """The addresses as numbers; in their windows for shared memory and arrays of threads."""
        base: Array = np.array([memory.address for memory in self.memories], np.int64)
        if self.which is not None:
            base = base[self.which]
        if self.memories[0].space in ("global", "constant"):
            strides = np.array([memory.stride for memory in self.memories], np.int64)
            base = base + self.segment * (strides if self.which is None else strides[self.which])
        return base + self.offset

    def parts(self, count: int) -> list[tuple[Memory, Array, Array, Array]]:
        """For each memory that is pointed to: the threads among `count`, their segments and offsets."""
        segment, offset = spread(self.segment, count), spread(self.offset, count)
        if self.which is None:
            return [(self.memories[0], np.arange(count), segment, offset)]
        which = spread(self.which, count)
        found = []
        for number in np.unique(which):
            rows = np.flatnonzero(which == number)
            found.append((self.memories[number], rows, segment[rows], offset[rows]))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Arrays in memory: `strides` count elements of `lanes` values; shape and strides are (1,) or one a thread."""

    pointers: Pointers
    shape: tuple[Array, ...]
    strides: tuple[Array, ...]
    lanes: int

    def element(self, indices: Sequence[Array], accessed: bool) -> Pointers:
        """The pointers to one element each. RowError when an index lies outside its axis and the element is
        `accessed`: an address alone may lie anywhere."""
        place: Array = np.zeros(1, np.int64)
        for axis, (index, extent, stride) in enumerate(zip(indices, self.shape, self.strides, strict=True)):
            if accessed and (outside := _is_outside(index, extent)).any():
                row = int(np.flatnonzero(outside)[0])
                where = tuple(int(i[row if len(i) > 1 else 0]) for i in indices)
                size = int(extent[row if len(extent) > 1 else 0])
                name = self.pointers.memories[0].name
                raise RowError(row, f"{name} is accessed at {where}: axis {axis} has {size} elements")
            place = place + np.asarray(index, np.int64) * stride
        return self.pointers.moved(place * self.lanes)


def _is_outside(index: Array, extent: Array) -> Array:
    """Whether an index is no position of an axis. A negative one is a huge number without a sign: one comparison."""
    outside: Array = np.asarray(index, np.int64).view(np.uint64) >= extent.view(np.uint64)
    return outside


class RowError(Exception):
    """Something is wrong for the thread in row `row` of a set; becomes a LaunchError that names the thread."""

    def __init__(self, row: int, message: str, kind: type[LaunchError] = LaunchError, hint: str | None = None) -> None:
        super().__init__(message)
        self.row = row
        self.message = message
        self.kind = kind
        self.hint = hint


def element_starts(
    memory: Memory, rows: Array, segment: Array, offset: Array, item: int, count: int, align: int
) -> Array:
    """Where in `memory.data` accesses of `count` elements of `item` bytes start. RowError for one that leaves it."""
    size = item * count
    wrong = _is_outside(offset, np.array([max(memory.size - size + 1, 0)]))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        if memory is NOWHERE:
            raise RowError(int(rows[row]), "a null pointer is followed")
        raise RowError(
            int(rows[row]),
            f"{memory.name} has {memory.size} bytes, but {count} x {item} bytes are accessed at byte {offset[row]}",
        )
    starts = segment * memory.stride + offset
    skewed = (memory.address + starts if memory.space == "global" else offset) & (align - 1)
    if skewed.any():
        row = int(np.flatnonzero(skewed)[0])
        raise RowError(
            int(rows[row]),
            f"{memory.name} is accessed at byte {offset[row]}, but {size} bytes are read or written at once there "
            f"and need an address that is a multiple of {align}",
        )
    return np.asarray(starts)


# --- values of variables that may be pointers ------------------------------------------------------------------------


def take_value(value: Any, lanes: Lanes) -> Any:
    """What a variable holds for some threads, pointers and views included."""
    return _mapped(value, lambda array: take(array, lanes))


def pick_value(value: Any, chosen: Array) -> Any:
    """The rows of a value for the threads that the bool array `chosen` names, pointers and views included."""
    return _mapped(value, lambda array: pick(array, chosen))


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, Pointers):
        which = None if value.which is None else change(value.which)
        return Pointers(value.memories, which, change(value.segment), change(value.offset), value.dtype)
    if isinstance(value, View):
        shape, strides = (tuple(map(change, arrays)) for arrays in (value.shape, value.strides))
        return View(_mapped(value.pointers, change), shape, strides, value.lanes)
    return change(value)


def put_value(old: Any, value: Any, lanes: Lanes, size: int) -> Any:
    """What a variable of a team of `size` holds after `lanes` got `value`, a pointer or view included."""
    if isinstance(value, View):
        shape, strides = (tuple(put(None, a, lanes, size) for a in arrays) for arrays in (value.shape, value.strides))
        return View(put_value(None, value.pointers, lanes, size), shape, strides, value.lanes)
    if not isinstance(value, Pointers):
        return put(old, value, lanes, size)
    before = old if isinstance(old, Pointers) else None
    if before is None or (before.memories == value.memories and before.which is None and value.which is None):
        which = None if value.which is None else put(None, value.which, lanes, size)
        segment, offset = (
            put(None if before is None else getattr(before, name), getattr(value, name), lanes, size)
            for name in ("segment", "offset")
        )
        return Pointers(value.memories, which, segment, offset, value.dtype)
    old_which = np.zeros(1, np.int64) if before.which is None else before.which
    new_which = np.zeros(1, np.int64) if value.which is None else value.which
    return Pointers(
        (*before.memories, *value.memories),
        put(old_which, new_which + len(before.memories), lanes, size),
        put(before.segment, value.segment, lanes, size),
        put(before.offset, value.offset, lanes, size),
        value.dtype,
    )


def select_values(condition: Array, a: Any, b: Any, count: int) -> Any:
    """`a`, computed for the rows where the bool array `condition` holds, and `b` for the others, in one value."""
    chosen, rest = Lanes(np.flatnonzero(condition), False), Lanes(np.flatnonzero(~condition), False)
    base = put_value(None, b, Lanes(rest.index, False), count)
    return put_value(base, a, chosen, count)
