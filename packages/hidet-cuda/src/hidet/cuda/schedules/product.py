"""What a matrix product is made of: operands in memory, the result as a matrix, and what is stored of a sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.schedule.lowering import KernelScope
from hidet.schedule.task import TaskTensor
from hidet.tile.templates.patches import PatchAxis, patches
from hidet.tile.tensors import Gathered, GTensor

ALIGN = 16
"""Bytes that a thread copies at once at most."""
# Elements and rows below which places are computed in 32 bits; what lies beyond the last row stays below 2^31.
_SMALL = 1 << 30
_MOST_KNOWN_TAPS = 16


@dataclass(frozen=True, slots=True, eq=False)
class MatrixOperand:
    """One operand in memory: [rows, columns] of neighbours along the columns; `batch_stride` between matrices.

    is_transposed: whether its rows are the product's k (of the left one) or n (of the right one).
    """

    tensor: TaskTensor
    rows: Dim
    columns: Dim
    row_stride: Dim
    is_transposed: bool
    batch_stride: Dim

    @property
    def align(self) -> int:
        """Bytes that rows start at multiples of, if the first one does; those of an element for unknown sizes."""
        return known_align(self.tensor.type.dtype.nbytes, self.row_stride, self.batch_stride)

    def source(self, scope: KernelScope, pointer: Expr, number: Expr, align: int) -> GTensor:
        """Matrix `number` inside a kernel. align: bytes that rows start at multiples of."""
        place = moved(scope, pointer, number, self.batch_stride)
        rows, columns = scope.size(self.rows, "rows"), scope.size(self.columns, "columns")
        return GTensor(place, rows, columns, scope.size(self.row_stride, "row_stride"), align)


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of space of a convolution, as `hidet.tile.templates.patches.PatchAxis` has it."""

    extent: Dim
    stride: Dim
    taps: Dim
    results: Dim
    step: int
    spread: int
    before: int


@dataclass(frozen=True, slots=True, eq=False)
class PatchOperand:
    """What a filter sees of images whose channels are neighbours, as rows (`hidet.tile.templates.patches`).

    channels: those that one filter sees. is_transposed: whether it is the right operand. batch_stride: between the
    images of different products.
    """

    tensor: TaskTensor
    images: Dim
    image_stride: Dim
    axes: tuple[WindowAxis, ...]
    channels: Dim
    is_transposed: bool
    batch_stride: Dim

    @property
    def align(self) -> int:
        """Bytes that the channels of a tap are and start at multiples of; those of an element for unknown sizes."""
        strides = [axis.stride for axis in self.axes]
        return known_align(self.tensor.type.dtype.nbytes, self.channels, self.image_stride, self.batch_stride, *strides)

    def source(self, scope: KernelScope, pointer: Expr, number: Expr, align: int) -> Gathered:
        """Matrix `number` inside a kernel. align: bytes that taps start at multiples of."""
        axes = [
            PatchAxis(
                scope.size(axis.extent, "extent"),
                scope.size(axis.stride, "stride"),
                # Divisions by numbers that the kernel knows are cheap, and filters have few sizes.
                build.index(axis.taps) if _is_known(axis.taps) else scope.size(axis.taps, "taps"),
                scope.size(axis.results, "results"),
                scope.size(axis.step, "step"),
                scope.size(axis.spread, "spread"),
                scope.size(axis.before, "before"),
            )
            for axis in self.axes
        ]
        place = moved(scope, pointer, number, self.batch_stride)
        images, image_stride = scope.size(self.images, "images"), scope.size(self.image_stride, "image_stride")
        channels = scope.size(self.channels, "channels")
        of_rows, of_image = (dtypes.i32 if self._is_small(count) else dtypes.i64 for count in (self.images, 1))
        return patches(place, images, image_stride, axes, channels, align, of_rows=of_rows, of_image=of_image)

    def _is_small(self, images: Dim) -> bool:
        """Whether rows, columns and places of that many images fit 32 bits."""
        reach = (images - 1) * self.image_stride
        for axis in self.axes:
            reach = reach + (axis.extent + axis.before + axis.taps * axis.spread) * axis.stride
        rows = dims.product([images, *(axis.results for axis in self.axes)])
        columns = dims.product([self.channels, *(axis.taps for axis in self.axes)])
        return all(dims.prove_le(size, _SMALL) is True for size in (reach, rows, columns))


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product [batch, m, k] x [batch, k, n] and what is stored of it.

    value: an element of the result from `total`, the sum, over the result's axes, of which `batch_axis`, `row_axis` and
    `column_axis` count matrices, rows and columns; the others are 0. When `batch_axis` is `column_axis`, the columns
    of a matrix follow those of the one before.
    """

    a: MatrixOperand | PatchOperand
    b: MatrixOperand | PatchOperand
    batch: Dim
    m: Dim
    n: Dim
    k: Dim
    total: Var
    value: Expr
    axes: tuple[Var, ...]
    batch_axis: Var | None
    row_axis: Var
    column_axis: Var
    row_stride: Dim
    batch_stride: Dim
    result: TensorType

    @property
    def result_align(self) -> int:
        """Bytes that rows of the result start at multiples of, if the first one does."""
        return known_align(self.result.dtype.nbytes, self.row_stride, self.batch_stride)

    def place(self, number: Expr, row: Expr, column: Expr, n: Expr) -> dict[Var, Expr]:
        """The axes of `value` at a place of matrix `number`, whose columns are `n`."""
        places: dict[Var, Expr] = dict.fromkeys(self.axes, build.index(0))
        if self.batch_axis is not None and self.batch != 1:
            places[self.batch_axis] = number
        places[self.row_axis] = row
        follows = self.batch_axis is self.column_axis and self.batch != 1
        places[self.column_axis] = number * n + column if follows else column
        return places


def _is_known(taps: Dim) -> bool:
    """Whether kernels are made for a number of taps."""
    return isinstance(taps, int) and taps <= _MOST_KNOWN_TAPS


def known_align(nbytes: int, *extents: Dim) -> int:
    """The largest number of bytes, up to 16, that divides all extents of elements; an element's for unknown ones."""
    known = [extent * nbytes for extent in extents if isinstance(extent, int)]
    return math.gcd(ALIGN, *known) if len(known) == len(extents) else nbytes


def moved(scope: KernelScope, pointer: Expr, number: Expr, stride: Dim) -> Expr:
    """`pointer` moved by `number` strides."""
    return pointer if stride == 0 else build.binary("add", pointer, number * scope.size(stride, "batch_stride"))


def likely(dim: Dim) -> int:
    """The value of a size, or one that it may have."""
    return dim if isinstance(dim, int) else dims.hint_value(dim) or 1
