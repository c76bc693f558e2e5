"""Stores of register tiles, whose elements may be computed on the way.

By rows, each warp stages a part of its results in shared memory, so that neighbouring lanes write neighbouring 16
bytes, or what the matrix is aligned to. As products leave them, a row is spread over four lanes, 4 bytes of every 16
each, and half of each 32-byte sector would be written at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hidet.gpu.tile.layout import CHUNK_BYTES, SharedLayout
from hidet.gpu.tile.lower.elementwise import Element, each, unroll
from hidet.gpu.tile.lower.fragment import Threads, fragment_extents, place
from hidet.gpu.tile.lower.parts import Parts, part_layout
from hidet.gpu.tile.statements import Store
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Binary, Const, Expr, Load, Var
from hidet.ir.types import BufferType, VectorType

_LINE_BYTES = 128
_MOST_TURNS = 8


def rows_layout(node: Store, warps: tuple[int, int], together: int) -> SharedLayout | None:
    """How the part that is staged at a time is kept; None where that is not worth while or not possible. together:
    warps that stage together.

    Rows of 2-byte elements are staged wherever they start: else a sector is written in 8 accesses. Wider ones are
    staged where the matrix takes 16 bytes at once.
    """
    nbytes, tile = node.target.dtype.nbytes, node.source
    chunk = CHUNK_BYTES // nbytes
    if (nbytes > 2 and node.target.align < CHUNK_BYTES) or 1 in (tile.rows, tile.columns):
        return None
    if not is_multiple(node.column, chunk):
        return None
    return part_layout(tile, warps, together, _LINE_BYTES // nbytes, nbytes)


def store_elements(node: Store, element: Element, threads: Threads) -> s.Stmt:
    """Write the elements inside the matrix, two neighbours at once where the matrix is aligned to them."""
    target, extents = node.target, fragment_extents(node.source, threads.warps)
    are_neighbours = extents[3] == 2 and not node.source.is_transposed
    in_pairs = are_neighbours and target.align >= 2 * target.dtype.nbytes and is_multiple(node.column, 2)
    lanes = 2 if in_pairs else 1
    values = Var("values", BufferType(target.dtype, (build.index(lanes),), None, "register"))

    def body(at: tuple[Expr, ...]) -> s.Stmt:
        first = (*at, build.index(0)) if in_pairs else at
        row, column = place(node.source, threads, first[0], first[1], first[2], first[3])
        row, column = node.row + row, node.column + column
        to = row * target.row_stride + column
        alone: s.Stmt = s.Store(target.pointer, (to,), build.load(values, 0))
        alone = s.If(column < target.columns, alone)
        if in_pairs:
            two = Load(values, (build.index(0),), VectorType(target.dtype, 2))
            alone = s.If(column + 1 < target.columns, s.Store(target.pointer, (to,), two), alone)
        ends = [(*at, build.index(n)) for n in range(2)] if in_pairs else [at]
        computed = [s.Store(values, (build.index(n),), element(end)) for n, end in enumerate(ends)]
        return build.seq([s.Declare(values), *computed, s.If(row < target.rows, alone)])

    return each(extents[:3] if in_pairs else extents, body)


WriteSquare = Callable[[Expr, Expr, bool], s.Stmt]

Part = Callable[[tuple[Expr, Expr], int], tuple[list[s.Stmt], Element]]
"""What comes before so many pieces side by side are computed, and their elements; given how many pieces are before
them, along rows and columns."""


class StagedParts(Protocol):
    """How parts that are staged get to memory."""

    @property
    def slots(self) -> int:
        """How many parts are staged before the first one's place is used again."""

    def free(self) -> list[s.Stmt]:
        """Wait until the place of the next part may be written."""

    def write(self, staging: Expr, place: Expr, part: tuple[Expr, Expr]) -> list[s.Stmt]:
        """Write what lanes have staged at an offset of shared memory. part: which one, as `Parts` count."""


