"""How a tile lies in shared memory so that rows, columns and matrix fragments are read without bank conflicts.

Shared memory has 32 banks of 4 bytes; the eight rows of a matrix fragment, 16 bytes each, are read at once and must lie
in different eighths of 128 bytes. Rows of 16, 32, 64 or 128 bytes are swizzled: chunk c of 16 bytes of row r lies at
chunk c xor f(r). Rows of several times 128 bytes are cut into panels of 128 bytes, each with all rows. That is how the
tensor copies and the matrix unit of sm_90 swizzle. Other rows are padded to an odd number of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir.expr import Expr

CHUNK_BYTES = 16
LINE_CHUNKS = 8
"""Chunks of a line of all banks: the rows after which the pattern of swizzled rows repeats."""


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """`rows` rows of `columns` elements of `nbytes` bytes; the elements of a row are neighbours within a chunk."""

    rows: int
    columns: int
    nbytes: int

    def __post_init__(self) -> None:
        if self.columns * self.nbytes % CHUNK_BYTES:
            raise ScheduleError(
                f"a tile in shared memory has rows of {self.columns} x {self.nbytes} bytes, expected a multiple of 16"
            )

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK_BYTES // self.nbytes

    @property
    def row_chunks(self) -> int:
        """Chunks of a row that hold elements."""
        return self.columns // self.chunk

    @property
    def panels(self) -> int:
        """Into how many panels rows are cut."""
        return self.row_chunks // LINE_CHUNKS if self.row_chunks % LINE_CHUNKS == 0 else 1

    @property
    def panel_chunks(self) -> int:
        """Chunks of a row in one panel."""
        return self.row_chunks // self.panels

    @property
    def is_swizzled(self) -> bool:
        """Whether rows are swizzled, not padded."""
        return self.panel_chunks <= LINE_CHUNKS and self.panel_chunks & (self.panel_chunks - 1) == 0

    @property
    def pitch(self) -> int:
        """Elements from a row to the next, in a panel."""
        padded = self.panel_chunks if self.is_swizzled else self.panel_chunks | 1
        return padded * self.chunk

    @property
    def size(self) -> int:
        """Elements of the tile, padding included."""
        return self.panels * self.rows * self.pitch

    def offset(self, row: Expr | int, column: Expr | int) -> Expr:
        """Where an element lies, in elements."""
        row, column = build.index(row), build.index(column)
        chunk, inside = column // self.chunk, column % self.chunk
        first = chunk // self.panel_chunks * (self.rows * self.pitch) if self.panels > 1 else build.index(0)
        chunk = chunk % self.panel_chunks if self.panels > 1 else chunk
        if self._turns:
            chunk = build.binary("xor", chunk, self._turn(row))
        return first + row * self.pitch + chunk * self.chunk + inside

    @property
    def _turns(self) -> bool:
        return self.is_swizzled and self.panel_chunks > 1

    def _turn(self, row: Expr) -> Expr:
        """What chunks of a row are swizzled with. Rows shorter than a line share it, so fewer need different chunks."""
        return row // (LINE_CHUNKS // self.panel_chunks) % self.panel_chunks

    def shifted(self, place: Expr, row: Expr, column: Expr) -> Expr:
        """Where the element lies that is `row` rows, a multiple of 8, and `column` columns, a multiple of two chunks,
        after `place`, the offset of one at which one of the first two chunks of a row begins.

        Constant distances stay constants, but for one exclusive or with bits that only chunks within a panel differ in.
        """
        if not self._turns:
            return place + (row * self.pitch + column)
        width = self.panel_chunks * self.chunk
        place = build.binary("xor", place, column % width)
        return place + (column // width * (self.rows * self.pitch) + row * self.pitch)
