"""Orders of axes in memory."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.dims import Dim, prove_equal


def memory_order(shape: Sequence[Dim], strides: Sequence[Dim]) -> tuple[int, ...] | None:
    """The order of axes, outermost first, in which a tensor fills its storage without gaps; None if there is none."""
    remaining = [axis for axis, extent in enumerate(shape) if extent != 1]
    order: list[int] = []
    running: Dim = 1
    while remaining:
        found = next((axis for axis in reversed(remaining) if prove_equal(strides[axis], running) is True), None)
        if found is None:
            return None
        remaining.remove(found)
        order.insert(0, found)
        running = running * shape[found]
    return (*[axis for axis, extent in enumerate(shape) if extent == 1], *order)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))
