"""What a matrix product is made of: operands in memory, the result as a matrix, and what is stored of a sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.tile.templates.patches import patches
from hidet.gpu.tile.tensors import Gathered, GTensor, PatchAxis, Stacked
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.schedule.cost import UNKNOWN_EXTENT
from hidet.schedule.lowering import KernelScope
from hidet.schedule.task import TaskTensor

ALIGN = 16
"""Bytes that a thread copies at once at most."""
SMALL = 1 << 29
"""Numbers up to which kernels count in 32 bits: sums of three, and what lies beyond the last row, stay below 2^31."""
FLOATS_OF_8_BITS = (dtypes.f8e4m3, dtypes.f8e5m2)
FACTORS_OF_8_BITS = (*FLOATS_OF_8_BITS, dtypes.i8)
"""What matrix units multiply where rows of both operands lie along k."""
_MOST_KNOWN_TAPS = 16


@dataclass(frozen=True, slots=True, eq=False)
class MatrixOperand:
    """One operand in memory: [rows, columns] of neighbours along the columns.

    is_transposed: whether its rows are the product's k (of the left one) or n (of the right one). batch_strides:
    between matrices, along each axis of the batch. below: others whose rows stand below its own, each in its own
    memory; `rows` are those of all. Tiles lie in one of them.
    """

    tensor: TaskTensor
    rows: Dim
    columns: Dim
    row_stride: Dim
    is_transposed: bool
    batch_strides: tuple[Dim, ...]
    below: tuple[TaskTensor, ...] = ()

    @property
    def tensors(self) -> tuple[TaskTensor, ...]:
        """All that it is made of."""
        return (self.tensor, *self.below)

    @property
    def align(self) -> int:
        """Bytes that rows are known to start at multiples of, if the first one does."""
        return known_align(self.tensor.type.dtype.nbytes, self.row_stride, *self.batch_strides)

    def is_cut_by(self, rows: int) -> bool:
        """Whether each of the matrices below each other begins where a tile of so many rows does."""
        return all(dims.divisibility(tensor.type.shape[0]) % rows == 0 for tensor in self.tensors[:-1])

    @property
    def unproven_sizes(self) -> tuple[Dim, ...]:
        """Sizes that kernels count in 32 bits where they are at most SMALL, which is not known: none of a matrix."""
        return ()

    def source(
        self, scope: KernelScope, pointers: Sequence[Expr], numbers: Sequence[Expr], align: int, *, is_small: bool
    ) -> GTensor | Stacked:
        """The matrix at place `numbers` of the batch inside a kernel. pointers: to each of `tensors`. align: bytes that
        rows start at multiples of."""
        columns, stride = scope.size(self.columns, "columns"), scope.size(self.row_stride, "row_stride")

        def matrix(pointer: Expr, rows: Dim) -> GTensor:
            place = moved(scope, pointer, numbers, self.batch_strides)
            return GTensor(place, scope.size(rows, "rows"), columns, stride, align)

        if not self.below:
            return matrix(pointers[0], self.rows)
        extents = [tensor.type.shape[0] for tensor in self.tensors]
        return Stacked(tuple([matrix(*part) for part in zip(pointers, extents, strict=True)]))


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of space of a convolution, as `hidet.gpu.tile.tensors.PatchAxis` has it. after: how far beyond the end
    of the image a filter may reach."""

    extent: Dim
    stride: Dim
    taps: Dim
    results: Dim
    step: int
    spread: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, eq=False)
