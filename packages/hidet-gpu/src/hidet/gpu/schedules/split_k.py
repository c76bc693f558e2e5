"""Adding the partial sums of a split-k product, in the order of the splits, so that results repeat."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.gpu.schedules.exchange import thread_in_block
from hidet.gpu.tile.tensors import GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function

THREADS = 128


def split_k_sum_kernel(
    name: str,
    params: tuple[Var, ...],
    partial: Expr,
    splits: Expr,
    c: GTensor,
    lanes: int,
    *,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
) -> Function:
    """c = epilogue(sum of `partial`[splits, m, n] over its splits, row, column); `lanes` columns a thread divide n.

    The grid has ceil(m * n / lanes / 128) blocks of 128 threads.
    """
    k, block = IRBuilder(), build.size_var("block")
    item = k.let("item", block * THREADS + thread_in_block())
    per_row = c.columns // lanes
    with k.if_(item < c.rows * per_row):
        wide, width = build.cast(item, dtypes.u64), build.cast(per_row, dtypes.u64)
        row = k.let("row", build.cast(wide // width, build.INDEX))
        column = k.let("column", build.cast(wide % width, build.INDEX) * lanes)
        total = k.let("total", build.broadcast(build.const(0, partial.dtype), lanes))
        with k.for_range("split", splits) as split:
            offset = split * (c.rows * c.columns) + row * c.columns + column
            k.assign(total, total + build.load(partial, offset, lanes=lanes))
        for lane in range(lanes):
            value = build.extract(total, lane) if lanes > 1 else total
            k.store(c.pointer, row * c.row_stride + column + lane, epilogue(value, row, column + lane))
    return Function(name, params, k.body, "kernel", grid_vars=(block,))
