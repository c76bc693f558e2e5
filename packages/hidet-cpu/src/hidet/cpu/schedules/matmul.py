"""Matrix products: `linear`, `matmul` and `cpu.linear_packed`, through the kernel of `gemm`.

An unpacked right operand is packed on the way, which costs one pass over it. A left operand of another type or with
strided rows is copied into contiguous rows first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.context import CompileContext
from hidet.cpu.schedules.cost_gemm import Operands, gemm_seconds
from hidet.cpu.schedules.gemm import BUFFER_ROWS, inside_pointer
from hidet.cpu.schedules.gemm_blocking import Extents
from hidet.cpu.schedules.gemm_choice import GemmParams, gemm_space, launch_product
from hidet.cpu.schedules.gemm_columns import (
    Columns,
    PackedColumns,
    ProblemOffset,
    StridedColumns,
    is_packed_on_the_way,
    order_of,
)
from hidet.cpu.schedules.gemm_default import choose_params
from hidet.cpu.schedules.gemm_epilogue import TilePlace
from hidet.cpu.schedules.gemm_program import ProgramBuilder
from hidet.cpu.schedules.gemm_spec import Gemm, RowTable
from hidet.cpu.schedules.gemm_tile import TileShape, tile_shape
from hidet.cpu.schedules.pack import Axis, decode, launch_copy_rows, launch_pack_panels
from hidet.cpu.target import cpu_target
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.operators.matmul import sum_dtype
from hidet.schedule.affine import Affine, collapse_axes
from hidet.schedule.cost import element_count
from hidet.schedule.device_constants import known_constants
from hidet.schedule.lowering import KernelScope
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Space
from hidet.schedule.task import Task, TaskTensor


@dataclass(frozen=True, slots=True, eq=False)
class MatrixProduct:
    """A product as strided operands.

    batch: axes that both operands have, as (extent, stride in the left, stride in the right operand).
    rows: further axes of the result before the columns, as (extent, stride in the left operand).
    columns, steps: (extent, stride in the right operand) and (extent, stride in the left, stride in the right operand).
    is_packed: whether the right operand is packed already; its strides then mean nothing. total: the type of sums.
    """

    left: TaskTensor
    right: TaskTensor
    batch: tuple[tuple[Dim, Dim, Dim], ...]
    rows: tuple[Axis, ...]
    columns: Axis
    steps: tuple[Dim, Dim, Dim]
    is_packed: bool
    total: DType

    @property
    def row_count(self) -> Dim:
        """Rows of all axes."""
        return dims.product([extent for extent, _ in self.rows])


class MatmulRule(ScheduleRule[MatrixProduct, GemmParams]):
    """Schedules matrix products whose operands are in memory."""

    def match(self, task: Task, ctx: CompileContext) -> Match[MatrixProduct] | None:
        """Products of floats or integers, of any size and strides."""
        if any(prologue is not None for prologue in task.prologues):
            return None
        product = _matrix_product(task)
        return None if product is None else Match(task, product)

    def space(self, match: Match[MatrixProduct], ctx: CompileContext) -> Space[GemmParams]:
        """Register tiles, work items, chunks of the sum, and where columns are packed."""
        product = match.data
        packing = (False,) if product.is_packed else (False, True)

        def extents(params: GemmParams) -> Extents:
            return _extents(product, params.is_packed_on_the_way)

        return gemm_space(cpu_target(ctx), product.total, extents, self.default(match, ctx), packing=packing)

    def default(self, match: Match[MatrixProduct], ctx: CompileContext) -> GemmParams:
        """By sizes, symbolic ones as their hints say."""
        product, dtype = match.data, match.data.total
        is_on_the_way = not product.is_packed and is_packed_on_the_way(product.row_count)
        extents, operands = _extents(product, is_on_the_way), _operands(product, dtype)
        return choose_params(cpu_target(ctx), dtype, extents, operands, is_packed_on_the_way=is_on_the_way)

    def predict(self, match: Match[MatrixProduct], params: GemmParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_gemm`."""
        product, constants, dtype = match.data, known_constants(ctx), match.data.total
        assert constants is not None
        extents, operands = _extents(product, params.is_packed_on_the_way), _operands(product, dtype)
        shape = tile_shape(cpu_target(ctx), dtype, params.tile)
        return gemm_seconds(extents, operands, shape, params, constants, ctx.options.threads or constants.cores)

    def build(self, match: Match[MatrixProduct], params: GemmParams, ctx: CompileContext) -> Program:
        """Copies where needed, then one kernel."""
        product, target = match.data, cpu_target(ctx)
        shape = tile_shape(target, product.total, params.tile)
        builder = ProgramBuilder(match.task)
        left, rows, step, batch_strides = _left_operand(builder, product, shape)
        batch = [extent for extent, _, _ in product.batch]
        inside = inside_pointer(left)
        extents = _extents(product, params.is_packed_on_the_way)

        def digits(scope: KernelScope, problem: Expr) -> list[Expr]:
            return decode(problem, [scope.size(n, "batch") if axis else None for axis, n in enumerate(batch)])

        def fill(k: IRBuilder, scope: KernelScope, table: RowTable, problem: Expr) -> None:
            strides = [scope.size(stride, "stride") for stride in batch_strides]
            start = inside + build.flatten(digits(scope, problem), strides)
            fill_matrix_rows(k, scope, table, start, rows)

        def right_offset(scope: KernelScope, problem: Expr) -> Expr:
            return build.flatten(digits(scope, problem), [scope.size(s, "stride") for s in right_strides])

        right, right_strides = _right_operand(
            builder, product, shape, right_offset, is_on_the_way=params.is_packed_on_the_way
        )

        def place(scope: KernelScope, problem: Expr) -> TilePlace:
            lead = len(batch)
            positions = tuple(range(lead, lead + len(product.rows)))
            fixed = dict(enumerate(digits(scope, problem)))
            return TilePlace(positions, lead + len(product.rows), build.index(0), fixed)

        gemm = Gemm(
            problems=extents.problems,
            rows=extents.rows,
            columns=extents.columns,
            taps=extents.taps,
            run=extents.run,
            element=left.dtype,
            step=step,
            right=right,
            fill=fill,
            sources={left: inside},
            place=place,
        )
        launch_product(builder, match.task, gemm, shape, extents, params)
        return builder.program()