def store_rows(
    node: Store,
    part: Part,
    staging: Expr,
    parts: Parts,
    write_square: WriteSquare | None,
    way: StagedParts | None = None,
) -> s.Stmt:
    """Write the elements inside the matrix, by rows.

    staging: shared memory of `parts.size` elements for each slot. write_square: the device's way to write there, if it
    has one (`hidet.gpu.tile.lower.machine.Machine`). way: None where lanes write what they read there.
    """
    way = way or _ByLanes(node, parts)
    first = build.size_var("staged")
    piece, panel = build.size_var("piece_row"), build.size_var("panel")
    pieces = parts.pieces
    shape = tuple(map(build.index, (pieces, 2, 2)))
    values = Var("values", BufferType(node.source.dtype, shape, None, "register"))

    prepared, element = part((piece, panel * pieces), pieces)

    def compute(at: tuple[Expr, ...]) -> s.Stmt:
        return s.Store(values, at, element((piece, panel * pieces + at[0], at[1], at[2])))

    rows, panels = parts.counts
    place = first if way.slots == 1 else first + (piece * panels + panel) % way.slots * parts.layout.size
    # A part is computed after the one before it is stored, not all at first, which registers would not hold.
    steps = [
        s.Declare(values),
        *prepared,
        each((pieces, 2, 2), compute),
        *way.free(),
        _write(values, staging, place, parts, write_square),
        *way.write(staging, place, (piece, panel)),
    ]
    staged = unroll(piece, rows, unroll(panel, panels, build.seq(steps)))
    return build.seq([s.Declare(first, parts.team * (way.slots * parts.layout.size)), staged])


@dataclass(frozen=True, slots=True, eq=False)
class _ByLanes:
    """`StagedParts` that lanes read and write."""

    node: Store
    parts: Parts

    @property
    def slots(self) -> int:
        """All of it is read when the next part comes."""
        return 1

    def free(self) -> list[s.Stmt]:
        """All lanes have read what was staged before."""
        return [self.parts.meet]

    def write(self, staging: Expr, place: Expr, part: tuple[Expr, Expr]) -> list[s.Stmt]:
        """Each lane, some chunks."""
        return [self.parts.meet, _read(self.node, staging, place, self.parts, part)]


