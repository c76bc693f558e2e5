"""GEMV and skinny GEMM, products of few rows: dot products that read the columns where they lie, once.

With few rows, fetching the columns is all that takes time, so that nothing is packed. A dot function multiplies some
rows by some columns, lanes of both along the sum, and adds the lanes of all its accumulators at the end:

    acc[i][j] += row[i][k : k + lanes] * column[j][k : k + lanes]        as many accumulators as lanes
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.cpu.schedules.gemm_blocking import Extents
from hidet.cpu.schedules.gemm_columns import StridedColumns
from hidet.cpu.schedules.gemm_epilogue import Epilogue, FinishedTile
from hidet.cpu.schedules.gemm_lanes import leading_lanes
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_spec import Gemm, RowTable
from hidet.cpu.schedules.gemm_tile import TileShape, multiply_add
from hidet.cpu.schedules.transpose_tile import sum_lanes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.types import PointerType
from hidet.schedule.lowering import KernelScope
from hidet.schedule.shared_functions import share_functions
from hidet.schedule.task import Task

MOST_ROWS = 24
"""Rows up to which columns are read in place: more share a packed panel with profit."""
# Steps a lane adds up in one accumulator, at most: see `_MOST_STEPS` of `gemm_blocking`.
_MOST_ADDED = 256
# Bytes a core fetches from beyond its caches in a nanosecond, and the shortest work item worth starting, in ns.
_BYTES_PER_NS, _ITEM_NS = 12.0, 20_000.0


def can_be_gemv(extents: Extents) -> bool:
    """Whether columns can be read in place: they are not packed, and their steps are neighbours."""
    return extents.order == "steps" and extents.taps == 1


def is_skinny(rows: Dim) -> bool | None:
    """Whether there are so few rows that columns are better read in place than packed; None where a call tells."""
    return dims.prove_le(rows, MOST_ROWS)


def gemv_groups(shape: TileShape, run: Dim, source: DType) -> int:
    """Column groups of a work item of columns of type `source`."""
    return max(1, min(16, int(_ITEM_NS / _group_ns(shape, run, source))))


def _group_ns(shape: TileShape, run: Dim, source: DType) -> float:
    known_run = run if isinstance(run, int) else 1024
    return max(1.0, shape.columns * known_run * source.nbytes / _BYTES_PER_NS)


def launch_gemv(builder: ProgramBuilder, task: Task, gemm: Gemm, shape: TileShape, groups_of_item: int) -> None:
    """Add the kernel of `gemm`, which `can_be_gemv`, with the task's epilogues, and its launch.

    groups_of_item: column groups of a work item.
    """
    # The tables that `gemm` describes are those of its own kernel.
    right = gemm.right
    assert isinstance(right, StridedColumns)
    scope = KernelScope()
    pointers: dict[Operand, Var] = {}
    for operand in builder.pointers:
        pointers[operand] = scope.pointer(operand.name, operand.dtype)
    scope.pointers += gemm.sources.values()
    source = scope.pointer("columns", right.pointer.dtype)
    outer = (*builder.pointers.values(), *gemm.sources, right.pointer)

    known_rows = gemm.rows if isinstance(gemm.rows, int) else MOST_ROWS
    height = min(4, 1 << (known_rows - 1).bit_length() if known_rows else 1, shape.lanes)
    group_ns = _group_ns(shape, gemm.run, right.pointer.dtype)

    problem, column_block, row_block = (build.size_var(name) for name in ("problem", "column_block", "row_block"))
    sizes = _Sizes(
        rows=parameter(scope, gemm.rows, "all_rows"),
        columns=parameter(scope, gemm.columns, "columns"),
        run=parameter(scope, gemm.run, "run"),
        groups=parameter(scope, groups_of_item, "groups"),
        column_stride=scope.size(right.column, "column_stride"),
    )
    function = dot_function(shape, height, gemm.element, right.pointer.dtype)
    k, finish = IRBuilder(), IRBuilder()
    table = k.array("table", dtypes.i64, MOST_ROWS, space="local")
    buffer = k.array("tile", shape.dtype, MOST_ROWS * shape.columns, space="local")
    first_row = k.let("first_row", row_block * MOST_ROWS)
    rows = k.let("rows", build.minimum(build.index(MOST_ROWS), sizes.rows - first_row))
    group = build.size_var("group")
    all_groups = build.binary("truncdiv", sizes.columns + (shape.columns - 1), build.index(shape.columns))
    filled = RowTable(table, build.index(MOST_ROWS), first_row, build.index(MOST_ROWS), sizes.rows - 1)
    first_column = group * shape.columns
    tile = FinishedTile(
        first_row=first_row,
        rows=rows,
        first_column=first_column,
        columns=build.minimum(build.index(shape.columns), sizes.columns - first_column),
        is_ragged=dims.divisibility(gemm.columns) % shape.lanes != 0,
        buffer=buffer,
        buffer_start=build.index(0),
    )
    # Sizes of the epilogue come before those of the columns and the table.
    Epilogue(task, scope, pointers, gemm.place(scope, problem), shape).store(finish, tile)
    start = k.let("start", right.offset(scope, problem))
    gemm.fill(k, scope, filled, problem)
    here = build.minimum(sizes.groups, all_groups - column_block * sizes.groups)
    with k.for_range("number", here) as number:
        k.declare(group, column_block * sizes.groups + number)
        _dots(k, function, shape, height, sizes, rows, tile, source, start, table)
        k.emit(finish.body)
    grid_vars = (problem, column_block, row_block)
    kernel = Function("gemv", scope.params, k.body, kind="kernel", grid_vars=grid_vars, attributes=(COMPACT,))
    groups = dims.ceildiv(gemm.columns, shape.columns)
    grid = (gemm.problems, dims.ceildiv(groups, groups_of_item), dims.ceildiv(gemm.rows, MOST_ROWS))
    builder.add((function,))
    builder.launch(kernel, outer, scope, grid, max(1, int(groups_of_item * group_ns)))


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Parameters of the kernel. groups: column groups of a work item."""

    rows: Expr
    columns: Expr
    run: Expr
    groups: Expr
    column_stride: Expr


