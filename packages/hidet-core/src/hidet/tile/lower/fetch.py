"""Register tiles that are read from matrices, without a way through shared memory."""

from __future__ import annotations

from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Load, Var
from hidet.ir.types import BufferType, VectorType
from hidet.tile.lower.elementwise import Element, each
from hidet.tile.lower.fragment import Fragment, Threads, place
from hidet.tile.lower.store import is_multiple
from hidet.tile.statements import Fetch


def fetch_tile(node: Fetch, target: Fragment, threads: Threads, first: tuple[Expr, Expr] | None = None) -> s.Stmt:
    """Read the elements inside the matrix, two neighbours at once where the matrix is aligned to them.

    first: along rows and along columns, the pieces before those that `target` holds, where it is a part of the tile.
    """
    source = node.source
    in_pairs = source.align >= 2 * source.dtype.nbytes and target.extents[3] == 2 and is_multiple(node.column, 2)
    extents = target.extents[:3] if in_pairs else target.extents
    zero = build.const(0, source.dtype)
    above, before = first or (build.index(0), build.index(0))

    def body(at: tuple[Expr, ...]) -> s.Stmt:
        start_at = (*at, build.index(0)) if in_pairs else at
        inner_row, inner_column = place(node.target, threads, above + at[0], before + at[1], start_at[2], start_at[3])
        row = node.row + (inner_row if node.target.rows > 1 else 0)
        column = node.column + (inner_column if node.target.columns > 1 else 0)
        start = row * source.row_stride + column
        inside = build.logical_and(row < source.rows, column < source.columns)
        if not in_pairs:
            return s.Store(target.buffer, at, build.select(inside, build.load(source.pointer, start), zero))
        two = Load(source.pointer, (start,), VectorType(source.dtype, 2))
        return s.If(
            inside, s.Store(target.buffer, start_at, two), s.Store(target.buffer, start_at, build.broadcast(zero, 2))
        )

    return each(extents, body)


def fetched_element(node: Fetch, threads: Threads) -> Element:
    """The elements of a tile that is read where they are used, one by one."""
    source = node.source

    def element(at: tuple[Expr, ...]) -> Expr:
        inner_row, inner_column = place(node.target, threads, at[0], at[1], at[2], at[3])
        row = node.row + (inner_row if node.target.rows > 1 else 0)
        column = node.column + (inner_column if node.target.columns > 1 else 0)
        inside = build.logical_and(row < source.rows, column < source.columns)
        value = build.load(source.pointer, row * source.row_stride + column)
        return build.select(inside, value, build.const(0, source.dtype))

    return element


def part_of(node: Fetch, pieces: int) -> Fragment:
    """What a thread holds of `pieces` pieces side by side."""
    tile = node.target
    extents = (1, pieces, 2 if tile.rows > 1 else 1, 2)
    shape = tuple(map(build.index, extents))
    return Fragment(tile, Var(f"{tile.name}_part", BufferType(tile.dtype, shape, None, "register")), extents)
