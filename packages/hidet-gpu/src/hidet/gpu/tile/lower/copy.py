"""Loads: boxes of matrices to shared tiles, by all threads of the block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.errors import ScheduleError
from hidet.gpu.tile.layout import CHUNK_BYTES, LINE_CHUNKS
from hidet.gpu.tile.lower.fragment import Threads
from hidet.gpu.tile.lower.gather import gathered_rows
from hidet.gpu.tile.lower.machine import BackgroundCopies
from hidet.gpu.tile.statements import Load
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, Source, Stacked, STile, source_at
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.visit import substitute, walk

LEAST_ASYNC = 4
"""Bytes from which parts are copied in the background."""
_LEAST_STRIP = 4
"""Parts of a row that threads copy at a time at least where they do not share rows evenly: half a line of the cache."""
_MOST_TURNS = 16
"""Turns of a copy by parts that are unrolled; more of them would hold as many addresses in registers."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxCopy:
    """A load that is done for several values of the variables it depends on.

    before: what is computed once. start: statements that start filling a stage of the tile, from the values of these
    variables and the number of the stage.
    """

    before: tuple[s.Stmt, ...]
    start: Callable[[Mapping[Var, Expr], Expr], s.Stmt]


def box_copy(
    node: Load, buffer: Var, threads: Threads, copies: BackgroundCopies | None, index: Var | None = None
) -> BoxCopy:
    """How stages of the tile in `buffer` are filled; `index` is the variable of the loop that the load is in.

    Elements outside of the matrix become zero. Parts of 16, 8 or 4 bytes are copied in the background as far as the
    matrix is aligned; without `copies`, and for computed matrices, it is done element by element and at once.
    ScheduleError when the rows of a gathered matrix change in the loop.
    """
    node = replace(node, source=source_at(node.source, node.row))
    source, nbytes = node.source, node.target.dtype.nbytes
    if isinstance(source, Gathered):
        return _gathering(node, source, buffer, threads, copies, index)
    wide = 0 if copies is None else _background_part(source)
    part = wide or nbytes
    if isinstance(source, GTensor) and node.target.columns * nbytes // part <= threads.count:
        return _by_columns(node, source, buffer, threads, part, copies if wide else None)
    return BoxCopy((), lambda values, stage: _copy(_moved(node, values), buffer, stage, threads, copies))


def _background_part(source: GTensor | Stacked | Computed) -> int:
    """Bytes that are copied in the background at a time; 0 where that cannot be done."""
    part = 0 if isinstance(source, Computed) else min(CHUNK_BYTES, source.align)
    return part if part >= max(LEAST_ASYNC, source.dtype.nbytes) else 0


def is_in_background(source: Source) -> bool:
    """Whether all copies of boxes of a matrix run in the background, on devices that have such copies."""
    return isinstance(source, GTensor | Stacked) and _background_part(source) > 0


def _moved(node: Load, values: Mapping[Var, Expr]) -> Load:
    """A load for values of variables."""
    source = node.source
    if isinstance(source, Computed):
        source = replace(source, formula=substitute(source.formula, values))
    return Load(node.target, source, substitute(node.row, values), substitute(node.column, values))


