"""Loads: boxes of matrices to shared tiles, by all threads of the block."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.visit import substitute
from hidet.tile.layout import CHUNK_BYTES
from hidet.tile.lower.fragment import Threads
from hidet.tile.statements import Load
from hidet.tile.tensors import GTensor

_LEAST_ASYNC = 4


def copy_box(node: Load, buffer: Var, stage: Expr, threads: Threads) -> s.Stmt:
    """Start filling stage `stage` of the tile in `buffer`. Elements outside of the matrix become zero.

    Parts of 16, 8 or 4 bytes are copied in the background as far as the matrix is aligned; else, and for computed
    matrices, it is done element by element and at once.
    """
    source, nbytes = node.source, node.target.dtype.nbytes
    part = min(CHUNK_BYTES, source.align) if isinstance(source, GTensor) else 0
    if isinstance(source, GTensor) and part >= max(_LEAST_ASYNC, nbytes):
        matrix = source

        def in_background(row: Expr, column: Expr, target: Expr) -> s.Stmt:
            return _in_background(matrix, node.row + row, node.column + column, build.address(buffer, target), part)

        return _parts(node, part // nbytes, stage, threads, in_background)

    def at_once(row: Expr, column: Expr, target: Expr) -> s.Stmt:
        return s.Store(buffer, (target,), _element(node, node.row + row, node.column + column))

    return _parts(node, 1, stage, threads, at_once)


def _parts(
    node: Load, elements: int, stage: Expr, threads: Threads, make: Callable[[Expr, Expr, Expr], s.Stmt]
) -> s.Stmt:
    """make(row, column, offset in the buffer) for every part of `elements` neighbours, each by one thread."""
    layout = node.target.layout
    per_row = layout.columns // elements
    total = layout.rows * per_row
    turn = build.size_var("turn")
    part = build.size_var("part")
    row, column = part // per_row, part % per_row * elements
    body = make(row, column, stage * layout.size + layout.offset(row, column))
    if total % threads.count:
        body = s.If(part < total, body)
    body = build.seq([s.Declare(part, turn * threads.count + threads.thread), body])
    return s.For(turn, build.index(0), build.index(-(-total // threads.count)), body, kind="unroll")


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
    if isinstance(source, GTensor):
        value = source.element(row, column)
    else:
        value = substitute(source.formula, {source.row: row, source.column: column})
    inside = build.logical_and(row < source.rows, column < source.columns)
    return build.select(inside, value, build.const(0, source.dtype))
