"""Matrix products: `matmul`, `linear` and convolutions with filters of one pixel.

16-bit floats are multiplied on tensor cores by the tile program of core, f32 and f64 by a kernel without matrix units.

On tensor cores each program has two kernels: one for operands whose addresses are multiples of 16 bytes, with copies of
16 bytes, and one for others. Which one runs is decided when it is called, because views may start anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.cuda.schedules.finish import finished_value, single_axis, single_stride
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.cuda.schedules.simt import THREADS, TILE, simt_kernel
from hidet.dims import Dim
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.stmt import If, Launch
from hidet.ir.visit import accesses
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task, TaskTensor
from hidet.tile.lower.kernel import lower_kernel
from hidet.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.tile.tensors import GTensor

if TYPE_CHECKING:
    from hidet.target import Target

_ALIGN = 16
_MATRIX_UNITS = (dtypes.f16, dtypes.bf16)
_TOTALS = {dtypes.f16: dtypes.f32, dtypes.bf16: dtypes.f32, dtypes.f32: dtypes.f32, dtypes.f64: dtypes.f64}
"""The types of products, and those in which they are summed."""
_WIDE_BY_FOLD = 1 << 14
"""Results of f32 and f64 below which a warp an element keeps more of the device busy than tiles."""
# Tiles by falling size; a smaller one is taken while a larger one leaves multiprocessors idle.
_TILES = (
    MatmulTiles(128, 128, 32, 4, (2, 4)),
    MatmulTiles(64, 64, 64, 3, (2, 2)),
    MatmulTiles(32, 64, 64, 4, (1, 4)),
)
_FEW_ROWS = MatmulTiles(16, 64, 64, 4, (1, 4))
_BLOCKS = 132


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


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product [batch, m, k] x [batch, k, n] and what is stored of it.

    value: an element of the result from `total`, the sum, over the result's axes, of which `batch_axis`, `row_axis` and
    `column_axis` count matrices, rows and columns; the others are 0.
    """

    a: MatrixOperand
    b: MatrixOperand
    batch: Dim
    m: Dim
    n: Dim
    total: Var
    value: Expr
    axes: tuple[Var, ...]
    batch_axis: Var | None
    row_axis: Var
    column_axis: Var
    row_stride: Dim
    batch_stride: Dim


class MatmulRule:
    """Schedules products of f16 or bf16 matrices with one result, whose rows and columns lie regularly."""

    def match(self, task: Task, target: Target) -> Match | None:
        """None for other types, for operands that are not matrices in memory, and for results that are no matrix."""
        assert task.anchor is not None
        if any(prologue is not None for prologue in task.prologues) or len(task.outputs) != 1:
            return None
        left, right = task.anchor_inputs[:2]
        if left is None or right is None or left.type.dtype not in _TOTALS:
            return None
        if left.type.dtype != right.type.dtype:
            return None
        product = _product(task, left, right)
        return None if product is None else Match(task, product)

    def space(self, match: Match, target: Target) -> SearchSpace:
        """Nothing to tune yet."""
        return SearchSpace()

    def default(self, match: Match, target: Target) -> Params:
        """No parameters."""
        return {}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """One kernel for aligned operands and one for others."""
        product: Product = match.data
        builder = ProgramBuilder(match.task)
        if product.a.tensor.type.dtype not in _MATRIX_UNITS:
            builder.run(_launch(builder, match.task, product, None, [1, 1]))
            return builder.program()
        tiles = choose_tiles(product)
        pointers = [builder.pointers[operand.tensor.operand] for operand in (product.a, product.b)]
        align = [_stride_align(operand) for operand in (product.a, product.b)]
        if max(align) <= pointers[0].dtype.nbytes:
            builder.run(_launch(builder, match.task, product, _unaligned(tiles), [pointers[0].dtype.nbytes] * 2))
            return builder.program()
        bits: Expr = Bitcast(pointers[0], dtypes.i64)
        bits = build.binary("or", bits, Bitcast(pointers[1], dtypes.i64))
        is_aligned = build.equal(build.binary("and", bits, _ALIGN - 1), 0)
        fast = _launch(builder, match.task, product, tiles, align)
        slow = _launch(builder, match.task, product, _unaligned(tiles), [pointers[0].dtype.nbytes] * 2)
        builder.run(If(is_aligned, fast, slow))
        return builder.program()


