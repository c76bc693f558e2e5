"""Register tiles that are read from matrices, without a way through shared memory."""

from __future__ import annotations

from hidet import dtypes
from hidet.gpu.tile.lower.elementwise import Element, each
from hidet.gpu.tile.lower.fragment import LANES, PIECE_COLUMNS, PIECE_ROWS, Fragment, Threads, place
from hidet.gpu.tile.lower.store import is_multiple
from hidet.gpu.tile.statements import Fetch
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Load, Var
from hidet.ir.types import BufferType, PointerType, VectorType


def fetch_tile(node: Fetch, target: Fragment, threads: Threads, first: tuple[Expr, Expr] | None = None) -> s.Stmt:
    """Read the elements inside the matrix, two neighbours at once where the matrix is aligned to them.

    first: along rows and along columns, the pieces before those that `target` holds, where it is a part of the tile.
    """
    source, tile = node.source, node.target
    are_neighbours = not tile.is_transposed and target.extents[3] == 2
    in_pairs = are_neighbours and source.align >= 2 * source.dtype.nbytes and is_multiple(node.column, 2)
    extents = target.extents[:3] if in_pairs else target.extents
    zero = build.const(0, source.dtype)
    above, before = first or (build.index(0), build.index(0))
    own_row, own_column = place(tile, threads, above, before, build.index(0), build.index(0))
    row = node.row + (own_row if tile.rows > 1 else 0)
    column = node.column + (own_column if tile.columns > 1 else 0)
    # Where the thread's first element lies, and how many rows and columns of the matrix there are from it on.
    start = Var("start", PointerType(source.dtype))
    rows, columns = Var("rows_left", dtypes.i32), Var("columns_left", dtypes.i32)
    standing = [
        s.Declare(start, build.binary("add", source.pointer, row * source.row_stride + column)),
        s.Declare(rows, _left(source.rows - row, tile.rows)),
        s.Declare(columns, _left(source.columns - column, tile.columns)),
    ]

    def body(at: tuple[Expr, ...]) -> s.Stmt:
        begin = (*at, build.index(0)) if in_pairs else at
        down = begin[0] * PIECE_ROWS + begin[2] * LANES[0]
        across = begin[1] * PIECE_COLUMNS + begin[3]
        if tile.is_transposed:
            down, across = across, down
        inside = build.logical_and(build.cast(down, dtypes.i32) < rows, build.cast(across, dtypes.i32) < columns)
        offset = down * source.row_stride + across
        if not in_pairs:
            return s.Store(target.buffer, at, build.select(inside, build.load(start, offset), zero))
        two = Load(start, (offset,), VectorType(source.dtype, 2))
        return s.If(inside, s.Store(target.buffer, begin, two), s.Store(target.buffer, begin, build.broadcast(zero, 2)))

    return build.seq([*standing, each(extents, body)])


def _left(count: Expr, most: int) -> Expr:
    return build.cast(build.minimum(build.maximum(count, 0), most), dtypes.i32)


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
    upright = tile.upright
    halves = 2 if upright.rows > 1 else 1
    extents = (1, pieces, halves, 2) if upright.columns > 1 else (1, 1, halves, 1)
    shape = tuple(map(build.index, extents))
    return Fragment(tile, Var(f"{tile.name}_part", BufferType(tile.dtype, shape, None, "register")), extents)