def _write(values: Var, staging: Expr, first: Expr, parts: Parts, write_square: WriteSquare | None) -> s.Stmt:
    dtype, lane, is_transposed = values.dtype, parts.threads.lane, parts.tile.is_transposed
    if write_square is not None and dtype.nbytes == 2 and parts.pieces % 2 == 0:
        # Four 8 x 8 matrices: rows 0 to 7 and 8 to 15 of 8 columns, then of the next 8.
        inner = build.size_var("inner")
        row, column = lane % 16, inner * 16 + lane // 16 * 8
        if is_transposed:
            # Lanes name rows of the transposed ones, which are columns here.
            row, column = lane // 8 % 2 * 8, inner * 16 + lane // 16 * 8 + lane % 8
        to = build.address(staging, first + parts.place(row, column))
        words = build.address(values, inner * 2, 0, 0)
        return unroll(inner, parts.pieces // 2, write_square(to, words, is_transposed))

    def pair(inner: Expr, half: Expr) -> Expr:
        return Load(values, (inner, half, build.index(0)), VectorType(dtype, 2))

    return parts.stage(staging, first, pair)


def _read(node: Store, staging: Expr, first: Expr, parts: Parts, part: tuple[Expr, Expr]) -> s.Stmt:
    """Write what a warp has staged. Where the matrix has whole chunks, a lane reads all of its own before it writes the
    first one, and none is cut at the matrix's end: all warps go the same way."""
    target, nbytes = node.target, node.target.dtype.nbytes
    chunk = min(target.align, CHUNK_BYTES) // nbytes
    turns = -(-parts.layout.rows * parts.layout.columns // chunk // parts.lanes)
    chunks = _Chunks(node, staging, first, parts, part, chunk)
    shape = (build.index(turns), build.index(chunk))
    held = Var("held", BufferType(target.dtype, shape, None, "register"))
    turn, again = build.size_var("turn"), build.size_var("turn")
    if turns > _MOST_TURNS:
        # Many small parts are written one after the other: there are no registers for all their places.
        return s.For(turn, build.index(0), build.index(turns), chunks.cut(turn))
    read = chunks.at(turn, lambda place: s.Store(held, (turn, build.index(0)), chunks.load(place)))
    write = chunks.at(again, lambda place: chunks.whole(place, build.load(held, again, 0, lanes=chunk)))
    whole = build.seq([s.Declare(held), unroll(turn, turns, read), unroll(again, turns, write)])
    third = build.size_var("turn")
    cut = unroll(third, turns, chunks.cut(third))
    return whole if chunk == 1 else s.If(build.equal(target.columns % chunk, 0), whole, cut)


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Row and column of a chunk in the matrix, where it is staged, and where it is written to."""

    row: Var
    column: Var
    staged: Var
    to: Var


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    """The neighbours, `chunk` of them, that a lane writes in each of its turns."""

    node: Store
    staging: Expr
    first: Expr
    parts: Parts
    part: tuple[Expr, Expr]
    chunk: int

    def at(self, turn: Expr, body: Callable[[_Place], s.Stmt]) -> s.Stmt:
        """`body` at the lane's chunk of a turn."""
        node, layout, lanes = self.node, self.parts.layout, self.parts.lanes
        per_row, (first_row, first_column) = layout.columns // self.chunk, self.parts.origin(*self.part)
        number = build.size_var("number")
        row, column = number // per_row, number % per_row * self.chunk
        place = _Place(*map(build.size_var, ("row", "column", "at", "to")))
        stmt: s.Stmt = build.seq(
            [
                s.Declare(place.row, node.row + (first_row + row)),
                s.Declare(place.column, node.column + (first_column + column)),
                s.Declare(place.staged, self.first + layout.offset(row, column)),
                s.Declare(place.to, place.row * node.target.row_stride + place.column),
                body(place),
            ]
        )
        count = layout.rows * per_row
        return build.seq(
            [s.Declare(number, turn * lanes + self.parts.lane), s.If(number < count, stmt) if count % lanes else stmt]
        )

    def load(self, place: _Place) -> Expr:
        """What is staged of a chunk."""
        return build.load(self.staging, place.staged, lanes=self.chunk)

    def whole(self, place: _Place, value: Expr) -> s.Stmt:
        """Write a chunk that is inside of the matrix, or outside, as a whole."""
        target = self.node.target
        is_inside = build.logical_and(place.row < target.rows, place.column < target.columns)
        return s.If(is_inside, s.Store(target.pointer, (place.to,), value))

    def cut(self, turn: Expr) -> s.Stmt:
        """Write a chunk, of which the matrix may end in between."""
        target, i = self.node.target, build.size_var("i")

        def write(place: _Place) -> s.Stmt:
            single = s.Store(target.pointer, (place.to + i,), build.load(self.staging, place.staged + i))
            one = s.If(place.column + i < target.columns, single)
            ends = s.For(i, build.index(0), build.index(self.chunk), one) if self.chunk > 1 else None
            store = s.Store(target.pointer, (place.to,), self.load(place))
            is_whole = place.column + self.chunk <= target.columns
            return s.If(place.row < target.rows, s.If(is_whole, store, ends))

        return self.at(turn, write)


def is_multiple(expr: Expr, of: int) -> bool:
    """Whether an i64 expression is known to be a multiple: a constant, a product with a constant, or their sum."""
    if isinstance(expr, Const):
        return isinstance(expr.value, int) and expr.value % of == 0
    if isinstance(expr, Binary) and expr.op == "mul":
        return is_multiple(expr.a, of) or is_multiple(expr.b, of)
    return isinstance(expr, Binary) and expr.op == "add" and is_multiple(expr.a, of) and is_multiple(expr.b, of)
