"""Adding the partial sums of a split-k product, in the order of the splits, so that results repeat."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hidet.dtypes import DType
from hidet.gpu.schedules.early_reads import read_early
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
    word: DType,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
    weights: Collection[Var] = (),
) -> Function:
    """c = epilogue(sum of `partial`[splits, m, n] over its splits, row, column); `lanes` columns a thread divide n.

    word: counts the threads. weights: pointers to what nothing writes in a call. The grid has ceil(m * n / lanes / 128)
    blocks of 128 threads.
    """
    k, block = IRBuilder(), build.size_var("block")
    item = k.let("item", block * THREADS + thread_in_block())
    per_row = c.columns // lanes
    wide, width = build.cast(item, word), build.cast(per_row, word)
    row = k.let("row", build.cast(wide // width, build.INDEX))
    column = k.let("column", build.cast(wide % width, build.INDEX) * lanes)
    is_there = k.let("is_there", item < c.rows * per_row)
    own = [Var("own", partial.dtype) for _ in range(lanes)]
    results = [epilogue(total, row, column + lane) for lane, total in enumerate(own)]
    values = read_early(k, results, own, is_there, weights)
    with k.if_(is_there):
        sums = k.let("total", build.broadcast(build.const(0, partial.dtype), lanes))
        with k.for_range("split", splits) as split:
            offset = split * (c.rows * c.columns) + row * c.columns + column
            k.assign(sums, sums + build.load(partial, offset, lanes=lanes))
        for lane, (total, value) in enumerate(zip(own, values, strict=True)):
            k.declare(total, build.extract(sums, lane) if lanes > 1 else sums)
            k.store(c.pointer, row * c.row_stride + column + lane, value)
    return Function(name, params, k.body, "kernel", grid_vars=(block,))
