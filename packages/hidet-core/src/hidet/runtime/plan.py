"""Memory planning: offsets in one arena for temporaries whose lifetimes overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ALIGNMENT = 64

MAX_PAIRS = 1 << 21
"""Pairs of buffers that live at the same time, above which the arena is planned without looking at each."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets of buffers, in the order they were given, in an arena of `nbytes`."""

    offsets: tuple[int, ...]
    nbytes: int


def plan_memory(lifetimes: Sequence[tuple[int, int]], sizes: Sequence[int]) -> MemoryPlan:
    """Place buffers so that no two alive in one step overlap. `lifetimes` are inclusive (first, last) step numbers.

    Greedy by size, largest first, into the lowest gap that fits (Pisarchyk and Lee, 2020): within a few percent of
    the best plan for networks. Time is that of the pairs of buffers that live together; where these are too many,
    buffers are placed in the order in which they begin to live.
    """
    rounded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    used = [number for number, size in enumerate(rounded) if size]
    place = _by_size if _pairs([lifetimes[number] for number in used]) <= MAX_PAIRS else _in_order
    offsets = [0] * len(sizes)
    for number, offset in place(used, lifetimes, rounded):
        offsets[number] = offset
    return MemoryPlan(tuple(offsets), max((offsets[n] + rounded[n] for n in used), default=0))


def _pairs(lifetimes: Sequence[tuple[int, int]]) -> int:
    """How many pairs of buffers live in one step."""
    firsts = sorted(first for first, _ in lifetimes)
    lasts = sorted(last for _, last in lifetimes)
    return sum(number - bisect_left(lasts, first) for number, first in enumerate(firsts))


def _by_size(
    used: Sequence[int], lifetimes: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """(buffer, offset), largest first."""
    placed = _Placed(1 + max((lifetimes[number][1] for number in used), default=0))
    for number in sorted(used, key=lambda n: (-sizes[n], n)):
        first, last = lifetimes[number]
        offset = 0
        for start, end in sorted(placed.alive(first, last)):
            if offset + sizes[number] <= start:
                break
            offset = max(offset, end)
        placed.add(first, last, (offset, offset + sizes[number]))
        yield number, offset


class _Placed:
    """Ranges of the arena, found by the steps in which they are taken: those that begin in a step of a lifetime, and
    those that are alive in its first one, which hang in a tree over all steps at the nodes that make up their life."""

    def __init__(self, steps: int) -> None:
        self._leaves = 1 << max(steps - 1, 0).bit_length()
        self._nodes: dict[int, list[tuple[int, int]]] = {}
        self._begins: list[tuple[int, int, int]] = []

    def add(self, first: int, last: int, taken: tuple[int, int]) -> None:
        """Take a range in the steps `first` to `last`."""
        insort(self._begins, (first, *taken))
        low, high = first + self._leaves, last + self._leaves + 1
        while low < high:
            if low & 1:
                self._nodes.setdefault(low, []).append(taken)
                low += 1
            if high & 1:
                high -= 1
                self._nodes.setdefault(high, []).append(taken)
            low, high = low >> 1, high >> 1

    def alive(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges that are taken in any of the steps `first` to `last`."""
        node = first + self._leaves
        while node:
            yield from self._nodes.get(node, ())
            node >>= 1
        begins = self._begins
        # Those that begin in `first` itself are in the tree.
        for index in range(bisect_left(begins, (first + 1,)), bisect_left(begins, (last + 1,))):
            yield begins[index][1:]


def _in_order(
    used: Sequence[int], lifetimes: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """(buffer, offset), the earliest first, into the smallest hole that fits, or behind everything."""
    holes: list[tuple[int, int]] = []  # (bytes, offset)
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    top = 0
    leaving: list[tuple[int, int]] = []  # (last step, buffer)
    offsets: dict[int, int] = {}

    def free(offset: int, size: int) -> None:
        """Give a range back, joined with the holes beside it."""
        before, after = ends.pop(offset, None), starts.pop(offset + size, None)
        if before is not None:
            _remove(holes, (offset - before, before))
            del starts[before]
            offset, size = before, size + offset - before
        if after is not None:
            _remove(holes, (after - offset - size, offset + size))
            del ends[after]
            size = after - offset
        insort(holes, (size, offset))
        starts[offset], ends[offset + size] = offset + size, offset

    for number in sorted(used, key=lambda n: (lifetimes[n], n)):
        first, last = lifetimes[number]
        gone = bisect_right(leaving, (first - 1, max(used)))
        for _, other in leaving[:gone]:
            free(offsets[other], sizes[other])
        del leaving[:gone]
        index = bisect_left(holes, (sizes[number], 0))
        if index < len(holes):
            space, offset = holes.pop(index)
            del starts[offset], ends[offset + space]
            if space > sizes[number]:
                free(offset + sizes[number], space - sizes[number])
        else:
            offset, top = top, top + sizes[number]
        offsets[number] = offset
        insort(leaving, (last, number))
        yield number, offset


def _remove(holes: list[tuple[int, int]], hole: tuple[int, int]) -> None:
    del holes[bisect_left(holes, hole)]
