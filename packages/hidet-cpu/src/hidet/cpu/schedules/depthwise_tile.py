"""Tiles of a depthwise convolution: pixels x vectors of channels, summed over taps in registers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack

from hidet import dims
from hidet.cpu.schedules.gemm_lanes import leading_lanes
from hidet.cpu.schedules.gemm_tile import EDGE_ROWS, TileBody, TileShape, multiply_add
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.types import PointerType
from hidet.schedule.shared_functions import share_functions


def choose_tile(
    k: IRBuilder, shape: TileShape, left: Expr, vectors: Expr, counts: Sequence[int], body: TileBody
) -> None:
    """The largest tile of at most `left` pixels, with exactly `vectors` vectors (0: the rest after whole ones).

    body: what to do for a tile of so many pixels and vectors; counts: numbers of vectors there are tiles of, ascending.
    """

    def by_pixels(many: int) -> None:
        with ExitStack() as fewer:
            for pixels in (shape.rows, *EDGE_ROWS[:-1]):
                with k.if_(left >= pixels):
                    body(pixels, many)
                fewer.enter_context(k.else_())
            body(EDGE_ROWS[-1], many)

    *others, most = counts
    with ExitStack() as more:
        for many in reversed(others):
            with k.if_(build.equal(vectors, many)):
                by_pixels(many)
            more.enter_context(k.else_())
        by_pixels(most)


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
    k, lanes, count = IRBuilder(), shape.lanes, max(1, vectors)
    mask = leading_lanes(k, rest, lanes) if vectors == 0 else None
    zero = build.broadcast(build.const(0, shape.dtype), lanes)
    accumulators = [k.let_each(f"acc{i}_", [zero] * count) for i in range(pixels)]
    with k.for_range("row", rows) as row, k.for_range("tap", taps) as tap:
        place = k.let("place", image + (row * row_stride + tap * tap_stride))
        weight_place = k.let("weight_place", weight + (row * weight_row + tap * weight_tap))
        loads = [build.load(weight_place, j * lanes, lanes=lanes, mask=mask) for j in range(count)]
        factors = k.let_each("w", loads)
        for i, line in enumerate(accumulators):
            for j, (acc, factor) in enumerate(zip(line, factors, strict=True)):
                element = build.load(place, pixel_stride * i + j * lanes, lanes=lanes, mask=mask)
                k.assign(acc, multiply_add(element, factor, acc))
    for i, line in enumerate(accumulators):
        for j, acc in enumerate(line):
            k.store(buffer, i * shape.columns + j * lanes, acc)
    k.return_(build.index(0))
    parameters = (
        image, pixel_stride, rows, row_stride, taps, tap_stride, weight, weight_row, weight_tap, buffer, rest,
    )  # fmt: skip
    return Function(f"tile_{pixels}x{vectors}", parameters, k.body, "device", result=index, attributes=APART)
