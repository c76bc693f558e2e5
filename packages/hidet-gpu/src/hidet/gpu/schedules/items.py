"""Numbers of work items, and the indices that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var


def decode_item(k: IRBuilder, axes: Sequence[Var], extents: Sequence[Expr], item: Expr) -> None:
    """Find each axis' index from the number of the item; indices are natural, so that division needs no rounding
    down."""
    for number in range(len(axes) - 1, 0, -1):
        extent, wide = build.cast(extents[number], dtypes.u64), build.cast(item, dtypes.u64)
        k.declare(axes[number], build.cast(wide % extent, dtypes.i64))
        item = k.let(f"above{number}", build.cast(wide // extent, dtypes.i64))
    if axes:
        k.declare(axes[0], item)
