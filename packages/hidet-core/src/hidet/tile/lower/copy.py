"""Loads: boxes of matrices to shared tiles, by all threads of the block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.visit import substitute, walk
from hidet.tile.layout import CHUNK_BYTES
from hidet.tile.lower.fragment import Threads
from hidet.tile.lower.gather import gathered_rows
from hidet.tile.statements import Load
from hidet.tile.tensors import Computed, Gathered, GTensor, STile

_LEAST_ASYNC = 4


@dataclass(frozen=True, slots=True, eq=False)
class BoxCopy:
    """A load that is done for several values of the variables it depends on.

    before: what is computed once. start: statements that start filling a stage of the tile, from the values of these
    variables and the number of the stage.
    """

    before: tuple[s.Stmt, ...]
    start: Callable[[Mapping[Var, Expr], Expr], s.Stmt]


def box_copy(node: Load, buffer: Var, threads: Threads, index: Var | None = None) -> BoxCopy:
    """How stages of the tile in `buffer` are filled; `index` is the variable of the loop that the load is in.

    Elements outside of the matrix become zero. Parts of 16, 8 or 4 bytes are copied in the background as far as the
    matrix is aligned; else, and for computed matrices, it is done element by element and at once. ScheduleError when
    the rows of a gathered matrix change in the loop.
    """
    if isinstance(node.source, Gathered):
        return _gathering(node, node.source, buffer, threads, index)
    return BoxCopy((), lambda values, stage: _copy(_moved(node, values), buffer, stage, threads))


def _moved(node: Load, values: Mapping[Var, Expr]) -> Load:
    """A load for values of variables."""
    source = node.source
    if isinstance(source, Computed):
        source = replace(source, formula=substitute(source.formula, values))
    return Load(node.target, source, substitute(node.row, values), substitute(node.column, values))


def _copy(node: Load, buffer: Var, stage: Expr, threads: Threads) -> s.Stmt:
    source, nbytes = node.source, node.target.dtype.nbytes
    part = min(CHUNK_BYTES, source.align) if isinstance(source, GTensor) else 0
    if isinstance(source, GTensor) and part >= max(_LEAST_ASYNC, nbytes):
        matrix = source

        def in_background(_: Expr, row: Expr, column: Expr, target: Expr) -> s.Stmt:
            return _in_background(matrix, node.row + row, node.column + column, build.address(buffer, target), part)

        return _parts(node.target, part // nbytes, stage, threads, in_background)

    def at_once(_: Expr, row: Expr, column: Expr, target: Expr) -> s.Stmt:
        return s.Store(buffer, (target,), _element(node, node.row + row, node.column + column))

    return _parts(node.target, 1, stage, threads, at_once)


def _gathering(node: Load, source: Gathered, buffer: Var, threads: Threads, index: Var | None) -> BoxCopy:
    """Copies of parts at computed places, whose rows' share of the computation is done before."""
    if index is not None and any(found is index for found in walk(node.row)):
        raise ScheduleError(f"the rows of {node.target.name} move in its ring, but what is gathered has to keep them")
    nbytes = source.dtype.nbytes
    part = min(CHUNK_BYTES, source.align)
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
            if part >= max(_LEAST_ASYNC, nbytes):
                valid = build.select(inside, build.const(part, dtypes.i32), build.const(0, dtypes.i32))
                call = intrinsic_call(f"cuda.copy_async_{part}", build.address(buffer, target), place, valid)
                return build.seq([*own, s.Evaluate(call)])
            value = build.select(inside, build.load(place, 0), build.const(0, source.dtype))
            return build.seq([*own, s.Store(buffer, (target,), value)])

        return build.seq([*shared, _parts(node.target, elements, stage, threads, make)])

    return BoxCopy(tuple(before), start)


def _turns(tile: STile, elements: int, threads: Threads) -> int:
    """How often each thread copies `elements` neighbours."""
    return -(-tile.rows * (tile.columns // elements) // threads.count)


def _parts(
    tile: STile, elements: int, stage: Expr, threads: Threads, make: Callable[[Expr, Expr, Expr, Expr], s.Stmt]
) -> s.Stmt:
    """make(turn, row, column, offset in the buffer) for every part of `elements` neighbours, each by one thread."""
    layout = tile.layout
    per_row = layout.columns // elements
    total = layout.rows * per_row
    turn = build.size_var("turn")
    part = build.size_var("part")
    row, column = part // per_row, part % per_row * elements
    body = make(turn, row, column, stage * layout.size + layout.offset(row, column))
    if total % threads.count:
        body = s.If(part < total, body)
    body = build.seq([s.Declare(part, turn * threads.count + threads.thread), body])
    return s.For(turn, build.index(0), build.index(_turns(tile, elements, threads)), body, kind="unroll")


def _in_background(source: GTensor, row: Expr, column: Expr, target: Expr, nbytes: int) -> s.Stmt:
    """One copy of `nbytes`, of which only those inside the matrix are read."""
    item = source.dtype.nbytes
    inside = build.maximum(build.minimum((source.columns - column) * item, nbytes), 0)
    valid = build.cast(build.select(row < source.rows, inside, build.index(0)), dtypes.i32)
    place = build.binary("add", source.pointer, row * source.row_stride + column)
    return s.Evaluate(intrinsic_call(f"cuda.copy_async_{nbytes}", target, place, valid))


def _element(node: Load, row: Expr, column: Expr) -> Expr:
    """The value of one element, zero outside of the matrix."""
    source = node.source
    assert not isinstance(source, Gathered)
    if isinstance(source, GTensor):
        value = source.element(row, column)
    else:
        value = substitute(source.formula, {source.row: row, source.column: column})
    inside = build.logical_and(row < source.rows, column < source.columns)
    return build.select(inside, value, build.const(0, source.dtype))
