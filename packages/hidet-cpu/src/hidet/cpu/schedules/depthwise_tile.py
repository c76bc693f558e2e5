"""Tiles of a depthwise convolution: pixels x vectors of channels, summed over taps in registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from hidet import dims
from hidet.cpu.schedules.gemm_lanes import leading_lanes
from hidet.cpu.schedules.gemm_tile import EDGE_ROWS, TileShape, multiply_add
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.stmt import Assign, Declare, For, If, Return, Stmt, Store
from hidet.ir.types import PointerType
from hidet.schedule.shared_functions import share_functions


def choose_tile(
    shape: TileShape, left: Expr, vectors: Expr, counts: Sequence[int], body: Callable[[int, int], Stmt]
) -> Stmt:
    """The largest tile of at most `left` pixels, with exactly `vectors` vectors (0: the rest after whole ones).

    body: what to do for a tile of so many pixels and vectors; counts: numbers of vectors there are tiles of, ascending.
    """

    def by_pixels(many: int) -> Stmt:
        stmt: Stmt = body(EDGE_ROWS[-1], many)
        for pixels in (*reversed(EDGE_ROWS[:-1]), shape.rows):
            stmt = If(left >= pixels, body(pixels, many), stmt)
        return stmt

    stmt = by_pixels(counts[-1])
    for many in counts[:-1]:
        stmt = If(build.equal(vectors, many), by_pixels(many), stmt)
    return stmt


def tile_functions(shape: TileShape, channels: Dim, is_ragged: bool) -> dict[tuple[int, int], Function]:
    """Functions that sum one tile, by its pixels and vectors of channels; 0 vectors are the rest after whole ones."""
    counts = (shape.vectors,) if dims.divisibility(channels) % shape.columns == 0 else range(1, shape.vectors + 1)
    listed = (*counts, 0) if is_ragged else tuple(counts)
    return {
        (pixels, many): function
        for many in listed
        for pixels, function in zip((shape.rows, *EDGE_ROWS), _tile_group(shape, many), strict=True)
    }


@functools.cache
def _tile_group(shape: TileShape, vectors: int) -> tuple[Function, ...]:
    """The functions for tiles of so many vectors, most pixels first."""
    return share_functions([_tile_function(shape, pixels, vectors) for pixels in (shape.rows, *EDGE_ROWS)])


def _tile_function(shape: TileShape, pixels: int, vectors: int) -> Function:
    """Accumulators of `pixels` x `vectors`; with 0 vectors, of one vector of which only the first lanes exist."""
    index, pointer = build.INDEX, PointerType(shape.dtype)
    image, weight = Var("image", pointer), Var("weight", pointer)
    buffer = Var("buffer", PointerType(shape.dtype, "local"))
    names = ("pixel_stride", "rows", "row_stride", "taps", "tap_stride", "weight_row_stride", "weight_stride", "rest")
    pixel_stride, rows, row_stride, taps, tap_stride, weight_row, weight_tap, rest = (Var(n, index) for n in names)
    stmts: list[Stmt] = []
    mask: Expr | None = None
    if vectors == 0:
        declared, mask = leading_lanes(rest, shape.lanes)
        stmts += declared
    count = max(1, vectors)
    accumulators = [[Var(f"acc{i}_{j}", shape.vector) for j in range(count)] for i in range(pixels)]
    zero = build.broadcast(build.const(0, shape.dtype), shape.lanes)
    stmts += [Declare(acc, zero) for line in accumulators for acc in line]
    row, tap = Var("row", index), Var("tap", index)
    place, weight_place = Var("place", pointer), Var("weight_place", pointer)
    inner: list[Stmt] = [
        Declare(place, image + (row * row_stride + tap * tap_stride)),
        Declare(weight_place, weight + (row * weight_row + tap * weight_tap)),
    ]
    factors = [Var(f"w{j}", shape.vector) for j in range(count)]
    for j, factor in enumerate(factors):
        inner.append(Declare(factor, build.load(weight_place, j * shape.lanes, lanes=shape.lanes, mask=mask)))
    for i, line in enumerate(accumulators):
        for j, acc in enumerate(line):
            offset = pixel_stride * i + j * shape.lanes
            element = build.load(place, offset, lanes=shape.lanes, mask=mask)
            inner.append(Assign(acc, multiply_add(element, factors[j], acc)))
    zero_index = build.index(0)
    stmts.append(For(row, zero_index, rows, For(tap, zero_index, taps, build.seq(inner))))
    for i, line in enumerate(accumulators):
        stmts += [Store(buffer, (build.index(i * shape.columns + j * shape.lanes),), acc) for j, acc in enumerate(line)]
    parameters = (
        image, pixel_stride, rows, row_stride, taps, tap_stride, weight, weight_row, weight_tap, buffer, rest,
    )  # fmt: skip
    body = build.seq([*stmts, Return(zero_index)])
    return Function(
        f"tile_{pixels}x{vectors}",
        parameters,
        body,
        "device",
        result=index,
        attributes=APART,
    )