def _dots(
    k: IRBuilder,
    function: Function,
    shape: TileShape,
    height: int,
    sizes: _Sizes,
    rows: Expr,
    tile: FinishedTile,
    source: Var,
    start: Expr,
    table: Var,
) -> None:
    """All rows of the work item by one column group. The columns of a dot function stay in the cache for all rows."""
    most = _MOST_ADDED * shape.lanes
    with (
        k.for_range("column", tile.columns, step=shape.lanes // height) as column,
        k.for_range("row", rows, step=height) as row,
        # An empty sum is stored, too.
        k.for_range("step", build.maximum(sizes.run, build.index(1)), step=most) as step,
    ):
        arguments = (
            build.address(table, row),
            build.address(source, start + (tile.first_column + column) * sizes.column_stride),
            sizes.column_stride,
            tile.columns - 1 - column,
            step,
            build.minimum(build.index(most), sizes.run - step),
            build.address(tile.buffer, row * shape.columns + column),
        )
        k.run(build.call(function.name, *arguments, type=build.INDEX))


@functools.cache
def dot_function(shape: TileShape, height: int, element: DType, source: DType) -> Function:
    """buffer[i, j] (+)= the products of row i and column j, for `height` rows and lanes / height columns.

    Parameters: the addresses of the rows, the first column, elements between columns, the number of the last column
    that is there (further ones repeat it), the first step, how many there are, and the buffer. What an earlier part of
    the sum has left there is added to.
    """
    lanes, width, index = shape.lanes, shape.lanes // height, build.INDEX
    table, columns = Var("table", PointerType(index, "local")), Var("columns", PointerType(source))
    stride, last, first, count = (build.size_var(name) for name in ("stride", "last", "first", "count"))
    buffer = Var("buffer", PointerType(shape.dtype, "local"))
    k = IRBuilder()
    rows = k.let_each("row", (Bitcast(build.load(table, i), PointerType(element)) for i in range(height)))
    places = k.let_each("column", (columns + build.minimum(build.index(j), last) * stride for j in range(width)))
    zero = build.broadcast(build.const(0, shape.dtype), lanes)
    accumulators = [k.let_each(f"acc{i}_", [zero] * width) for i in range(height)]

    def read(pointer: Var, at: Expr, mask: Expr | None) -> Expr:
        return build.cast(build.load(pointer, at, lanes=lanes, mask=mask), shape.dtype)

    def multiply(at: Expr, mask: Expr | None) -> None:
        factors = k.let_each("b", (read(place, at, mask) for place in places))
        for row, line in zip(rows, accumulators, strict=True):
            value = k.let("a", read(row, at, mask))
            k.assign_each(line, [multiply_add(value, b, acc) for acc, b in zip(line, factors, strict=True)])

    whole = k.let("whole", first + build.binary("truncdiv", count, build.index(lanes)) * lanes)
    with k.for_range("step", whole - first, first, lanes) as step:
        multiply(step, None)
    with k.if_(whole < first + count):
        multiply(whole, leading_lanes(k, first + count - whole, lanes))
    sums = sum_lanes(k, [acc for line in accumulators for acc in line])
    for i in range(height):
        part = sums
        if width == 1 and height > 1:
            part = build.extract(sums, i)
        elif height > 1:
            part = build.shuffle(sums, sums, list(range(i * width, (i + 1) * width)))
        at = build.index(i * shape.columns)
        with k.if_(first > 0):
            earlier = build.load(buffer, at, lanes=width) if width > 1 else build.load(buffer, at)
            k.store(buffer, at, earlier + part)
        with k.else_():
            k.store(buffer, at, part)
    k.return_(build.index(0))
    parameters = (table, columns, stride, last, first, count, buffer)
    name = f"dot_{height}x{width}_{element.short}_{source.short}"
    function = Function(name, parameters, k.body, "device", result=index, attributes=(("inline", False),))
    (shared,) = share_functions([function])
    return shared