class PatchOperand:
    """What a filter sees of images whose channels are neighbours, as rows (`hidet.gpu.tile.templates.patches`).

    channels: those that one filter sees. is_transposed: whether it is the right operand. batch_strides: between the
    images of different products, along each axis of the batch. stored: channels that are in memory, with zeros behind
    them; None for all.
    """

    tensor: TaskTensor
    images: Dim
    image_stride: Dim
    axes: tuple[WindowAxis, ...]
    channels: Dim
    is_transposed: bool
    batch_strides: tuple[Dim, ...]
    stored: Dim | None = None

    @property
    def tensors(self) -> tuple[TaskTensor, ...]:
        """All that it is made of."""
        return (self.tensor,)

    @property
    def align(self) -> int:
        """Bytes that the channels of a tap in memory are known to be and start at multiples of."""
        nbytes = self.tensor.type.dtype.nbytes
        return known_align(nbytes, self.channels if self.stored is None else self.stored, *self._strides)

    @property
    def pixel_align(self) -> int:
        """Bytes that pixels are known to start at multiples of."""
        return known_align(self.tensor.type.dtype.nbytes, *self._strides)

    @property
    def _strides(self) -> tuple[Dim, ...]:
        return (self.image_stride, *self.batch_strides, *(axis.stride for axis in self.axes))

    @property
    def is_of_one_image(self) -> bool:
        """Whether each product has the next one of the tensor's images."""
        return self.images == 1 and self.batch_strides == (self.image_stride,)

    @property
    def unproven_sizes(self) -> tuple[Dim, ...]:
        """Sizes that kernels count in 32 bits where they are at most SMALL, which is not known."""
        rows = dims.product([self.images, *(axis.results for axis in self.axes)])
        columns = dims.product([self.channels, *(axis.taps for axis in self.axes)])
        positions = [axis.extent + axis.before + axis.taps * axis.spread for axis in self.axes]
        offset = self.channels
        for axis in self.axes:
            offset = offset + (axis.taps - 1) * axis.spread * axis.stride
        return tuple([size for size in (rows, columns, offset, *positions) if dims.prove_le(size, SMALL) is not True])

    def source(
        self, scope: KernelScope, pointers: Sequence[Expr], numbers: Sequence[Expr], align: int, *, is_small: bool
    ) -> Gathered:
        """The matrix at place `numbers` of the batch inside a kernel. pointers: to each of `tensors`. align: bytes that
        taps start at multiples of. is_small: whether `unproven_sizes` are at most SMALL."""
        (pointer,) = pointers
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
        stored = None if self.stored is None else scope.size(self.stored, "stored")
        of_numbers = dtypes.i32 if is_small else dtypes.i64
        of_places = dtypes.i32 if is_small and self._has_small_places else dtypes.i64
        among = (pointer, scope.size(self.tensor.type.shape[0], "images"), numbers[0]) if self.is_of_one_image else None
        return patches(
            place,
            images,
            image_stride,
            axes,
            channels,
            align,
            of_numbers=of_numbers,
            of_places=of_places,
            stored=stored,
            among=among,
        )

    @property
    def _has_small_places(self) -> bool:
        """Whether places of elements are known to fit 32 bits."""
        reach = (self.images - 1) * self.image_stride
        for axis in self.axes:
            reach = reach + (axis.extent + axis.before + axis.taps * axis.spread) * axis.stride
        return dims.prove_le(reach, 2 * SMALL) is True


@dataclass(frozen=True, slots=True, eq=False)
class BlockScales:
    """Scales of blocks of a product's operands: a[m / rows, k / size] and b[k / size, n / columns]."""

    a: TaskTensor
    b: TaskTensor
    rows: int
    columns: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product [batch, m, k] x [batch, k, n] and what is stored of it.

    factors: the type in which matrix units multiply the elements; None where these are multiplied without them.
    is_promoted: whether matrix units that keep fewer digits of sums than f32 has may add up the products of one step
    alone. twin: a matrix like `b`, whose product with `a` `value` takes as well, as `twin_total`; None for none.
    scales: what the products of a step are multiplied with; None for nothing.
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
    is_promoted: bool = False
    scales: BlockScales | None = None
    twin: MatrixOperand | None = None
    twin_total: Var | None = None

    @property
    def rights(self) -> tuple[MatrixOperand | PatchOperand, ...]:
        """What `a` is multiplied with."""
        return (self.b,) if self.twin is None else (self.b, self.twin)

    @property
    def totals(self) -> tuple[Var, ...]:
        """The sums that `value` takes, one of each of `rights`."""
        return (self.total,) if self.twin_total is None else (self.total, self.twin_total)

    @property
    def batch(self) -> Dim:
        """How many matrices there are."""
        return dims.product(self.batches)

    @property
    def uses_matrix_units(self) -> bool:
        """Whether elements are multiplied by matrix units."""
        return self.factors is not None

    @property
    def is_along_k(self) -> bool:
        """Whether rows of both operands lie along k."""
        return not self.a.is_transposed and self.b.is_transposed

    @property
    def is_aligned(self) -> bool:
        """Whether rows of both operands start at multiples of 16 bytes, if the first ones do."""
        return self.a.align == self.b.align == ALIGN

    @property
    def is_side_by_side(self) -> bool:
        """Whether the columns of a matrix follow those of the one before."""
        return self.column_axis in self.batch_axes

    @property
    def unproven_sizes(self) -> tuple[Dim, ...]:
        """Sizes that kernels count in 32 bits where they are at most SMALL, which is not known."""
        return tuple(dict.fromkeys((*self.a.unproven_sizes, *self.b.unproven_sizes)))

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
