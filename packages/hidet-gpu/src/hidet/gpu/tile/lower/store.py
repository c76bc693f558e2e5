"""Stores of register tiles, whose elements may be computed on the way.

By rows, each warp stages a part of its results in shared memory, so that neighbouring lanes write neighbouring 16
bytes, or what the matrix is aligned to. As products leave them, a row is spread over four lanes, 4 bytes of every 16
each, and half of each 32-byte sector would be written at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.layout import CHUNK_BYTES, SharedLayout
from hidet.gpu.tile.lower.elementwise import Element, each
from hidet.gpu.tile.lower.fragment import ALL_LANES, PIECE_COLUMNS, PIECE_ROWS, Threads, fragment_extents, place
from hidet.gpu.tile.statements import Store
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Binary, Const, Expr, Load, Var
from hidet.ir.types import BufferType, VectorType

MEET = s.Evaluate(intrinsic_call("gpu.syncwarp", ALL_LANES))
"""The lanes of a warp meet, and see what each other has written."""
_LINE_BYTES = 128
_MOST_TURNS = 8


def rows_layout(node: Store, warps: tuple[int, int]) -> SharedLayout | None:
    """How a warp keeps the part that it stages at a time; None where that is not worth while or not possible.

    Rows of 2-byte elements are staged wherever they start: else a sector is written in 8 accesses. Wider ones are
    staged where the matrix takes 16 bytes at once.
    """
    nbytes = node.target.dtype.nbytes
    chunk = CHUNK_BYTES // nbytes
    columns = node.source.columns // warps[1]
    width = math.gcd(columns, _LINE_BYTES // nbytes)
    if (
        (nbytes > 2 and node.target.align < CHUNK_BYTES)
        or width % chunk
        or 1 in (node.source.rows, node.source.columns)
    ):
        return None
    return SharedLayout(PIECE_ROWS, width, nbytes) if is_multiple(node.column, chunk) else None


def store_elements(node: Store, element: Element, threads: Threads) -> s.Stmt:
    """Write the elements inside the matrix, two neighbours at once where the matrix is aligned to them."""
    target, extents = node.target, fragment_extents(node.source, threads.warps)
    in_pairs = target.align >= 2 * target.dtype.nbytes and extents[3] == 2 and is_multiple(node.column, 2)
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


WriteSquare = Callable[[Expr, Expr], s.Stmt]

Part = Callable[[tuple[Expr, Expr], int], tuple[list[s.Stmt], Element]]
"""What comes before so many pieces side by side are computed, and their elements; given how many pieces are before
them, along rows and columns."""


class StagedParts(Protocol):
    """How parts that a warp has staged get to memory."""

    @property
    def slots(self) -> int:
        """How many parts a warp stages before the first one's place is used again."""

    def free(self) -> list[s.Stmt]:
        """Wait until the place of the next part may be written."""

    def write(self, staging: Expr, place: Expr, part: tuple[Expr, Expr]) -> list[s.Stmt]:
        """Write what lanes have staged at an offset of shared memory. part: which one along the warp's rows and
        columns."""


def store_rows(
    node: Store,
    part: Part,
    staging: Expr,
    layout: SharedLayout,
    threads: Threads,
    write_square: WriteSquare | None,
    parts: StagedParts | None = None,
) -> s.Stmt:
    """Write the elements inside the matrix, by rows.

    staging: shared memory of `layout.size` elements for each slot of each warp. write_square: the device's way to write
    there, if it has one (`hidet.gpu.tile.lower.machine.Machine`). parts: None where lanes write what they read there.
    """
    way: StagedParts = _ByLanes(node, layout, threads) if parts is None else parts
    warp = threads.warp_row * threads.warps[1] + threads.warp_column
    first = build.size_var("staged")
    piece, panel = build.size_var("piece_row"), build.size_var("panel")
    pieces = layout.columns // PIECE_COLUMNS
    shape = tuple(map(build.index, (pieces, 2, 2)))
    values = Var("values", BufferType(node.source.dtype, shape, None, "register"))

    prepared, element = part((piece, panel * pieces), pieces)

    def compute(at: tuple[Expr, ...]) -> s.Stmt:
        return s.Store(values, at, element((piece, panel * pieces + at[0], at[1], at[2])))

    rows, panels = staged_parts(node, layout, threads.warps)
    place = first if way.slots == 1 else first + (piece * panels + panel) % way.slots * layout.size
    # A part is computed after the one before it is stored, not all at first, which registers would not hold.
    steps = [
        s.Declare(values),
        *prepared,
        each((pieces, 2, 2), compute),
        *way.free(),
        _write(values, staging, place, layout, threads, write_square),
        *way.write(staging, place, (piece, panel)),
    ]
    staged = _unrolled(piece, rows, _unrolled(panel, panels, build.seq(steps)))
    return build.seq([s.Declare(first, warp * (way.slots * layout.size)), staged])


