"""Which tile of a grid a block works on: neighbours in time share rows and columns, so that the second-level cache
still holds what they load."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var

_GROUP_ROWS = 8
"""Rows of tiles that are swept together, column by column: about a wave of blocks is then as high as it is wide."""


def tile_indices(grid_vars: Sequence[Var], extents: Sequence[Expr], item: Expr) -> list[s.Stmt]:
    """Declare the grid's indices, columns and rows of tiles first, for tile number `item`, an i64."""
    declared: list[s.Stmt] = []

    def name(what: str, value: Expr) -> Expr:
        var = Var(what, dtypes.u32)
        declared.append(s.Declare(var, value))
        return var

    counts = [
        name(f"{var.name}_count", build.cast(extent, dtypes.u32))
        for var, extent in zip(grid_vars, extents, strict=True)
    ]
    # 32-bit division takes a third of the instructions of 64-bit division, and no grid has more tiles.
    rest = name("number", build.cast(item, dtypes.u32))
    columns, rows, *outer = counts
    plane = name("plane", columns * rows)
    inner, rest = name("inner", rest % plane), name("outer", rest // plane)
    for var, count in zip(grid_vars[2:], outer, strict=True):
        declared.append(s.Declare(var, build.cast(rest % count, dtypes.i64)))
        rest = rest // count
    strip = name("strip", columns * _GROUP_ROWS)
    first = name("first", inner // strip * _GROUP_ROWS)
    inside = name("inside", inner % strip)
    # Groups of fewer rows than others are last, and all of one height: a launch knows it, and divides by a factor.
    last = name("last", build.maximum(rows % _GROUP_ROWS, 1))
    # Both sides at once would take registers that kernels of many warps do not have.
    column, height = Var("column", dtypes.u32), Var("height", dtypes.u32)
    full = build.const(_GROUP_ROWS, dtypes.u32)
    declared += [s.Declare(column, inside // full), s.Declare(height, full)]
    shorter = build.seq([s.Assign(column, inside // last), s.Assign(height, last)])
    declared.append(s.If(rows - first < full, shorter))
    declared.append(s.Declare(grid_vars[0], build.cast(column, dtypes.i64)))
    declared.append(s.Declare(grid_vars[1], build.cast(first + (inside - column * height), dtypes.i64)))
    return declared


def tiles_of_block(total: Expr, block: Expr, blocks: Expr) -> Expr:
    """How many of `total` tiles block number `block` of the `blocks` of a persistent kernel takes. All are i64."""
    rounds = build.cast(total - block + (blocks - 1), dtypes.u32) // build.cast(blocks, dtypes.u32)
    return build.cast(rounds, dtypes.i64)
