"""The matrix whose rows are what a filter sees of an image, one place of the filter a row: never stored, only read.

Multiplied with a filter's rows it is a convolution. Columns count the filter's taps, and within a tap the channels,
which are neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var
from hidet.tile.tensors import Gathered

# What puts a position outside of every image, also after another number of this kind is added in 32 bits.
_FAR = -(1 << 29)


@dataclass(frozen=True, slots=True, eq=False)
class PatchAxis:
    """One axis of space; all are i64 values.

    extent, stride: of the image, in elements. taps: of the filter. results: its places. Tap t of place p is at
    p * step + t * spread - before.
    """

    extent: Expr
    stride: Expr
    taps: Expr
    results: Expr
    step: Expr
    spread: Expr
    before: Expr


def patches(
    pointer: Expr, images: Expr, image_stride: Expr, axes: Sequence[PatchAxis], channels: Expr, align: int, word: DType
) -> Gathered:
    """[images * places, taps * channels] of the image at `pointer`, `image_stride` elements from one to the next.

    channels, taps and places are counted in this order, the last fastest: images, places by axis; taps by axis,
    channels. align: bytes that the address and all places of taps are known to be multiples of; channels of a tap are
    a multiple of it. word: i32, where places of elements and numbers of rows fit, or i64.
    """
    rows = images * _product([axis.results for axis in axes])
    taps = _product([axis.taps for axis in axes])
    columns = taps * channels
    row, column = build.size_var("row"), build.size_var("column")
    # Rows beyond the last one are not loaded, but places are computed for them as well.
    number = build.cast(build.minimum(row, rows - 1), word)
    base, places = _digits(number, [axis.results for axis in axes], word)
    base = base * build.cast(image_stride, word)
    tap, offset = _divide(build.cast(column, word), channels, word)
    if isinstance(taps, Const) and taps.value == 1:
        tap, offset = build.const(0, word), build.cast(column, word)
    _, numbers = _digits(tap, [axis.taps for axis in axes], word)
    row_values: list[tuple[Var, Expr]] = []
    column_values: list[tuple[Var, Expr]] = []
    inside: list[Expr] = []
    natural, far = _unsigned(word), build.const(_FAR, word)
    for axis, at, tap in zip(axes, places, numbers, strict=True):
        origin = at * build.cast(axis.step, word) - build.cast(axis.before, word)
        reach = tap * build.cast(axis.spread, word)
        base = base + origin * build.cast(axis.stride, word)
        offset = offset + reach * build.cast(axis.stride, word)
        if not inside:
            origin, reach = build.select(row < rows, origin, far), build.select(column < columns, reach, far)
        row_values.append((Var("origin", word), origin))
        column_values.append((Var("reach", word), reach))
        # One comparison for both ends: what is below zero is large without a sign.
        position = row_values[-1][0] + column_values[-1][0]
        inside.append(build.cast(position, natural) < build.cast(axis.extent, natural))
    row_values.append((Var("base", word), base))
    column_values.append((Var("offset", word), offset))
    place = build.cast(row_values[-1][0] + column_values[-1][0], build.INDEX)
    by_row, by_column = tuple(row_values), tuple(column_values)
    return Gathered(pointer, rows, columns, row, by_row, column, by_column, place, build.logical_and(*inside), align)


def _product(extents: Sequence[Expr]) -> Expr:
    result: Expr = build.index(1)
    for extent in extents:
        result = result * extent
    return result


def _digits(number: Expr, extents: Sequence[Expr], word: DType) -> tuple[Expr, list[Expr]]:
    """What is above a number's digits, and the digits, whose bases are `extents`."""
    digits: list[Expr] = []
    for extent in reversed(extents):
        number, digit = _divide(number, extent, word)
        digits.insert(0, digit)
    return number, digits


def _divide(a: Expr, b: Expr, word: DType) -> tuple[Expr, Expr]:
    """Quotient and remainder of numbers that are not negative, without a sign, because that is cheaper."""
    if isinstance(b, Const) and b.value == 1:
        return a, build.const(0, word)
    natural = _unsigned(word)
    left, right = build.cast(a, natural), build.cast(b, natural)
    return build.cast(left // right, word), build.cast(left % right, word)


def _unsigned(word: DType) -> DType:
    return dtypes.u32 if word is dtypes.i32 else dtypes.u64
