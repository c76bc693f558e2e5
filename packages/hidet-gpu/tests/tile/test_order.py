"""The order in which blocks take tiles."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.gpu.tile.lower.order import tile_indices, tiles_of_block
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType


def taken(columns: int, rows: int, outer: int) -> list[tuple[int, int, int]]:
    """(column, row, outer) of each tile, in order."""
    out, k = Var("out", PointerType(dtypes.i64)), IRBuilder()
    extents = tuple(build.size_var(name) for name in ("columns", "rows", "matrices"))
    indices = tuple(build.size_var(name) for name in ("column", "row", "matrix"))
    with k.for_range("item", extents[0] * extents[1] * extents[2]) as item:
        k.emit(*tile_indices(indices, extents, item))
        for n, index in enumerate(indices):
            k.store(out, item * 3 + n, index)
    function = Function("f", (out, *extents), k.body, kind="host")
    found = np.zeros((columns * rows * outer, 3), np.int64)
    run_module(Module((function,), "f"), [found.reshape(-1), columns, rows, outer])
    return [tuple(int(n) for n in row) for row in found]  # type: ignore[misc]  # three numbers


@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_every_tile_is_taken_once_in_groups_of_eight_rows(rows: int, columns: int) -> None:
    order = taken(columns, rows, 2)
    assert order == sorted(order, key=lambda tile: (tile[2], tile[1] // 8, tile[0], tile[1]))
    assert len(set(order)) == len(order) == 2 * rows * columns


@pytest.mark.parametrize("total", [0, 1, 6, 7, 8, 20])
def test_blocks_take_all_tiles_together(total: int) -> None:
    out, block, k = Var("out", PointerType(dtypes.i64)), build.size_var("block"), IRBuilder()
    number = build.size_var("total")
    k.store(out, 0, tiles_of_block(number, block, build.index(7)))
    module = Module((Function("f", (out, block, number), k.body, kind="host"),), "f")
    counts = []
    for which in range(7):
        found = np.zeros(1, np.int64)
        run_module(module, [found, which, total])
        counts.append(int(found[0]))
    assert counts == [len(range(which, total, 7)) for which in range(7)]
