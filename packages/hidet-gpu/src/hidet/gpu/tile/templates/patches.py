"""The matrix whose rows are what a filter sees of an image, one place of the filter a row: never stored, only read.

Multiplied with a filter's rows it is a convolution. Columns count the filter's taps, and within a tap the channels,
which are neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.tile.tensors import Gathered, PatchAxis, Patches
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var

# What puts a position outside of every image, also after another number of this kind is added in 32 bits.
_FAR = -(1 << 29)


def patches(
    pointer: Expr,
    images: Expr,
    image_stride: Expr,
    axes: Sequence[PatchAxis],
    channels: Expr,
    align: int,
    *,
    of_numbers: DType,
    of_places: DType,
    stored: Expr | None = None,
    among: tuple[Expr, Expr, Expr] | None = None,
) -> Gathered:
    """[images * places, taps * channels] of the image at `pointer`, `image_stride` elements from one to the next.

    channels, taps and places are counted in this order, the last fastest: images, places by axis; taps by axis,
    channels. align: bytes that the address and all places of taps are known to be multiples of; channels of a tap are
    a multiple of it. of_numbers: i32, where numbers of rows and columns, positions in an image and distances between
    elements of a filter's place fit, or i64; of_places: the same for places of elements. stored: how many of the
    channels are in memory, a multiple of `align` as well, behind which there are zeros; None for all. among: where
    these images are some of more that lie alike, a pointer to those, their number, and which of them is the first one
    here; None where there are no others.
    """
    rows = images * _product([axis.results for axis in axes])
    taps = _product([axis.taps for axis in axes])
    columns = taps * channels
    row, column = build.size_var("row"), build.size_var("column")
    row_values, column_values = _Values(), _Values()
    # Rows beyond the last one are not loaded, but places are computed for them as well.
    number = row_values.add("number", build.cast(build.minimum(row, rows - 1), of_numbers))
    image, places = row_values.digits(number, [axis.results for axis in axes])
    if not (isinstance(taps, Const) and taps.value == 1):
        tap, channel = column_values.divide(build.cast(column, of_numbers), channels)
    else:
        tap, channel = build.const(0, of_numbers), build.cast(column, of_numbers)
    # Taps beyond the last one are columns beyond the last one.
    outermost, others = column_values.digits(tap, [axis.taps for axis in axes[1:]])
    base, offset = build.cast(image, of_places) * build.cast(image_stride, of_places), channel
    natural, far = _unsigned(of_numbers), build.const(_FAR, of_numbers)
    inside: Expr | None = None
    for axis, at, of in zip(axes, places, (outermost, *others), strict=True):
        origin = at * build.cast(axis.step, of_numbers) - build.cast(axis.before, of_numbers)
        reach = of * build.cast(axis.spread, of_numbers)
        base = base + build.cast(origin, of_places) * build.cast(axis.stride, of_places)
        offset = offset + reach * build.cast(axis.stride, of_numbers)
        if inside is None:
            is_read = column < columns
            if stored is not None:
                is_read = build.logical_and(is_read, build.cast(channel, build.INDEX) < stored)
            origin, reach = build.select(row < rows, origin, far), build.select(is_read, reach, far)
        position = row_values.add("origin", origin) + column_values.add("reach", reach)
        # One comparison for both ends: what is below zero is large without a sign.
        is_on_axis = build.cast(position, natural) < build.cast(axis.extent, natural)
        # Both sides of this conjunction are computed, because that is cheaper than a branch.
        inside = is_on_axis if inside is None else build.binary("and", inside, is_on_axis)
    assert inside is not None
    base, offset = row_values.add("base", base), column_values.add("offset", offset)
    place = build.cast(base + build.cast(offset, of_places), build.INDEX)
    by_row, by_column = tuple(row_values.pairs), tuple(column_values.pairs)
    whole, count, at = among or (pointer, images, build.index(0))
    described = Patches(whole, count, at, image_stride, tuple(axes), channels, channels if stored is None else stored)
    return Gathered(pointer, rows, columns, row, by_row, column, by_column, place, inside, align, described)


class _Values:
    """Values under construction, each a variable for the next ones."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Var, Expr]] = []

    def add(self, name: str, value: Expr) -> Expr:
        """A variable for a value."""
        self.pairs.append((Var(name, value.dtype), value))
        return self.pairs[-1][0]

    def digits(self, number: Expr, extents: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
        """What is above a number's digits, and the digits, whose bases are `extents`."""
        digits: list[Expr] = []
        for extent in reversed(extents):
            number, digit = self.divide(number, extent)
            digits.insert(0, digit)
        return number, digits

    def divide(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Quotient and remainder of numbers that are not negative, without a sign, because that is cheaper."""
        word = a.dtype
        if isinstance(b, Const) and b.value == 1:
            return a, build.const(0, word)
        natural = _unsigned(word)
        # Told to be positive, it is divided by without a test for zero.
        divisor = build.maximum(build.cast(b, natural), 1)
        quotient = self.add("quotient", build.cast(build.cast(a, natural) // divisor, word))
        return quotient, self.add("rest", a - quotient * build.cast(b, word))


def _product(extents: Sequence[Expr]) -> Expr:
    result: Expr = build.index(1)
    for extent in extents:
        result = result * extent
    return result


def _unsigned(word: DType) -> DType:
    return dtypes.u32 if word is dtypes.i32 else dtypes.u64