def _extents(product: MatrixProduct, is_packed_on_the_way: bool) -> Extents:
    """is_packed_on_the_way: whether each work item packs its columns."""
    depth, _, stride = product.steps
    problems, columns = dims.product([extent for extent, _, _ in product.batch]), product.columns
    order = order_of(columns[1], (), stride) if is_packed_on_the_way else None
    return Extents(problems, product.row_count, columns[0], 1, depth, BUFFER_ROWS, order)


def _operands(product: MatrixProduct, dtype: DType) -> Operands:
    """dtype: of the sums, as which rows are multiplied."""
    depth, left, right = product.steps
    order = None if product.is_packed else order_of(product.columns[1], (), right)
    is_copied = product.left.operand.dtype is not dtype or (left != 1 and depth != 1)
    copied = element_count(product.left.type.shape) if is_copied else 0
    return Operands(product.right.operand.dtype, order, copied)


def fill_matrix_rows(k: IRBuilder, scope: KernelScope, table: RowTable, start: Expr, axes: Sequence[Axis]) -> None:
    """Addresses of rows counted through `axes` from `start`; rows past the last one repeat it."""
    variables = [build.size_var(f"i{n}") for n in range(len(axes))]
    strides = Affine(dict(zip(variables, [stride for _, stride in axes], strict=True)), 0)
    groups = collapse_axes(variables, [extent for extent, _ in axes], [strides], frozenset())
    extents = [
        scope.size(dims.product([axes[n][0] for n in group]), "extent") if number else None
        for number, group in enumerate(groups)
    ]
    kept = [scope.size(axes[group[-1]][1], "stride") for group in groups]
    with k.for_range("entry", table.count) as entry:
        row = build.minimum(table.first_row + entry, table.last_row)
        offset = build.flatten(decode(row, extents)[: len(groups)], kept)
        k.store(table.variable, entry, Bitcast(start + offset, build.INDEX))


