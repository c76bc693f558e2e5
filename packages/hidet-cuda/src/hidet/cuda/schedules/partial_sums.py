"""Adding the parts of a product whose k is split over blocks, in the order of the parts, so that results repeat."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.types import VectorType
from hidet.tile.tensors import GTensor

THREADS = 128


def partial_sums_kernel(
    name: str,
    params: tuple[Var, ...],
    partial: Expr,
    parts: Expr,
    c: GTensor,
    lanes: int,
    *,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
) -> Function:
    """c = epilogue(sum of `partial`[parts, m, n] over its parts, row, column); `lanes` neighbours a thread divide n.

    The grid has ceil(m * n / lanes / 128) blocks of 128 threads.
    """
    block, item = build.size_var("block"), build.size_var("item")
    part, total = build.size_var("part"), Var("total", _several(partial.dtype, lanes))
    row, column = build.size_var("row"), build.size_var("column")
    per_row = c.columns // lanes
    wide, width = build.cast(item, dtypes.u64), build.cast(per_row, dtypes.u64)
    place = part * (c.rows * c.columns) + row * c.columns + column
    added = build.binary("add", total, build.load(partial, place, lanes=lanes))
    stores = [
        s.Store(
            c.pointer,
            (row * c.row_stride + column + lane,),
            epilogue(build.extract(total, lane) if lanes > 1 else total, row, column + lane),
        )
        for lane in range(lanes)
    ]
    zero = build.const(0, partial.dtype)
    body = [
        s.Declare(row, build.cast(wide // width, build.INDEX)),
        s.Declare(column, build.cast(wide % width, build.INDEX) * lanes),
        s.Declare(total, build.broadcast(zero, lanes)),
        s.For(part, build.index(0), parts, s.Assign(total, added)),
        *stores,
    ]
    thread = build.cast(intrinsic_call("cuda.thread_idx.x"), build.INDEX)
    inside = s.If(item < c.rows * per_row, build.seq(body))
    return Function(
        name, params, build.seq([s.Declare(item, block * THREADS + thread), inside]), "kernel", grid_vars=(block,)
    )


def _several(dtype: DType, lanes: int) -> DType | VectorType:
    return dtype if lanes == 1 else VectorType(dtype, lanes)
