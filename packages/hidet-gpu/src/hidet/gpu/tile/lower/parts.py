"""The parts of a register tile that are staged in shared memory at a time, so that neighbouring lanes store or read
neighbours of the matrix.

A warp stages its own part. Of a transposed tile it has few columns; there warps that multiply together stage together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.layout import CHUNK_BYTES, SharedLayout
from hidet.gpu.tile.lower.elementwise import unroll
from hidet.gpu.tile.lower.fragment import ALL_LANES, PIECE_COLUMNS, PIECE_ROWS, Threads
from hidet.gpu.tile.tensors import RTile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr

MEET: s.Stmt = s.Evaluate(intrinsic_call("gpu.syncwarp", ALL_LANES))
"""The lanes of a warp meet, and see what each other has written."""
TRANSPOSED_BYTES = 12288
"""What warps that stage together stage of a transposed tile at a time, at most."""


def part_layout(tile: RTile, warps: tuple[int, int], together: int, most: int, nbytes: int) -> SharedLayout | None:
    """How a part of a tile is staged, at most `most` columns of elements of `nbytes`; None for rows that are not of
    whole 16 bytes. together: warps that stage together."""
    rows, columns = tile.rows // warps[0], tile.columns // warps[1]
    height, width = PIECE_ROWS, math.gcd(columns, most)
    if tile.is_transposed:
        width = columns * together
        fitting = range(rows, 0, -PIECE_COLUMNS)
        height = next((n for n in fitting if rows % n == 0 and n * width * nbytes <= TRANSPOSED_BYTES), PIECE_COLUMNS)
    return None if width * nbytes % CHUNK_BYTES else SharedLayout(height, width, nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of a tile that are staged one after the other, each of rows and columns of the matrix as `layout` says.
    They are counted along the rows and along the columns of `tile.upright`.

    together: warps that stage together, more than one for transposed tiles alone. meet: lets their lanes meet.
    """

    tile: RTile
    layout: SharedLayout
    threads: Threads
    together: int
    meet: s.Stmt

    @property
    def lanes(self) -> int:
        """Threads that stage a part."""
        return WARP * self.together

    @property
    def lane(self) -> Expr:
        """A thread's number among them."""
        return self._upright.warp_row % self.together * WARP + self.threads.lane

    @property
    def size(self) -> int:
        """Elements of shared memory for a part of all threads of a block."""
        return self.layout.size * self.threads.count // self.lanes

    @property
    def team(self) -> Expr:
        """The number of those that stage together, in the block."""
        threads = self._upright
        return self._row * threads.warps[1] + threads.warp_column

    @property
    def pieces(self) -> int:
        """Pieces of a part that a warp holds, side by side in `tile.upright`."""
        return (self.layout.rows if self.tile.is_transposed else self.layout.columns) // PIECE_COLUMNS

    @property
    def counts(self) -> tuple[int, int]:
        """How many there are."""
        rows, columns = self._warp_extents
        return rows // PIECE_ROWS, columns // (self.pieces * PIECE_COLUMNS)

    def origin(self, down: Expr | int, across: Expr | int) -> tuple[Expr, Expr]:
        """Row and column in the tile of a part's first element."""
        rows, columns = self._warp_extents
        row = self._row * (rows * self.together) + down * PIECE_ROWS
        column = self._upright.warp_column * columns + across * (self.pieces * PIECE_COLUMNS)
        return (column, row) if self.tile.is_transposed else (row, column)

    def place(self, row: Expr, column: Expr) -> Expr:
        """Where an element of what a warp stages lies, by its row and column of `tile.upright`."""
        if not self.tile.is_transposed:
            return self.layout.offset(row, column)
        return self.layout.offset(column, self._upright.warp_row % self.together * PIECE_ROWS + row)

    def stage(self, to: Expr, first: Expr, pair: Callable[[Expr, Expr], Expr]) -> s.Stmt:
        """Lanes write what they hold of a part to shared memory: `pair(piece, half)` is two neighbours in a row of
        `tile.upright`."""
        inner, half = build.size_var("inner"), build.size_var("half")
        lane, value = self.threads.lane, pair(inner, half)
        row, column = half * 8 + lane // 4, inner * PIECE_COLUMNS + lane % 4 * 2
        elements = [(0, value)]
        if self.tile.is_transposed:
            elements = [(n, build.extract(value, n)) for n in range(2)]
        stores = build.seq(s.Store(to, (first + self.place(row, column + n),), element) for n, element in elements)
        return unroll(inner, self.pieces, unroll(half, 2, stores))

    @property
    def _upright(self) -> Threads:
        return self.threads.upright(self.tile)

    @property
    def _row(self) -> Expr:
        """The number of those that stage together, along the rows of `tile.upright`."""
        return self._upright.warp_row // self.together

    @property
    def _warp_extents(self) -> tuple[int, int]:
        """Rows and columns of `tile.upright` that a warp holds."""
        tile, (down, across) = self.tile.upright, self._upright.warps
        return tile.rows // down, tile.columns // across
