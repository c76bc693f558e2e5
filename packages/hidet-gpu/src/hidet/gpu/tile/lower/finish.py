"""Stores of epilogues: of what is mapped from products and from epilogue operands that are fetched only then.

Where the matrix takes 16 bytes at a time, each warp stages a part of the products in shared memory before it maps them:
a thread then has neighbours of a row, reads epilogue operands by up to 16 bytes, and writes 16. As products leave
them, it would read 4 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from hidet.gpu.tile import statements as t
from hidet.gpu.tile.layout import CHUNK_BYTES, LINE_CHUNKS, SharedLayout
from hidet.gpu.tile.lower.elementwise import unroll
from hidet.gpu.tile.lower.fragment import Fragment
from hidet.gpu.tile.lower.parts import Parts, part_layout
from hidet.gpu.tile.lower.store import is_multiple
from hidet.gpu.tile.tensors import GTensor, RTile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Load, Var
from hidet.ir.types import BufferType, VectorType
from hidet.ir.visit import substitute

# Bytes of registers for what is asked for ahead, by threads of a block up to which there are so many; more threads have
# fewer registers each.
_AHEAD_BYTES = {384: 128, 1024: 48}


@dataclass(frozen=True, slots=True, eq=False)
class StoredMap:
    """A map of which nothing but the store right behind it takes the result, and what is fetched only for that."""

    map: t.Map
    fetches: tuple[t.Fetch, ...]


def finish_layout(node: t.Store, stored: StoredMap, warps: tuple[int, int], together: int) -> SharedLayout | None:
    """How the part of the products that is staged at a time is kept; None where no matrix is fetched, where the
    stored one does not take 16 bytes at once, or where what is fetched does not lie like it."""
    target, products = node.target, _products(stored)
    has_matrix = any(fetch.is_matrix for fetch in stored.fetches)
    if not has_matrix or len(products) != 1 or products[0].rows != node.source.rows:
        return None
    if products[0].columns != node.source.columns or not all(_lies_like(fetch, node) for fetch in stored.fetches):
        return None
    nbytes = products[0].dtype.nbytes
    chunk, own = CHUNK_BYTES // target.dtype.nbytes, CHUNK_BYTES // nbytes
    layout = part_layout(node.source, warps, together, LINE_CHUNKS * own, nbytes)
    if layout is None or layout.columns % chunk or chunk % own:
        return None
    return layout if target.align >= CHUNK_BYTES and is_multiple(node.column, chunk) else None


def staged_tile(stored: StoredMap) -> RTile:
    """The tile of which parts are staged."""
    return _products(stored)[0]


def _products(stored: StoredMap) -> list[RTile]:
    """The inputs of a map that are not fetched for it."""
    fetched = [fetch.target for fetch in stored.fetches]
    return [tile for tile in stored.map.inputs if tile not in fetched]


def _lies_like(fetch: t.Fetch, node: t.Store) -> bool:
    """Whether a box is inside of its matrix where the stored one is, along axes that it has."""
    source, target, tile = fetch.source, node.target, fetch.target
    down = source.rows is target.rows and fetch.row is node.row and tile.rows == node.source.rows
    across = source.columns is target.columns and fetch.column is node.column and tile.columns == node.source.columns
    return (down or tile.rows == 1) and (across or tile.columns == 1)


def store_finished(node: t.Store, stored: StoredMap, products: Fragment, staging: Expr, parts: Parts) -> s.Stmt:
    """Stage, fetch, map and write, by rows. staging: shared memory of `parts.size` elements."""
    first, meet = build.size_var("staged"), parts.meet
    rows = _Rows(node, stored, products, staging, first, parts)
    piece, panel, part, early = (build.size_var(name) for name in ("piece_row", "panel", "part", "early"))
    pieces, panels = parts.counts
    coming = panel + rows.early
    # The first meeting lets all lanes finish reading what was staged before.
    fast = [
        s.If(coming < panels, rows.asked_for(piece, coming)),
        meet,
        rows.stage(piece, panel),
        meet,
        rows.written(piece, panel),
    ]
    begun = [unroll(early, rows.early, rows.asked_for(piece, early))] if rows.early else []
    inside = build.seq([*map(s.Declare, rows.ahead.values()), *begun, unroll(panel, panels, build.seq(fast))])
    # One loop for all parts, whose code is short; each part's products have registers of their own.
    own = build.size_var("own")
    staged = unroll(own, panels, s.If(build.equal(own, part), rows.stage(piece, own)))
    slow = [meet, staged, meet, rows.written_one_by_one(piece, part)]
    outside = s.For(part, build.index(0), build.index(panels), build.seq(slow))
    # All lanes that stage together go the same way, so that what it reads ahead stands under no condition of its own.
    stored_parts = s.If(rows.are_whole_chunks(piece), inside, outside)
    each = unroll(piece, pieces, s.If(rows.begin_inside(piece), stored_parts))
    return build.seq([s.Declare(first, parts.team * parts.layout.size), each])


class _Rows:
    """What is done with parts of products that are staged: each lane has `chunk` neighbours of a row in each of its
    `turns`.

    slots: parts whose epilogue operands are on their way or held, `early` of them for parts that come later, so that
    memory is not waited for. ahead: by fetched tile, where that is kept; a tile of one row or column, which threads
    share, is read where it is used.
    """

    def __init__(
        self,
        node: t.Store,
        stored: StoredMap,
        products: Fragment,
        staging: Expr,
        first: Expr,
        parts: Parts,
    ) -> None:
        self.node, self.stored, self.products, self.parts = node, stored, products, parts
        self.staging, self.first, self.layout = staging, first, parts.layout
        self.chunk = CHUNK_BYTES // node.target.dtype.nbytes
        self.per_row = self.layout.columns // self.chunk
        self.turns = -(-self.layout.rows * self.per_row // parts.lanes)
        whole = [fetch.target for fetch in stored.fetches if fetch.is_matrix]
        kept = sum(self.turns * self.chunk * tile.dtype.nbytes for tile in whole)
        panels, any_number = parts.counts[1], node.source.is_transposed
        # Upright tiles of five parts, of 160 columns, have no registers for more than one.
        most = next(nbytes for threads, nbytes in _AHEAD_BYTES.items() if parts.threads.count <= threads)
        fitting = (n for n in range(panels, 1, -1) if n * kept <= most and (any_number or panels % n == 0))
        self.slots = next(fitting, 1)
        self.early = self.slots - 1
        shape = tuple(map(build.index, (self.slots, self.turns, self.chunk)))
        self.ahead = {tile: Var(tile.name, BufferType(tile.dtype, shape, None, "register")) for tile in whole}

    def stage(self, piece: Expr, panel: Expr) -> s.Stmt:
        """Write a part to shared memory as its lanes hold it."""
        products, pieces = self.products, self.parts.pieces

        def pair(inner: Expr, half: Expr) -> Expr:
            held = (piece, panel * pieces + inner, half, build.index(0))
            return Load(products.buffer, held, VectorType(products.tile.dtype, 2))

        return self.parts.stage(self.staging, self.first, pair)

    def begin_inside(self, piece: Expr) -> Expr:
        """Whether the first element of a warp's piece is one of the matrix."""
        (row, column), target = self.parts.origin(piece, 0), self.node.target
        if self.node.source.is_transposed:
            return self.node.column + column < target.columns
        return self.node.row + row < target.rows

    def are_whole_chunks(self, piece: Expr) -> Expr:
        """Whether the neighbours of each lane are all inside of the matrix, or none of them is."""
        target, (_, panels) = self.node.target, self.parts.counts
        width = self.layout.columns * (1 if self.node.source.is_transposed else panels)
        is_inside = self.node.column + (self.parts.origin(piece, 0)[1] + width) <= target.columns
        return build.binary("lor", build.equal(target.columns % self.chunk, 0), is_inside)

    def _nearest(self, place: _Place) -> tuple[Expr, Expr]:
        """Row and column of a place that may be read: its own, or the nearest one in the matrix where it is outside."""
        target = self.node.target
        return build.minimum(place.row, target.rows - 1), build.minimum(place.column, target.columns - self.chunk)

    def asked_for(self, piece: Expr, panel: Expr) -> s.Stmt:
        """Start to read the epilogue operands of a part."""
        place, turn, slot = _Place.fresh(), build.size_var("turn"), panel % self.slots
        row, column = self._nearest(place)
        reads: list[s.Stmt] = []
        for fetch in self.stored.fetches:
            if fetch.target in self.ahead:
                start = row * fetch.source.row_stride + column
                reads += self._reads(self.ahead[fetch.target], (slot, turn), fetch.source, start)
        return unroll(turn, self.turns, self._at(place, piece, panel, turn, build.seq(reads))) if reads else s.Seq(())

    def written(self, piece: Expr, panel: Expr) -> s.Stmt:
        """Map a part, and write what of it is inside."""
        place, turn, slot = _Place.fresh(), build.size_var("turn"), panel % self.slots
        return unroll(turn, self.turns, self._at(place, piece, panel, turn, self._whole(place, slot, turn)))

    def written_one_by_one(self, piece: Expr, panel: Expr) -> s.Stmt:
        """Map and write those elements of a part that are inside, where chunks are cut: a rare case, for which there is
        little code."""
        layout, target, place = self.layout, self.node.target, _Place.fresh()
        turn = build.size_var("turn")
        body = s.If(place.column < target.columns, self._one(place))
        # A row has as many elements as there are lanes, or fewer.
        lane, lanes = self.parts.lane, self.parts.lanes
        at = self._declared(place, piece, panel, turn, lane, body)
        inside = at if layout.columns == lanes else s.If(lane < layout.columns, at)
        # A number that the compiler does not know keeps it from writing the loop out.
        left = target.rows - (self.node.row + self.parts.origin(piece, panel)[0])
        return s.For(turn, build.index(0), build.maximum(build.minimum(left, layout.rows), 0), inside)

    def _at(self, place: _Place, piece: Expr, panel: Expr, turn: Expr, body: s.Stmt) -> s.Stmt:
        """`body` at the lane's neighbours in a turn."""
        number = build.size_var("number")
        row, column = number // self.per_row, number % self.per_row * self.chunk
        at = self._declared(place, piece, panel, row, column, body)
        count, lanes = self.layout.rows * self.per_row, self.parts.lanes
        return build.seq(
            [s.Declare(number, turn * lanes + self.parts.lane), s.If(number < count, at) if count % lanes else at]
        )

    def _declared(
        self, place: _Place, piece: Expr, panel: Expr, staged_row: Expr, staged_column: Expr, body: s.Stmt
    ) -> s.Stmt:
        """`body` at a place of what is staged."""
        row, column = self.parts.origin(piece, panel)
        return build.seq(
            [
                s.Declare(place.staged_row, staged_row),
                s.Declare(place.staged_column, staged_column),
                s.Declare(place.inner_row, row + place.staged_row),
                s.Declare(place.inner_column, column + place.staged_column),
                s.Declare(place.row, self.node.row + place.inner_row),
                s.Declare(place.column, self.node.column + place.inner_column),
                body,
            ]
        )

    def _reads(self, array: Var, at: tuple[Expr, ...], source: GTensor, start: Expr) -> list[s.Stmt]:
        """Fill a row of an array with neighbours in memory, as many at once as their alignment lets."""
        lanes = max(min(self.chunk, source.align // source.dtype.nbytes), 1)
        return [
            s.Store(array, (*at, build.index(n)), build.load(source.pointer, start + n, lanes=lanes))
            for n in range(0, self.chunk, lanes)
        ]

    def _whole(self, place: _Place, slot: Expr, turn: Expr) -> s.Stmt:
        """All neighbours of a lane."""
        lane, layout, tile = build.size_var("lane"), self.layout, self.products.tile
        total = _registers(tile.name, tile, self.chunk)
        stmts: list[s.Stmt] = [s.Declare(total)]
        for n in range(0, self.chunk, layout.chunk):
            at = self.first + layout.offset(place.staged_row, place.staged_column + n)
            stmts.append(s.Store(total, (build.index(n),), build.load(self.staging, at, lanes=layout.chunk)))
        elements: dict[RTile, Expr] = {tile: build.load(total, lane)}
        target, (row, column) = self.node.target, self._nearest(place)
        for fetch in self.stored.fetches:
            array, source = self.ahead.get(fetch.target), fetch.source
            if array is not None:
                elements[fetch.target] = build.load(array, slot, turn, lane)
                continue
            start = (row if fetch.target.rows > 1 else fetch.row) * source.row_stride
            if fetch.target.columns == 1:
                one = Var(fetch.target.name, source.dtype)
                stmts.append(s.Declare(one, build.load(source.pointer, start)))
                elements[fetch.target] = one
                continue
            array = _registers(fetch.target.name, fetch.target, self.chunk)
            stmts += [s.Declare(array), *self._reads(array, (), source, start + column)]
            elements[fetch.target] = build.load(array, lane)
        made = _registers("made", self.node.source, self.chunk)
        compute = s.Store(made, (lane,), self._value(elements, place, lane))
        to = place.row * target.row_stride + place.column
        store = s.Store(target.pointer, (to,), build.load(made, 0, lanes=self.chunk))
        is_inside = build.logical_and(place.row < target.rows, place.column < target.columns)
        return build.seq([*stmts, s.Declare(made), unroll(lane, self.chunk, compute), s.If(is_inside, store)])

    def _one(self, place: _Place) -> s.Stmt:
        """A single element."""
        at = self.first + self.layout.offset(place.staged_row, place.staged_column)
        elements: dict[RTile, Expr] = {self.products.tile: build.load(self.staging, at)}
        for fetch in self.stored.fetches:
            row = place.row if fetch.target.rows > 1 else fetch.row
            column = place.column if fetch.target.columns > 1 else 0
            elements[fetch.target] = build.load(fetch.source.pointer, row * fetch.source.row_stride + column)
        to = place.row * self.node.target.row_stride + place.column
        return s.Store(self.node.target.pointer, (to,), self._value(elements, place, build.index(0)))

    def _value(self, elements: Mapping[RTile, Expr], place: _Place, lane: Expr) -> Expr:
        """What the map makes of elements."""
        map_ = self.stored.map
        values = {variable: elements[tile] for variable, tile in zip(map_.elements, map_.inputs, strict=True)}
        return substitute(map_.formula, {**values, map_.row: place.inner_row, map_.column: place.inner_column + lane})


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Where the elements of a lane begin: in the matrix, in the tile, and in what is staged."""

    row: Var
    column: Var
    inner_row: Var
    inner_column: Var
    staged_row: Var
    staged_column: Var

    @staticmethod
    def fresh() -> _Place:
        """Variables that nothing else uses."""
        return _Place(*(build.size_var(field.name) for field in fields(_Place)))


def _registers(name: str, tile: RTile, count: int) -> Var:
    return Var(name, BufferType(tile.dtype, (build.index(count),), None, "register"))
