"""Register tiles that are read from matrices, without a way through shared memory."""

from __future__ import annotations

from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Load
from hidet.ir.types import VectorType
from hidet.tile.lower.elementwise import each
from hidet.tile.lower.fragment import Fragment, Threads, place
from hidet.tile.lower.store import is_multiple
from hidet.tile.statements import Fetch


def fetch_tile(node: Fetch, target: Fragment, threads: Threads) -> s.Stmt:
    """Read the elements inside the matrix, two neighbours at once where the matrix is aligned to them."""
    source = node.source
    in_pairs = source.align >= 2 * source.dtype.nbytes and target.extents[3] == 2 and is_multiple(node.column, 2)
    extents = target.extents[:3] if in_pairs else target.extents
    zero = build.const(0, source.dtype)

    def body(at: tuple[Expr, ...]) -> s.Stmt:
        first = (*at, build.index(0)) if in_pairs else at
        inner_row, inner_column = place(node.target, threads, first[0], first[1], first[2], first[3])
        row = node.row + (inner_row if node.target.rows > 1 else 0)
        column = node.column + (inner_column if node.target.columns > 1 else 0)
        start = row * source.row_stride + column
        inside = build.logical_and(row < source.rows, column < source.columns)
        if not in_pairs:
            return s.Store(target.buffer, at, build.select(inside, build.load(source.pointer, start), zero))
        two = Load(source.pointer, (start,), VectorType(source.dtype, 2))
        return s.If(inside, s.Store(target.buffer, first, two), s.Store(target.buffer, first, build.broadcast(zero, 2)))

    return each(extents, body)
