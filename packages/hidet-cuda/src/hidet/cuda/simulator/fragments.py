"""How matrices are spread over the registers of a warp (PTX ISA: "Matrix Fragments for mma.m16n8k16" and neighbours).

With g = lane / 4 and t = lane % 4, a register holds r = 4 / (bytes of an element) neighbours along k, or one f64.
Register by register, A goes over rows g and g + 8 first, then over blocks of 4 r columns; B, of which g is the column,
over blocks of 4 r rows; C and D hold columns 2 t and 2 t + 1, of row g first, then of row g + 8.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hidet.gpu.simulator.meaning import Site
from hidet.gpu.simulator.memory import RowError
from hidet.gpu.simulator.team import WARP

Array = np.ndarray[Any, Any]


def require_groups(site: Site, size: int) -> None:
    """The callers are whole groups of `size` neighbouring threads. RowError otherwise."""
    threads = site.team.thread[site.lanes.index]
    groups = threads.reshape(-1, size) if len(threads) % size == 0 else None
    if groups is None or (groups[:, 0] % size).any() or (groups[:, -1] - groups[:, 0] != size - 1).any():
        what = "warp" if size == WARP else "warp group"
        raise RowError(
            0,
            f"{site.node.callee} is executed by part of a {what}; all its {size} threads execute it together",
            hint="move it out of the branch",
        )


@cache
def operand_a(m: int, k: int, nbytes: int) -> tuple[Array, Array]:
    """Row and k of the elements of A that each lane holds, both [32, elements]."""
    per, halves = max(1, 4 // nbytes), m // 8
    blocks = k // (4 * per)
    lane = np.arange(WARP)[:, None, None, None]
    block = np.arange(blocks)[None, :, None, None]
    half = np.arange(halves)[None, None, :, None]
    i = np.arange(per)[None, None, None, :]
    row = lane // 4 + 8 * half + 0 * block + 0 * i
    column = block * 4 * per + lane % 4 * per + i + 0 * half
    return row.reshape(WARP, -1), column.reshape(WARP, -1)


@cache
def operand_b(k: int, nbytes: int) -> tuple[Array, Array]:
    """k and column of the elements of B, of 8 columns, that each lane holds, both [32, elements]."""
    column, row = operand_a(8, k, nbytes)
    return row, column


@cache
def accumulator(m: int, n: int) -> tuple[Array, Array]:
    """Row and column of the elements of C and D that each lane holds, both [32, elements]: 8 columns at a time."""
    lane = np.arange(WARP)[:, None, None, None]
    block = np.arange(n // 8)[None, :, None, None]
    half = np.arange(m // 8)[None, None, :, None]
    i = np.arange(2)[None, None, None, :]
    row = lane // 4 + 8 * half + 0 * block + 0 * i
    column = 8 * block + lane % 4 * 2 + i + 0 * half
    return row.reshape(WARP, -1), column.reshape(WARP, -1)


def gathered(values: Array, places: tuple[Array, Array], shape: tuple[int, int]) -> Array:
    """Matrices from what lanes hold: [warps * 32, elements] -> [warps, *shape]."""
    by_warp = values.reshape(-1, WARP, values.shape[1])
    result: Array = np.zeros((len(by_warp), *shape), values.dtype)
    result[:, places[0], places[1]] = by_warp
    return result


def scattered(matrices: Array, places: tuple[Array, Array]) -> Array:
    """What lanes hold of matrices: [warps, rows, columns] -> [warps * 32, elements]."""
    held = matrices[:, places[0], places[1]]
    return np.ascontiguousarray(held.reshape(-1, held.shape[2]))
