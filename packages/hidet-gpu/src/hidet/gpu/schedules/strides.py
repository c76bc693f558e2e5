"""Axes of a tensor in memory: which of them are walked as one, or are rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hidet import dims
from hidet.dims import Dim
from hidet.gpu.schedules.product import likely
from hidet.graph.types import order_of_strides


def single_stride(extents: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """The stride of axes that are walked as one: 0 when none has neighbours, None when they are not regular."""
    found: Dim | None = None
    reach: Dim = 0
    for extent, stride in reversed(list(zip(extents, strides, strict=True))):
        if extent == 1:
            continue
        if found is None:
            found = stride
        elif dims.prove_equal(stride, reach) is not True:
            return None
        reach = stride * extent
    return 0 if found is None else found


def strides_with_room(extents: Sequence[Dim], fast: int, multiple: int) -> list[Dim]:
    """Strides of a dense tensor whose axis `fast` is innermost and has room for a multiple of elements."""
    strides, step = list[Dim]([1] * len(extents)), dims.ceildiv(extents[fast], multiple) * multiple
    for axis in reversed(range(len(extents))):
        if axis != fast:
            strides[axis], step = step, step * extents[axis]
    return strides


def row_axes(shape: Sequence[Dim], strides: Sequence[Dim]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Which of several axes may count rows and which matrices, most rows first; each in the order in which they lie in
    memory. Whether either are walked as one is for the caller to see."""
    order = order_of_strides(strides) or tuple(range(len(shape)))
    splits = [(order[:at], order[at:]) for at in range(1, len(order))]
    found: list[tuple[Sequence[int], Sequence[int]]] = [pair for split in splits for pair in (split[::-1], split)]
    found.sort(key=lambda pair: -math.prod(likely(shape[axis]) for axis in pair[0]))
    return [(order, ()), *found]