def warp_extents(node: Store, warps: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the part of a stored tile that each warp holds."""
    return node.source.rows // warps[0], node.source.columns // warps[1]


def staged_parts(node: Store, layout: SharedLayout, warps: tuple[int, int]) -> tuple[int, int]:
    """How many parts a warp stages along its rows and columns."""
    rows, columns = warp_extents(node, warps)
    return rows // PIECE_ROWS, columns // layout.columns


@dataclass(frozen=True, slots=True, eq=False)
class _ByLanes:
    """`StagedParts` that lanes read and write."""

    node: Store
    layout: SharedLayout
    threads: Threads

    @property
    def slots(self) -> int:
        """All of it is read when the next part comes."""
        return 1

    def free(self) -> list[s.Stmt]:
        """All lanes have read what was staged before."""
        return [MEET]

    def write(self, staging: Expr, place: Expr, part: tuple[Expr, Expr]) -> list[s.Stmt]:
        """Each lane, some chunks."""
        return [MEET, _read(self.node, staging, place, self.layout, part, self.threads)]


def _write(
    values: Var, staging: Expr, first: Expr, layout: SharedLayout, threads: Threads, write_square: WriteSquare | None
) -> s.Stmt:
    lane, dtype = threads.lane, values.dtype
    inner, half = build.size_var("inner"), build.size_var("half")
    pieces = layout.columns // PIECE_COLUMNS
    if write_square is not None and dtype.nbytes == 2 and pieces % 2 == 0:
        # Four 8 x 8 matrices: rows 0 to 7 and 8 to 15 of 8 columns, then of the next 8.
        row, column = lane % 16, inner * 16 + lane // 16 * 8
        to = build.address(staging, first + layout.offset(row, column))
        words = build.address(values, inner * 2, 0, 0)
        return _unrolled(inner, pieces // 2, write_square(to, words))
    row, column = half * 8 + lane // 4, inner * PIECE_COLUMNS + lane % 4 * 2
    pair = Load(values, (inner, half, build.index(0)), VectorType(dtype, 2))
    store = s.Store(staging, (first + layout.offset(row, column),), pair)
    return _unrolled(inner, pieces, _unrolled(half, 2, store))


def _read(
    node: Store, staging: Expr, first: Expr, layout: SharedLayout, part: tuple[Expr, Expr], threads: Threads
) -> s.Stmt:
    """Write what a warp has staged. Where the matrix has whole chunks, a lane reads all of its own before it writes the
    first one, and none is cut at the matrix's end: all warps go the same way."""
    target, nbytes = node.target, node.target.dtype.nbytes
    chunk = min(target.align, CHUNK_BYTES) // nbytes
    turns = -(-layout.rows * layout.columns // chunk // WARP)
    chunks = _Chunks(node, staging, first, layout, part, threads, chunk)
    shape = (build.index(turns), build.index(chunk))
    held = Var("held", BufferType(target.dtype, shape, None, "register"))
    turn, again = build.size_var("turn"), build.size_var("turn")
    if turns > _MOST_TURNS:
        # Many small parts are written one after the other: there are no registers for all their places.
        return s.For(turn, build.index(0), build.index(turns), chunks.cut(turn))
    read = chunks.at(turn, lambda place: s.Store(held, (turn, build.index(0)), chunks.load(place)))
    write = chunks.at(again, lambda place: chunks.whole(place, build.load(held, again, 0, lanes=chunk)))
    whole = build.seq([s.Declare(held), _unrolled(turn, turns, read), _unrolled(again, turns, write)])
    third = build.size_var("turn")
    cut = _unrolled(third, turns, chunks.cut(third))
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
    layout: SharedLayout
    part: tuple[Expr, Expr]
    threads: Threads
    chunk: int

    def at(self, turn: Expr, body: Callable[[_Place], s.Stmt]) -> s.Stmt:
        """`body` at the lane's chunk of a turn."""
        node, layout, threads = self.node, self.layout, self.threads
        per_row, (piece, panel) = layout.columns // self.chunk, self.part
        rows, columns = warp_extents(node, threads.warps)
        number = build.size_var("number")
        row, column = number // per_row, number % per_row * self.chunk
        place = _Place(*map(build.size_var, ("row", "column", "at", "to")))
        stmt: s.Stmt = build.seq(
            [
                s.Declare(place.row, node.row + (threads.warp_row * rows + piece * PIECE_ROWS + row)),
                s.Declare(
                    place.column, node.column + (threads.warp_column * columns + panel * layout.columns + column)
                ),
                s.Declare(place.staged, self.first + layout.offset(row, column)),
                s.Declare(place.to, place.row * node.target.row_stride + place.column),
                body(place),
            ]
        )
        count = layout.rows * per_row
        return build.seq(
            [s.Declare(number, turn * WARP + threads.lane), s.If(number < count, stmt) if count % WARP else stmt]
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


def _unrolled(index: Var, extent: int, body: s.Stmt) -> s.Stmt:
    return s.For(index, build.index(0), build.index(extent), body, kind="unroll")


def is_multiple(expr: Expr, of: int) -> bool:
    """Whether an i64 expression is known to be a multiple: a constant, a product with a constant, or their sum."""
    if isinstance(expr, Const):
        return isinstance(expr.value, int) and expr.value % of == 0
    if isinstance(expr, Binary) and expr.op == "mul":
        return is_multiple(expr.a, of) or is_multiple(expr.b, of)
    return isinstance(expr, Binary) and expr.op == "add" and is_multiple(expr.a, of) and is_multiple(expr.b, of)
