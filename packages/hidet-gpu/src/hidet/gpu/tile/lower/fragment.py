"""Register tiles: which elements a thread holds.

The block's warps stand in a grid over a tile; each holds a part of a multiple of 16 rows and 8 columns, in pieces of
16 x 8 as NVIDIA's matrix units spread their results: with g = lane / 4 and t = lane % 4, a thread has rows g and g + 8,
and columns 2 t and 2 t + 1 of each piece.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet.errors import ScheduleError
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.tensors import RTile
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.types import BufferType

ALL_LANES = 0xFFFFFFFF
PIECE_ROWS = 16
PIECE_COLUMNS = 8
LANES = (8, 4)
"""Lanes along the rows and along the columns of a piece."""


@dataclass(frozen=True, slots=True, eq=False)
class Threads:
    """Where a thread stands, as i64 variables: number in the block, lane, warp along rows and along columns."""

    thread: Var
    lane: Var
    warp_row: Var
    warp_column: Var
    warps: tuple[int, int]

    @property
    def count(self) -> int:
        """Threads of the block."""
        return WARP * self.warps[0] * self.warps[1]

    def upright(self, tile: RTile) -> Threads:
        """Where a thread stands over `tile.upright`."""
        if not tile.is_transposed:
            return self
        return Threads(self.thread, self.lane, self.warp_column, self.warp_row, self.warps[::-1])


def block_threads(warps: tuple[int, int]) -> Threads:
    """Variables for where a thread stands."""
    thread, lane, row, column = (build.size_var(name) for name in ("thread", "lane", "warp_row", "warp_column"))
    return Threads(thread, lane, row, column, warps)


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """The part of a register tile that a thread holds: an array of [pieces along rows, along columns, 2, 2], of
    `tile.upright`.

    An axis of extent 1 of the tile has one piece and one element, and so has one with an element for each lane that
    stands along it: partial results.
    """

    tile: RTile
    buffer: Var
    extents: tuple[int, int, int, int]

    def at(self, piece_row: Expr, piece_column: Expr, half: Expr, pair: Expr) -> tuple[Expr, ...]:
        """Indices of an element in the array, broadcast along axes of extent 1."""
        wanted = (piece_row, piece_column, half, pair)
        return tuple(
            index if extent > 1 else build.index(0) for index, extent in zip(wanted, self.extents, strict=True)
        )


def fragment(tile: RTile, warps: tuple[int, int]) -> Fragment:
    """The fragment of a tile. ScheduleError when the warps cannot share it evenly."""
    extents = fragment_extents(tile, warps)
    shape = tuple(build.index(extent) for extent in extents)
    return Fragment(tile, Var(tile.name, BufferType(tile.dtype, shape, None, "register")), extents)


def fragment_extents(tile: RTile, warps: tuple[int, int]) -> tuple[int, int, int, int]:
    """The extents of a tile's fragment. ScheduleError when the warps cannot share it evenly."""
    if tile.is_transposed:
        return fragment_extents(tile.upright, warps[::-1])
    extents = [0, 0, 0, 0]
    for axis, (extent, count, piece) in enumerate(
        zip((tile.rows, tile.columns), warps, (PIECE_ROWS, PIECE_COLUMNS), strict=True)
    ):
        if extent in (1, LANES[axis] * count):
            extents[axis], extents[2 + axis] = 1, 1
        elif extent % (count * piece):
            raise ScheduleError(
                f"{tile.name} has {extent} {('rows', 'columns')[axis]}, which {count} warps cannot share in pieces "
                f"of {piece}"
            )
        else:
            extents[axis], extents[2 + axis] = extent // (count * piece), 2
    a, b, c, d = extents
    return a, b, c, d


def place(
    tile: RTile, threads: Threads, piece_row: Expr, piece_column: Expr, half: Expr, pair: Expr
) -> tuple[Expr, Expr]:
    """Row and column in the tile of an element that a thread holds."""
    if tile.is_transposed:
        return place(tile.upright, threads.upright(tile), piece_row, piece_column, half, pair)[::-1]
    part_rows, part_columns = tile.rows // threads.warps[0], tile.columns // threads.warps[1]
    row = threads.warp_row * part_rows + piece_row * PIECE_ROWS + half * 8 + threads.lane // 4
    in_piece = threads.lane % 4 * 2 + pair if part_columns != LANES[1] else threads.lane % 4
    column = threads.warp_column * part_columns + piece_column * PIECE_COLUMNS + in_piece
    return row, column