def choose_tiles(product: Product) -> MatmulTiles:
    """The largest tile that gives every multiprocessor a block; the smallest one when none does."""
    m, n, batch = (_likely(dim) for dim in (product.m, product.n, product.batch))
    if m <= _FEW_ROWS.m:
        return _FEW_ROWS
    for tiles in _TILES:
        if batch * -(-m // tiles.m) * -(-n // tiles.n) >= _BLOCKS and m > tiles.m // 2:
            return tiles
    return _TILES[-1]


def _unaligned(tiles: MatmulTiles) -> MatmulTiles:
    """Tiles for elements that are copied one by one: these pass through registers, of which large tiles leave none."""
    return MatmulTiles(min(tiles.m, 32), 32, 32, 2, (1, 4))


def _likely(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dims.hint_value(dim) or 1


def _stride_align(operand: MatrixOperand) -> int:
    """Bytes that rows start at multiples of, if the first one does; those of an element where sizes are not known."""
    nbytes = operand.tensor.type.dtype.nbytes
    strides = (operand.row_stride, operand.batch_stride)
    known = [stride * nbytes for stride in strides if isinstance(stride, int)]
    return math.gcd(_ALIGN, *known) if len(known) == len(strides) else nbytes


def _launch(
    builder: ProgramBuilder, task: Task, product: Product, tiles: MatmulTiles | None, align: Sequence[int]
) -> Launch:
    """The kernel for operands whose addresses are multiples of `align`, and its launch.

    tiles: of the program for matrix units; None is the kernel without.
    """
    scope = KernelScope()
    epilogue = task.epilogues[0]
    operands = dict.fromkeys((product.a.tensor.operand, product.b.tensor.operand, *_read_operands(product)))
    pointers = {operand: scope.pointer(operand.name, operand.dtype) for operand in operands}
    result = scope.pointer("result", epilogue.result.dtype)
    number = build.size_var("matrix")

    def matrix(operand: MatrixOperand, nbytes: int) -> GTensor:
        pointer = pointers[operand.tensor.operand]
        stride = scope.size(operand.batch_stride, "batch_stride")
        place: Expr = pointer if operand.batch_stride == 0 else build.binary("add", pointer, number * stride)
        rows, columns = scope.size(operand.rows, "rows"), scope.size(operand.columns, "columns")
        return GTensor(place, rows, columns, scope.size(operand.row_stride, "row_stride"), nbytes)

    a, b = (matrix(operand, nbytes) for operand, nbytes in zip((product.a, product.b), align, strict=True))
    m, n = scope.size(product.m, "m"), scope.size(product.n, "n")
    place: Expr = result
    if product.batch_stride != 0:
        place = build.binary("add", result, number * scope.size(product.batch_stride, "batch_stride"))
    c = GTensor(place, m, n, scope.size(product.row_stride, "row_stride"), result.dtype.nbytes)
    lowering = Lowering(scope, {})
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    for operand in _read_operands(product):
        lowering.buffer(operand, pointers[operand], strides[operand])
    reads = bool(_read_operands(product))

    def finish(total: Expr, row: Expr, column: Expr) -> Expr:
        bindings: dict[Var, Expr] = dict.fromkeys(product.axes, build.index(0))
        bindings.update({product.row_axis: row, product.column_axis: column, product.total: total})
        if product.batch_axis is not None and product.batch != 1:
            bindings[product.batch_axis] = number
        value = lowering.resolve(product.value, bindings)
        # Parts of a tile beyond the matrix are computed like the others, but must not be read for.
        inside = build.logical_and(row < m, column < n)
        return build.select(inside, value, build.const(0, value.dtype)) if reads else value

    turned_a, turned_b = product.a.is_transposed, product.b.is_transposed
    if tiles is None:
        function = simt_kernel(
            builder.name(),
            (),
            a,
            b,
            c,
            a_is_transposed=turned_a,
            b_is_transposed=turned_b,
            epilogue=finish,
            accumulator=product.total.dtype,
        )
        high = wide = TILE
        threads = THREADS
    else:
        kernel = matmul_kernel(
            builder.name(), (), a, b, c, tiles, a_is_transposed=turned_a, b_is_transposed=turned_b, epilogue=finish
        )
        function, high, wide, threads = lower_kernel(kernel), tiles.m, tiles.n, kernel.threads
    numbers = () if product.batch == 1 else (number,)
    function = replace(function, params=scope.params, grid_vars=(*function.grid_vars, *numbers))
    outer = [builder.pointers[operand] for operand in operands]
    columns = (builder.size(product.n) + (wide - 1)) // wide
    rows = (builder.size(product.m) + (high - 1)) // high
    grid = (columns, rows, *(builder.size(product.batch) for _ in numbers))
    return builder.launch(function, [*outer, builder.pointers[epilogue.result]], scope.arguments, grid, threads)


def _read_operands(product: Product) -> list[Operand]:
    """What is read behind the sum, each once."""
    return list(dict.fromkeys(access.operand for access in accesses(product.value)))


def _product(task: Task, left: TaskTensor, right: TaskTensor) -> Product | None:
    """The product and its result as matrices; None where axes are not regular."""
    assert task.anchor is not None
    shape = task.anchor.outputs[0].tensor.shape
    found = _OPERANDS[task.op_name](task, left, right, shape)
    if found is None or found.a is None or found.b is None:
        return None
    total_type = _TOTALS[left.type.dtype]
    rows, batch, column = found.rows, found.batch, found.column
    if left.type.dtype not in _MATRIX_UNITS and _likely(dims.product(shape)) < _WIDE_BY_FOLD:
        return None
    epilogue, total = task.epilogues[0], Var("total", total_type)
    value = finished_value(task, epilogue, total)
    if value is None or len(epilogue.axes) != len(shape):
        return None
    type_ = task.outputs[0].type
    row_axis = single_axis(task, epilogue, value, rows) if rows else None
    batch_axis = single_axis(task, epilogue, value, batch) if batch else None
    strides = type_.element_strides
    row_stride = single_stride([type_.shape[n] for n in rows], [strides[n] for n in rows])
    batch_stride = single_stride([type_.shape[n] for n in batch], [strides[n] for n in batch])
    if row_axis is None or (batch and batch_axis is None) or row_stride is None or batch_stride is None:
        return None
    if strides[column] != 1 and type_.shape[column] != 1:
        return None
    return Product(
        found.a,
        found.b,
        dims.product([shape[n] for n in batch]),
        dims.product([shape[n] for n in rows]),
        shape[column],
        total,
        value,
        epilogue.axes,
        batch_axis,
        row_axis,
        epilogue.axes[column],
        row_stride,
        batch_stride,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Operands:
    """Operands, None where they are no matrix, and the axes of the result that are rows, matrices and columns."""

    a: MatrixOperand | None
    b: MatrixOperand | None
    rows: Sequence[int]
    batch: Sequence[int]
    column: int


def _linear(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> _Operands:
    x, w = left.type, right.type
    last = len(shape) - 1
    a = _operand(left, _walked(x, range(last)), (x.shape[-1], x.element_strides[-1]), False, 0)
    b = _operand(right, (w.shape[0], w.element_strides[0]), (w.shape[1], w.element_strides[1]), True, 0)
    return _Operands(a, b, range(last), (), last)


def _matmul(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> _Operands | None:
    assert task.anchor is not None
    attrs, lead = task.anchor.attrs, len(shape) - 2
    a_batch, b_batch = (_batch_stride(tensor.type, shape[:-2]) for tensor in (left, right))
    if a_batch is None or b_batch is None:
        return None
    a = _matrix(left, bool(attrs["trans_a"]), a_batch)
    b = _matrix(right, bool(attrs["trans_b"]), b_batch)
    return _Operands(a, b, range(lead, lead + 1), range(lead), lead + 1)


def _conv(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> _Operands | None:
    """Filters of one pixel on channels that are neighbours: the pixels are rows."""
    assert task.anchor is not None
    attrs, x, w = task.anchor.attrs, left.type, right.type
    steps = [number for name in ("stride", "padding") for number in _numbers(attrs[name])]
    plain = [1] * (len(shape) - 2) + [0] * (len(steps) - len(shape) + 2)
    if attrs["groups"] != 1 or steps != plain or any(extent != 1 for extent in w.shape[2:]):
        return None
    rows = (0, *range(2, len(shape)))
    a = _operand(left, _walked(x, rows), (x.shape[1], x.element_strides[1]), False, 0)
    b = _operand(right, (w.shape[0], w.element_strides[0]), (w.shape[1], w.element_strides[1]), True, 0)
    return _Operands(a, b, rows, (), 1)


def _numbers(value: object) -> list[object]:
    """The parts of an attribute that is a number or a list, nested or not."""
    if isinstance(value, list | tuple):
        return [number for part in value for number in _numbers(part)]
    return [value]


_OPERANDS: Mapping[str, Callable[[Task, TaskTensor, TaskTensor, Sequence[Dim]], _Operands | None]] = {
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
}

Axis = tuple[Dim, Dim]
"""Extent and stride."""


def _walked(type_: TensorType, axes: Sequence[int]) -> Axis | None:
    """Several axes as one."""
    shape, strides = [type_.shape[n] for n in axes], [type_.element_strides[n] for n in axes]
    stride = single_stride(shape, strides)
    return None if stride is None else (dims.product(shape), stride)


def _batch_stride(type_: TensorType, batch: Sequence[Dim]) -> Dim | None:
    """Between matrices of an operand, as the result's batch axes count them; None where it repeats irregularly."""
    own, strides = type_.shape[:-2], type_.element_strides[:-2]
    missing = len(batch) - len(own)
    steps = [0] * missing + [0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)]
    return single_stride(batch, steps)


def _matrix(tensor: TaskTensor, is_transposed: bool, batch_stride: Dim) -> MatrixOperand | None:
    """The last two axes; `is_transposed` says that they stand the other way round than in a product."""
    type_ = tensor.type
    axes = list(zip(type_.shape, type_.element_strides, strict=True))
    first, second = axes[-2], axes[-1]
    if second[1] == 1 or second[0] == 1:
        return _operand(tensor, first, (second[0], 1), is_transposed, batch_stride)
    # Neighbours along the other axis: the same matrix, seen transposed.
    return _operand(tensor, second, first, not is_transposed, batch_stride)


def _operand(
    tensor: TaskTensor, rows: Axis | None, columns: Axis, is_transposed: bool, batch_stride: Dim
) -> MatrixOperand | None:
    if rows is None or (columns[1] != 1 and columns[0] != 1):
        return None
    return MatrixOperand(tensor, rows[0], columns[0], rows[1], is_transposed, batch_stride)
