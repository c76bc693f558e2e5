"""What a matrix product is made of: operands in memory, the result as a matrix, and what is stored of a sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.tile.templates.patches import PatchAxis, patches
from hidet.gpu.tile.tensors import Gathered, GTensor
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.schedule.cost import UNKNOWN_EXTENT
from hidet.schedule.lowering import KernelScope
from hidet.schedule.task import TaskTensor

ALIGN = 16
"""Bytes that a thread copies at once at most."""
# Elements and rows below which places are computed in 32 bits; what lies beyond the last row stays below 2^31.
_SMALL = 1 << 30
_MOST_KNOWN_TAPS = 16


@dataclass(frozen=True, slots=True, eq=False)
class MatrixOperand:
    """One operand in memory: [rows, columns] of neighbours along the columns.

    is_transposed: whether its rows are the product's k (of the left one) or n (of the right one). batch_strides:
    between matrices, along each axis of the batch.
    """

    tensor: TaskTensor
    rows: Dim
    columns: Dim
    row_stride: Dim
    is_transposed: bool
    batch_strides: tuple[Dim, ...]

    @property
    def align(self) -> int:
        """Bytes that rows are known to start at multiples of, if the first one does."""
        return known_align(self.tensor.type.dtype.nbytes, self.row_stride, *self.batch_strides)

    def source(self, scope: KernelScope, pointer: Expr, numbers: Sequence[Expr], align: int) -> GTensor:
        """The matrix at place `numbers` of the batch inside a kernel. align: bytes that rows start at multiples of."""
        place = moved(scope, pointer, numbers, self.batch_strides)
        rows, columns = scope.size(self.rows, "rows"), scope.size(self.columns, "columns")
        return GTensor(place, rows, columns, scope.size(self.row_stride, "row_stride"), align)


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of space of a convolution, as `hidet.gpu.tile.templates.patches.PatchAxis` has it."""

    extent: Dim
    stride: Dim
    taps: Dim
    results: Dim
    step: int
    spread: int
    before: int


@dataclass(frozen=True, slots=True, eq=False)
class PatchOperand:
    """What a filter sees of images whose channels are neighbours, as rows (`hidet.gpu.tile.templates.patches`).

    channels: those that one filter sees. is_transposed: whether it is the right operand. batch_strides: between the
    images of different products, along each axis of the batch.
    """

    tensor: TaskTensor
    images: Dim
    image_stride: Dim
    axes: tuple[WindowAxis, ...]
    channels: Dim
    is_transposed: bool
    batch_strides: tuple[Dim, ...]

    @property
    def align(self) -> int:
        """Bytes that the channels of a tap are known to be and start at multiples of."""
        strides = [axis.stride for axis in self.axes]
        return known_align(
            self.tensor.type.dtype.nbytes, self.channels, self.image_stride, *self.batch_strides, *strides
        )

    def source(self, scope: KernelScope, pointer: Expr, numbers: Sequence[Expr], align: int) -> Gathered:
        """The matrix at place `numbers` of the batch inside a kernel. align: bytes that taps start at multiples of."""
        axes = [
            PatchAxis(
                scope.size(axis.extent, "extent"),
                scope.size(axis.stride, "stride"),
                # Divisions by numbers that the kernel knows are cheap, and filters have few sizes.
                build.index(axis.taps) if _is_known(axis.taps) else scope.size(axis.taps, "taps"),
                scope.size(axis.results, "results"),
                scope.argument(axis.step, "step"),
                scope.size(axis.spread, "spread"),
                scope.size(axis.before, "before"),
            )
            for axis in self.axes
        ]
        place = moved(scope, pointer, numbers, self.batch_strides)
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

    factors: the type in which matrix units multiply the elements; None where these are multiplied without them.
    batches: extents of the axes of the batch, the fastest last; none where there is one matrix. value: an element of
    the result from `total`, the sum, over the result's axes, of which `batch_axes`, `row_axis` and `column_axis` count
    matrices, rows and columns; the others are 0. When `column_axis` is the axis of the batch, the columns of a matrix
    follow those of the one before.
    """

    a: MatrixOperand | PatchOperand
    b: MatrixOperand | PatchOperand
    batches: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    factors: DType | None
    total: Var
    value: Expr
    axes: tuple[Var, ...]
    batch_axes: tuple[Var, ...]
    row_axis: Var
    column_axis: Var
    row_stride: Dim
    batch_strides: tuple[Dim, ...]
    result: TensorType

    @property
    def batch(self) -> Dim:
        """How many matrices there are."""
        return dims.product(self.batches)

    @property
    def uses_matrix_units(self) -> bool:
        """Whether elements are multiplied by matrix units."""
        return self.factors is not None

    @property
    def is_side_by_side(self) -> bool:
        """Whether the columns of a matrix follow those of the one before."""
        return self.column_axis in self.batch_axes

    @property
    def result_align(self) -> int:
        """Bytes that rows of the result start at multiples of, if the first one does."""
        return known_align(self.result.dtype.nbytes, self.row_stride, *self.batch_strides)

    def place(self, numbers: Sequence[Expr], row: Expr, column: Expr, n: Expr) -> dict[Var, Expr]:
        """The axes of `value` at a place of the matrix at place `numbers` of the batch, whose columns are `n`."""
        places: dict[Var, Expr] = dict.fromkeys(self.axes, build.index(0))
        places.update(zip(self.batch_axes, numbers, strict=True))
        places[self.row_axis] = row
        places[self.column_axis] = numbers[0] * n + column if self.is_side_by_side else column
        return places


def _is_known(taps: Dim) -> bool:
    """Whether kernels are made for a number of taps."""
    return isinstance(taps, int) and taps <= _MOST_KNOWN_TAPS


def known_align(nbytes: int, *extents: Dim) -> int:
    """The largest number of bytes, up to 16, that is known to divide all extents of elements."""
    return math.gcd(ALIGN, *[dims.divisibility(extent) * nbytes for extent in extents])


def moved(scope: KernelScope, pointer: Expr, numbers: Sequence[Expr], strides: Sequence[Dim]) -> Expr:
    """`pointer` moved by so many strides along each axis."""
    for number, stride in zip(numbers, strides, strict=True):
        if stride != 0:
            pointer = build.binary("add", pointer, number * scope.size(stride, "batch_stride"))
    return pointer


def likely(dim: Dim) -> int:
    """The value of a size, or one that it may have; symbols without a hint count as UNKNOWN_EXTENT or the nearest."""
    values = {}
    for entry in dims.symbols(dim):
        typical = max(entry.lower, UNKNOWN_EXTENT // entry.divisor * entry.divisor)
        typical = typical if entry.upper is None else min(typical, entry.upper)
        values[entry.name] = typical if entry.hint is None else entry.hint
    return dims.evaluate(dim, values) or 1