def _left_operand(
    builder: ProgramBuilder, product: MatrixProduct, shape: TileShape
) -> tuple[Var, tuple[Axis, ...], Dim, tuple[Dim, ...]]:
    """Pointer, row axes, step stride and batch strides of the left operand, copied where its rows cannot be read."""
    pointer = builder.pointers[product.left.operand]
    depth, stride, _ = product.steps
    batch = tuple((extent, left) for extent, left, _ in product.batch)
    if pointer.dtype is shape.dtype and (stride == 1 or depth == 1):
        return pointer, product.rows, 1, tuple(left for _, left in batch)
    axes = (*batch, *product.rows)
    copy = builder.scratch("rows", shape.dtype, dims.product([extent for extent, _ in axes]) * depth)
    launch_copy_rows(builder, pointer, copy, axes, (depth, stride))
    strides = _dense([extent for extent, _ in axes], depth)
    rows = tuple(zip([extent for extent, _ in product.rows], strides[len(batch) :], strict=True))
    return copy, rows, 1, strides[: len(batch)]


def _right_operand(
    builder: ProgramBuilder, product: MatrixProduct, shape: TileShape, offset: ProblemOffset, *, is_on_the_way: bool
) -> tuple[Columns, tuple[Dim, ...]]:
    """The columns, and the batch strides that `offset` is to use."""
    pointer = builder.pointers[product.right.operand]
    if product.is_packed:
        return PackedColumns(pointer, offset), ()
    depth, _, stride = product.steps
    if is_on_the_way:
        strides = tuple(right for _, _, right in product.batch)
        return StridedColumns(pointer, offset, product.columns[1], (), stride), strides
    panels = dims.ceildiv(product.columns[0], shape.lanes) * depth * shape.lanes
    own = [(1 if right == 0 else extent, right) for extent, _, right in product.batch]
    packed = builder.scratch("packed", shape.dtype, dims.product([extent for extent, _ in own]) * panels)
    launch_pack_panels(builder, pointer, packed, own, product.columns, (), (depth, stride), shape.lanes)
    dense = _dense([extent for extent, _ in own], panels)
    return PackedColumns(packed, offset), tuple(
        0 if right == 0 else stride for stride, (_, _, right) in zip(dense, product.batch, strict=True)
    )


def _dense(extents: Sequence[Dim], inner: Dim) -> tuple[Dim, ...]:
    strides: list[Dim] = []
    for extent in reversed(extents):
        strides.append(inner)
        inner = inner * extent
    return tuple(reversed(strides))


def _matrix_product(task: Task) -> MatrixProduct | None:
    assert task.anchor is not None
    left, right = task.anchor_inputs[:2]
    if left is None or right is None:
        return None
    if task.op_name == "matmul":
        return _from_matmul(task, left, right)
    x, shape = left.type, task.anchor.outputs[0].tensor.shape
    rows = tuple(zip(x.shape[:-1], x.element_strides[:-1], strict=True))
    steps = (x.shape[-1], x.element_strides[-1], right.type.element_strides[-1])
    columns = (shape[-1], right.type.element_strides[0])
    is_packed, total = task.op_name == "cpu.linear_packed", sum_dtype(x.dtype, None)
    return MatrixProduct(left, right, (), rows, columns, steps, is_packed, total)


def _from_matmul(task: Task, left: TaskTensor, right: TaskTensor) -> MatrixProduct:
    assert task.anchor is not None
    attrs, shape = task.anchor.attrs, task.anchor.outputs[0].tensor.shape
    *_, m, n = shape
    left_strides, right_strides = left.type.element_strides, right.type.element_strides
    row, step = (-1, -2) if attrs["trans_a"] else (-2, -1)
    right_step, column = (-1, -2) if attrs["trans_b"] else (-2, -1)
    batch = shape[:-2]
    left_batch, right_batch = _batch_strides(left, batch), _batch_strides(right, batch)
    rows: tuple[Axis, ...] = ((m, left_strides[row]),)
    both: tuple[tuple[Dim, Dim, Dim], ...] = tuple(zip(batch, left_batch, right_batch, strict=True))
    if all(stride == 0 for stride in right_batch):
        rows, both = (*zip(batch, left_batch, strict=True), *rows), ()
    steps = (left.type.shape[step], left_strides[step], right_strides[right_step])
    total = sum_dtype(left.type.dtype, attrs["dtype"])
    return MatrixProduct(left, right, both, rows, (n, right_strides[column]), steps, False, total)


def _batch_strides(tensor: TaskTensor, batch: Sequence[Dim]) -> list[Dim]:
    """Strides along the result's batch axes: 0 where the operand has no such axis or repeats along it."""
    own, strides = tensor.type.shape[:-2], tensor.type.element_strides[:-2]
    missing = len(batch) - len(own)
    return [0] * missing + [0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)]
