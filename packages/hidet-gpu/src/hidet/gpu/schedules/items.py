"""Numbers of work items, and the indices that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var

_MOST_COUNTED = 1 << 31
"""Items that are numbered in 32 bits are fewer."""


def word_for(count: Dim) -> DType:
    """The type in which so many items are numbered: division is several times as fast in 32 bits."""
    upper = dims.bounds(count)[1]
    return dtypes.u32 if upper is not None and upper < _MOST_COUNTED else dtypes.u64


def are_few(count: Expr) -> Expr:
    """Whether so many items can be numbered in 32 bits."""
    return count < _MOST_COUNTED


def thread_number(word: DType, threads: int) -> Expr:
    """The number of a thread in the whole grid, whose blocks have so many."""
    block, thread = (build.cast(intrinsic_call(f"gpu.{name}.x"), word) for name in ("block_idx", "thread_idx"))
    return block * threads + thread


def decode_item(k: IRBuilder, item: Expr, extents: Sequence[Expr], axes: Sequence[Var]) -> None:
    """Find each axis' index from the number of an item, which is a u32 or u64: division needs no rounding down. The
    last axis counts fastest."""
    for number in range(len(axes) - 1, 0, -1):
        extent = build.cast(extents[number], item.dtype)
        # Told to be positive, it is divided by without a test for zero.
        above = k.let(f"above{number}", item // build.maximum(extent, 1))
        k.declare(axes[number], build.cast(item - above * extent, dtypes.i64))
        item = above
    if axes:
        k.declare(axes[0], build.cast(item, dtypes.i64))
