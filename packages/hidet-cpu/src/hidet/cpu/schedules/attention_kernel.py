"""What the kernels of attention have in common: how they are launched, and the sizes of their local arrays."""

from __future__ import annotations

from dataclasses import dataclass

from hidet.dims import Dim
from hidet.ir.func import Function
from hidet.schedule.lowering import KernelScope

# Local arrays come in few sizes, so that kernels for different extents are the same.
_ARRAY_EXTENTS = (64, 128, 256, 512, 1024)
LARGEST_ROW = _ARRAY_EXTENTS[-1]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionKernel:
    """A kernel of (pointers to the problem's tensors, sizes of `scope`) and the functions that it calls.

    grid, cost: of its launch; the cost is nanoseconds of one index.
    """

    function: Function
    called: tuple[Function, ...]
    scope: KernelScope
    grid: tuple[Dim, ...]
    cost: Dim


def array_extent(extent: int) -> int:
    """Elements of a local array for `extent` elements, at most LARGEST_ROW."""
    return next(size for size in _ARRAY_EXTENTS if extent <= size)
