"""Loads of rows that begin anywhere: the lines of 16 bytes that hold a box are copied in the background as they lie,
and shifted to where elements belong when they have arrived.

Copies in the background take whole multiples of their size, and threads that read element by element wait for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hidet import dtypes
from hidet.gpu.tile.layout import CHUNK_BYTES
from hidet.gpu.tile.lower.copy import is_in_background
from hidet.gpu.tile.lower.elementwise import unroll
from hidet.gpu.tile.lower.fragment import Threads
from hidet.gpu.tile.lower.machine import BackgroundCopies
from hidet.gpu.tile.statements import Load
from hidet.gpu.tile.tensors import GTensor, STile, source_at
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import substitute

_ITEM_BYTES, _WORD_BYTES = 2, 4
_LINE_ITEMS, _LINE_WORDS = CHUNK_BYTES // _ITEM_BYTES, CHUNK_BYTES // _WORD_BYTES
_MOST_TURNS = 16
"""Turns that are unrolled, each of which may hold a word."""


def lines_bytes(rows: int, columns: int) -> int:
    """Shared memory for the lines of a tile of 2-byte elements: a row that begins within one has one more."""
    return rows * (columns * _ITEM_BYTES + CHUNK_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedLoad:
    """A load whose rows are shifted. lines: shared memory for the lines of several stages; the tile itself has one."""

    node: Load
    source: GTensor
    lines: Var

    def start(self, values: Mapping[Var, Expr], stage: Expr, threads: Threads, copies: BackgroundCopies) -> s.Stmt:
        """Start copying the lines of a box, for values of the variables it depends on. What is beyond the end of a row
        becomes zero; what lies in front of its beginning comes with it, and is read by nobody."""
        tile, source = self.node.target, self.source
        first_row, first_column = substitute(self.node.row, values), substitute(self.node.column, values)

        def copied(_: Expr, row: Expr, line: Expr) -> s.Stmt:
            begin, shift = Var("begin", source.pointer.type), Var("shift", dtypes.i64)
            left = source.columns - first_column + shift - line * _LINE_ITEMS
            valid = build.maximum(build.minimum(left, _LINE_ITEMS), 0) * _ITEM_BYTES
            valid = build.select(first_row + row < source.rows, valid, build.index(0))
            place = build.binary("add", begin, line * _LINE_ITEMS - shift)
            to = (stage * tile.rows + row) * _words(tile) + line * _LINE_WORDS
            copy = copies.part(CHUNK_BYTES, build.address(self.lines, to), place, build.cast(valid, dtypes.i32))
            offset = (first_row + row) * source.row_stride + first_column
            return build.seq(
                [
                    s.Declare(begin, build.binary("add", source.pointer, offset)),
                    s.Declare(shift, _items_within_line(begin)),
                    copy,
                ]
            )

        whole = _by_turns(tile.rows, tile.layout.row_chunks, threads, copied)
        last = build.index(tile.layout.row_chunks)
        return build.seq([whole, _by_turns(tile.rows, 1, threads, lambda turn, row, _: copied(turn, row, last))])

    def arrive(self, stage: Expr, buffer: Var, threads: Threads) -> s.Stmt:
        """Shift what has arrived in a stage of lines to the tile in `buffer`, two elements at a time. The places of the
        load are those of the statement around it."""
        tile, source, node = self.node.target, self.source, self.node
        per_row = tile.columns * _ITEM_BYTES // _WORD_BYTES
        most = min(_MOST_TURNS, -(-tile.rows * per_row // threads.count))
        held = Var("held", BufferType(dtypes.u32, (build.index(most),), None, "register"))
        start, begun, step = Var("start", dtypes.i32), Var("begun", dtypes.i32), Var("step", dtypes.i32)

        def read(turn: Expr, row: Expr, word: Expr) -> s.Stmt:
            shift, at = Var("shift", dtypes.i32), Var("at", dtypes.i32)
            row, word = build.cast(row, dtypes.i32), build.cast(word, dtypes.i32)
            low, high = (build.load(self.lines, build.cast(place, dtypes.i64)) for place in (at, at + 1))
            across = build.binary("or", build.binary("shl", high, 16), build.binary("shr", low, 16))
            is_odd = build.equal(build.binary("and", shift, 1), 1)
            return build.seq(
                [
                    s.Declare(shift, build.binary("and", begun + row * step, _LINE_ITEMS - 1)),
                    s.Declare(at, start + row * _words(tile) + word + build.binary("shr", shift, 1)),
                    s.Store(held, (turn,), build.select(is_odd, across, low)),
                ]
            )

        def write(turn: Expr, row: Expr, word: Expr) -> s.Stmt:
            to = build.address(buffer, tile.layout.offset(row, word * (_WORD_BYTES // _ITEM_BYTES)))
            return s.Store(Bitcast(to, PointerType(dtypes.u32, "shared")), (build.index(0),), build.load(held, turn))

        begin = build.binary("add", source.pointer, node.row * source.row_stride + node.column)
        # Only the low bits of places count, which sums and products of 32 bits keep.
        low_bits = build.binary("and", source.row_stride, build.index(_LINE_ITEMS - 1))
        return build.seq(
            [
                s.Declare(begun, build.cast(_items_within_line(begin), dtypes.i32)),
                s.Declare(step, build.cast(low_bits, dtypes.i32)),
                s.Declare(start, build.cast(stage * (tile.rows * _words(tile)), dtypes.i32)),
                s.Declare(held),
                # Reads would wait for the writes before them, which the compiler does not know to be elsewhere.
                _by_turns(tile.rows, per_row, threads, read, write),
            ]
        )


def shifted_load(node: Load, stages: int) -> ShiftedLoad | None:
    """How a load of a pipeline is shifted; None for rows that are copied in the background as they are, or are not in
    memory, and for elements of other sizes than 2 bytes."""
    source, tile = source_at(node.source, node.row), node.target
    if not isinstance(source, GTensor) or source.dtype.nbytes != _ITEM_BYTES or is_in_background(source):
        return None
    count = build.index(stages * tile.rows * _words(tile))
    return ShiftedLoad(node, source, Var(f"{tile.name}_lines", BufferType(dtypes.u32, (count,), None, "shared")))


def _words(tile: STile) -> int:
    """Words from the lines of a row to those of the next."""
    return lines_bytes(1, tile.columns) // _WORD_BYTES


def _items_within_line(place: Expr) -> Expr:
    """How many elements an address lies behind the beginning of its line, as i64."""
    return build.binary("and", Bitcast(place, dtypes.i64), build.index(CHUNK_BYTES - 1)) // _ITEM_BYTES


def _by_turns(rows: int, columns: int, threads: Threads, *make: Callable[[Expr, Expr, Expr], s.Stmt]) -> s.Stmt:
    """What each of `make` gives for all places of `rows` x `columns`, each by one thread, in groups of at most
    `_MOST_TURNS` turns: the first one's for all turns of a group, then the next one's. It is given the turn in the
    group, the row and the column."""
    total, count = rows * columns, threads.count
    turns = -(-total // count)
    groups = -(-turns // _MOST_TURNS)
    each = -(-turns // groups)
    group, own_row, own_column = (build.size_var(name) for name in ("group", "own_row", "own_column"))
    # Threads that share rows evenly stay in their column.
    stays = count % columns == 0

    def unroll_turns(body: Callable[[Expr, Expr, Expr], s.Stmt]) -> s.Stmt:
        turn = build.size_var("turn")
        number = group * each + turn if groups > 1 else turn
        place = number * count + threads.thread
        row = own_row + number * (count // columns) if stays else place // columns
        column = own_column if stays else place % columns
        made = body(turn, row, column)
        if total != groups * each * count:
            made = s.If(place < total, made)
        return unroll(turn, each, made)

    parts = build.seq(map(unroll_turns, make))
    if groups > 1:
        parts = s.For(group, build.index(0), build.index(groups), parts)
    own = [s.Declare(own_row, threads.thread // columns), s.Declare(own_column, threads.thread % columns)]
    return build.seq([*own, parts]) if stays else parts