def _by_columns(
    node: Load, source: GTensor, buffer: Var, threads: Threads, nbytes: int, copies: BackgroundCopies | None
) -> BoxCopy:
    """Copies of a box of which a row has no more parts than threads: each goes down a column of parts.

    Its addresses move by constants in shared memory and by a sum in global memory, which keeps them out of the
    registers that products need; what depends on the thread alone is computed once. Rows whose parts the threads do not
    share evenly are copied in strips that they do, or threads that would start a part of a row are idle.
    """
    layout, elements = node.target.layout, nbytes // source.dtype.nbytes
    per_row = layout.columns // elements
    even = math.gcd(per_row, threads.count)
    width = even if even >= _LEAST_STRIP else per_row
    height = threads.count // width
    # Swizzled rows lie alike again after a line of chunks.
    phases = LINE_CHUNKS // math.gcd(LINE_CHUNKS, height) if layout.is_swizzled else 1
    row, column = build.size_var("row"), build.size_var("column")
    count = min(phases, -(-layout.rows // height))
    strips = [strip * width * elements for strip in range(per_row // width)]
    offsets = [[build.size_var(f"offset{phase}") for phase in range(count)] for _ in strips]
    own = Var("own", source.pointer.type)
    before = (
        s.Declare(row, threads.thread // width),
        s.Declare(column, threads.thread % width * elements),
        *[
            s.Declare(var, layout.offset(row + n * height, column + strip if strip else column))
            for strip, of_strip in zip(strips, offsets, strict=True)
            for n, var in enumerate(of_strip)
        ],
        s.Declare(own, build.binary("add", source.pointer, row * source.row_stride + column)),
    )

    def start(values: Mapping[Var, Expr], stage: Expr) -> s.Stmt:
        first_row, first_column = substitute(node.row, values), substitute(node.column, values)
        left, place = Var("left", dtypes.i32), Var("place", own.type)
        remaining = build.maximum(build.minimum(source.rows - first_row, layout.rows), 0)
        stmts: list[s.Stmt] = [
            s.Declare(left, build.cast(remaining, dtypes.i32) - build.cast(row, dtypes.i32)),
            s.Declare(place, build.binary("add", own, first_row * source.row_stride + first_column)),
        ]

        def copied(turn: int, strip: int, offset: Var) -> s.Stmt:
            is_row, own_column = left > turn * height, column + strip if strip else column
            target = stage * layout.size + offset + turn // phases * (phases * height * layout.pitch)
            at = build.binary("add", place, build.index(strip)) if strip else place
            if copies is not None:
                valid = _valid_bytes(source, is_row, first_column, own_column, nbytes, layout.columns)
                return copies.part(nbytes, build.address(buffer, target), at, valid)
            inside = build.logical_and(is_row, first_column + own_column < source.columns)
            value = build.select(inside, build.load(at, 0), build.const(0, source.dtype))
            return s.Store(buffer, (target,), value)

        for turn in range(-(-layout.rows // height)):
            copy = build.seq(
                copied(turn, strip, of_strip[turn % phases]) for strip, of_strip in zip(strips, offsets, strict=True)
            )
            is_whole = (turn + 1) * height <= layout.rows
            stmts.append(copy if is_whole else s.If(row < layout.rows - turn * height, copy))
            stmts.append(s.Assign(place, build.binary("add", place, source.row_stride * height)))
        body = build.seq(stmts[:-1])
        return body if height * width == threads.count else s.If(row < height, body)

    return BoxCopy(before, start)


def _copy(node: Load, buffer: Var, stage: Expr, threads: Threads, copies: BackgroundCopies | None) -> s.Stmt:
    source = node.source
    assert not isinstance(source, Gathered)
    part = _background_part(source)
    if copies is not None and isinstance(source, GTensor) and part:
        matrix, copy_part = source, copies.part

        def in_background(_: Expr, row: Expr, column: Expr, target: Expr) -> s.Stmt:
            row = node.row + row
            place = build.binary("add", matrix.pointer, row * matrix.row_stride + (node.column + column))
            valid = _valid_bytes(matrix, row < matrix.rows, node.column, column, part, node.target.columns)
            return copy_part(part, build.address(buffer, target), place, valid)

        return _parts(node.target, part // source.dtype.nbytes, stage, threads, in_background)

    def at_once(_: Expr, row: Expr, column: Expr, target: Expr) -> s.Stmt:
        return s.Store(buffer, (target,), _element(node, node.row + row, node.column + column))

    return _parts(node.target, 1, stage, threads, at_once)


def _valid_bytes(source: GTensor, is_row: Expr, first: Expr, column: Expr, nbytes: int, columns: int) -> Expr:
    """How many bytes lie inside a matrix, of the part at `column` of a box of `columns` columns from `first` on.

    Where the matrix is known to end with a part, all or none do, which the hardware is told more cheaply.
    """
    item = source.dtype.nbytes
    none, whole = build.const(0, dtypes.i32), build.const(nbytes, dtypes.i32)
    extent, start = (n.value if isinstance(n, Const) else None for n in (source.columns, first))
    if not isinstance(extent, int) or extent * item % nbytes:
        inside = build.maximum(build.minimum((source.columns - (first + column)) * item, nbytes), 0)
        return build.select(is_row, build.cast(inside, dtypes.i32), none)
    if isinstance(start, int) and start + columns <= extent:
        return build.select(is_row, whole, none)
    return build.select(build.logical_and(is_row, first + column < source.columns), whole, none)


def _gathering(
    node: Load,
    source: Gathered,
    buffer: Var,
    threads: Threads,
    copies: BackgroundCopies | None,
    index: Var | None,
) -> BoxCopy:
    """Copies of parts at computed places, whose rows' share of the computation is done before."""
    if index is not None and any(found is index for found in walk(node.row)):
        raise ScheduleError(f"the rows of {node.target.name} move in its ring, but what is gathered has to keep them")
    nbytes = source.dtype.nbytes
    part = nbytes if copies is None else min(CHUNK_BYTES, source.align)
    elements = max(part // nbytes, 1)
    per_row = node.target.columns // elements
    rows = gathered_rows(source, _turns(node.target, elements, threads))
    before = rows.declared(lambda turn: node.row + (turn * threads.count + threads.thread) // per_row)

    def start(values: Mapping[Var, Expr], stage: Expr) -> s.Stmt:
        first = substitute(node.column, values)
        # Threads that divide rows evenly stay in their column, so that it is computed once for all turns.
        stays = threads.count % per_row == 0
        shared, of_column = rows.columns(first + threads.thread % per_row * elements) if stays else ([], {})

        def make(turn: Expr, _: Expr, column: Expr, target: Expr) -> s.Stmt:
            own, found = ([], of_column) if stays else rows.columns(first + column)
            place, inside = rows.part(turn, found)
            if copies is not None and part >= max(LEAST_ASYNC, nbytes):
                valid = build.select(inside, build.const(part, dtypes.i32), build.const(0, dtypes.i32))
                return build.seq([*own, copies.part(part, build.address(buffer, target), place, valid)])
            value = build.select(inside, build.load(place, 0), build.const(0, source.dtype))
            return build.seq([*own, s.Store(buffer, (target,), value)])

        # What is known of the rows is held by turn.
        turns = _turns(node.target, elements, threads)
        return build.seq([*shared, _parts(node.target, elements, stage, threads, make, most=turns)])

    return BoxCopy(tuple(before), start)


def _turns(tile: STile, elements: int, threads: Threads) -> int:
    """How often each thread copies `elements` neighbours."""
    return -(-tile.rows * (tile.columns // elements) // threads.count)


def _parts(
    tile: STile,
    elements: int,
    stage: Expr,
    threads: Threads,
    make: Callable[[Expr, Expr, Expr, Expr], s.Stmt],
    *,
    most: int = _MOST_TURNS,
) -> s.Stmt:
    """make(turn, row, column, offset in the buffer) for every part of `elements` neighbours, each by one thread.

    most: turns that are unrolled at a time.
    """
    layout = tile.layout
    per_row = layout.columns // elements
    total = layout.rows * per_row
    turns = _turns(tile, elements, threads)
    # Equal groups of turns.
    groups = -(-turns // most)
    each = -(-turns // groups)
    group, turn, part = (build.size_var(name) for name in ("group", "turn", "part"))
    row, column = part // per_row, part % per_row * elements
    body = make(turn, row, column, stage * layout.size + layout.offset(row, column))
    if total != groups * each * threads.count:
        body = s.If(part < total, body)
    number = turn if groups == 1 else group * each + turn
    body = build.seq([s.Declare(part, number * threads.count + threads.thread), body])
    body = s.For(turn, build.index(0), build.index(each), body, kind="unroll")
    return body if groups == 1 else s.For(group, build.index(0), build.index(groups), body)


def _element(node: Load, row: Expr, column: Expr) -> Expr:
    """The value of one element, zero outside of the matrix."""
    source = node.source
    assert isinstance(source, GTensor | Computed)
    if isinstance(source, GTensor):
        value = source.element(row, column)
    else:
        value = substitute(source.formula, {source.row: row, source.column: column})
    inside = build.logical_and(row < source.rows, column < source.columns)
    return build.select(inside, value, build.const(0, source.dtype))
