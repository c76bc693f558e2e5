"""What tile programs work on: matrices in global memory, tiles in shared memory and tiles spread over registers."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.gpu.tile.layout import SharedLayout
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.types import PointerType


@dataclass(frozen=True, slots=True, eq=False)
class GTensor:
    """A matrix in global memory: `pointer` to element (0, 0), i64 `rows` and `columns`, elements from row to row.

    align: bytes that the address and the row stride are known to be multiples of. Columns are neighbours.
    """

    pointer: Expr
    rows: Expr
    columns: Expr
    row_stride: Expr
    align: int

    @property
    def dtype(self) -> DType:
        """Type of an element."""
        return self.pointer.dtype

    def element(self, row: Expr, column: Expr) -> Expr:
        """The value at a place inside the matrix."""
        return build.load(self.pointer, row * self.row_stride + column)


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """A matrix that is computed where it is loaded: `formula` over the i64 variables `row` and `column`.

    How operators before a product are fused into it.
    """

    dtype: DType
    rows: Expr
    columns: Expr
    row: Var
    column: Var
    formula: Expr


def computed(dtype: DType, rows: Expr, columns: Expr, value: Callable[[Expr, Expr], Expr]) -> Computed:
    """The matrix whose element (row, column) is `value(row, column)`, of type `dtype`."""
    row, column = build.size_var("row"), build.size_var("column")
    formula = value(row, column)
    if formula.type != dtype:
        raise ScheduleError(f"a computed matrix of {dtype} has elements of type {formula.type}")
    return Computed(dtype, rows, columns, row, column, formula)


@dataclass(frozen=True, slots=True, eq=False)
class PatchAxis:
    """One axis of space of what a filter sees of an image; all are i64 values.

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


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """What a `Gathered` is made of whose rows are what a filter sees of images, a place of the filter a row, images
    first; columns count the filter's taps, and within a tap its channels, which are neighbours in memory. pointer: to
    `images` in memory, `image_stride` elements from one to the next. first: the image of row 0. stored: channels that
    are in memory; those behind them are zeros.
    """

    pointer: Expr
    images: Expr
    first: Expr
    image_stride: Expr
    axes: tuple[PatchAxis, ...]
    channels: Expr
    stored: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """A matrix whose elements lie at computed places: element (row, column) `place` elements behind `pointer`.

    row_values, column_values: what depends on the i64 variable `row`, or `column`, alone: pairs of a variable and its
    value, which may mention the variables before it. Those of rows are computed once a kernel.
    place, inside: over these variables. `inside` is false for elements that are zero, which those beyond `rows` and
    `columns` have to be. It is the same for all elements of a part of `align` bytes along the columns; these are
    neighbours, and places of parts are multiples of `align`, if the address is one.
    patches: the same in the terms of images, for what copies pixels; None where it is something else.
    """

    pointer: Expr
    rows: Expr
    columns: Expr
    row: Var
    row_values: tuple[tuple[Var, Expr], ...]
    column: Var
    column_values: tuple[tuple[Var, Expr], ...]
    place: Expr
    inside: Expr
    align: int
    patches: Patches | None = None

    @property
    def dtype(self) -> DType:
        """Type of an element."""
        return self.pointer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """Matrices in global memory whose rows stand below each other, as many elements apart in all of them. A box that is
    loaded lies in one of them, but for what is below the last one."""

    parts: tuple[GTensor, ...]

    @property
    def dtype(self) -> DType:
        """Type of an element."""
        return self.parts[0].dtype

    @property
    def rows(self) -> Expr:
        """Those of all."""
        return functools.reduce(operator.add, (part.rows for part in self.parts))

    @property
    def columns(self) -> Expr:
        """Those of each."""
        return self.parts[0].columns

    @property
    def align(self) -> int:
        """As of `GTensor`, of all of them."""
        return min(part.align for part in self.parts)

    @property
    def starts(self) -> tuple[Expr, ...]:
        """Where the rows of each begin among those of all."""
        return tuple(itertools.accumulate((part.rows for part in self.parts[:-1]), initial=build.index(0)))

    @property
    def ends(self) -> tuple[Expr, ...]:
        """Where the rows of each end among those of all."""
        return (*self.starts[1:], self.rows)

    def at(self, row: Expr) -> GTensor:
        """The matrix for a box that begins at a row, with the numbers that rows have among those of all."""
        stride = self.parts[0].row_stride
        moved = [
            build.binary("add", part.pointer, start * stride * -1) if number else part.pointer
            for number, (part, start) in enumerate(zip(self.parts, self.starts, strict=True))
        ]
        pointer = build.select_part(row, self.ends, lambda number: moved[number])
        return GTensor(pointer, self.rows, self.columns, stride, self.align)


Source = GTensor | Computed | Gathered | Stacked
"""What tiles are loaded from."""


def matrices_of(source: Source) -> tuple[GTensor, ...]:
    """The matrices in global memory that a source is, or is made of."""
    if isinstance(source, Stacked):
        return source.parts
    return (source,) if isinstance(source, GTensor) else ()


def source_at(source: Source, row: Expr) -> GTensor | Computed | Gathered:
    """What a box that begins at a row is loaded from: of matrices below each other, as one of them."""
    return source.at(row) if isinstance(source, Stacked) else source


@dataclass(frozen=True, slots=True, eq=False)
class STile:
    """A tile of [rows, columns] in shared memory of the block.

    One of tf32 holds f32, which products round, unless TMA has done so on the way. room: columns that rows have room
    for and copies fill, more than their own, so that they are swizzled; 0 for no more.
    """

    name: str
    dtype: DType
    rows: int
    columns: int
    room: int = 0

    @property
    def layout(self) -> SharedLayout:
        """How it lies there."""
        return SharedLayout(self.rows, self.room or self.columns, self.dtype.nbytes)

    @property
    def stored(self) -> DType:
        """The type of elements in memory."""
        return dtypes.f32 if self.dtype is dtypes.tf32 else self.dtype


@dataclass(frozen=True, slots=True, eq=False)
class RTile:
    """A tile of [rows, columns] spread over the registers of the block's threads, as the results of products are.

    rows or columns is 1 for what is the same along that axis: the result of a reduction, or something to broadcast.
    is_transposed: whether it is spread as its transpose, the result of the product of the transposed operands, is.
    """

    name: str
    dtype: DType
    rows: int
    columns: int
    is_transposed: bool = False

    @property
    def upright(self) -> RTile:
        """The tile or its transpose, whichever is spread as results of products are."""
        return RTile(self.name, self.dtype, self.columns, self.rows) if self.is_transposed else self


def matrix(
    pointer: Var, rows: Expr | int, columns: Expr | int, row_stride: Expr | int | None = None, align: int = 0
) -> GTensor:
    """A matrix in global memory, dense unless `row_stride` is given; `align` 0 is that of an element."""
    if not isinstance(pointer.type, PointerType):
        raise ScheduleError(f"{pointer.name} has type {pointer.type}, expected a pointer to a matrix")
    columns = build.index(columns)
    stride = columns if row_stride is None else build.index(row_stride)
    return GTensor(pointer, build.index(rows), columns, stride, max(align, pointer.dtype.nbytes))
