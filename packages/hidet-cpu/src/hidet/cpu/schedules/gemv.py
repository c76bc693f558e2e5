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
from hidet.cpu.schedules.gemm_columns import StridedColumns
from hidet.cpu.schedules.gemm_epilogue import Epilogue, FinishedTile
from hidet.cpu.schedules.gemm_lanes import leading_lanes
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_spec import Gemm, RowTable
from hidet.cpu.schedules.gemm_tile import TileShape, multiply_add
from hidet.cpu.schedules.transpose_tile import sum_lanes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Return, Stmt, Store
from hidet.ir.types import BufferType, PointerType
from hidet.schedule.lowering import KernelScope
from hidet.schedule.shared_functions import share_functions
from hidet.schedule.task import Task

# Rows up to which columns are read in place: more share a packed panel with profit.
_MOST_ROWS = 24
# Steps a lane adds up in one accumulator, at most: see `_MOST_STEPS` of `gemm_blocking`.
_MOST_ADDED = 256
# Bytes a core fetches from beyond its caches in a nanosecond, and the shortest work item worth starting, in ns.
_BYTES_PER_NS, _ITEM_NS = 12.0, 20_000.0


def reads_in_place(gemm: Gemm) -> bool:
    """Whether a product is a GEMV or skinny GEMM, with columns whose steps are neighbours."""
    right, rows = gemm.right, gemm.rows if isinstance(gemm.rows, int) else dims.hint_value(gemm.rows)
    if not isinstance(right, StridedColumns) or right.order != "steps" or gemm.taps != 1 or gemm.step != 1:
        return False
    return rows is not None and rows <= _MOST_ROWS


def launch_gemv(builder: ProgramBuilder, task: Task, gemm: Gemm, shape: TileShape) -> None:
    """Add the kernel of `gemm`, which `reads_in_place`, with the task's epilogues, and its launch."""
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

    known_rows = gemm.rows if isinstance(gemm.rows, int) else _MOST_ROWS
    height = min(4, 1 << (known_rows - 1).bit_length() if known_rows else 1, shape.lanes)
    known_run = gemm.run if isinstance(gemm.run, int) else 1024
    group_ns = max(1.0, shape.columns * known_run * right.pointer.dtype.nbytes / _BYTES_PER_NS)
    groups_of_item = max(1, min(16, int(_ITEM_NS / group_ns)))

    problem, column_block, row_block = (build.size_var(name) for name in ("problem", "column_block", "row_block"))
    sizes = _Sizes(
        rows=parameter(scope, gemm.rows, "all_rows"),
        columns=parameter(scope, gemm.columns, "columns"),
        run=parameter(scope, gemm.run, "run"),
        groups=parameter(scope, groups_of_item, "groups"),
        column_stride=scope.size(right.column, "column_stride"),
    )
    function = dot_function(shape, height, gemm.element, right.pointer.dtype)
    table = Var("table", BufferType(dtypes.i64, (build.index(_MOST_ROWS),), space="local"))
    buffer = Var("tile", BufferType(shape.dtype, (build.index(_MOST_ROWS * shape.columns),), space="local"))
    first_row, rows, start = map(build.size_var, ("first_row", "rows", "start"))
    all_groups = build.binary("truncdiv", sizes.columns + (shape.columns - 1), build.index(shape.columns))
    number, group = build.size_var("number"), build.size_var("group")
    filled = RowTable(table, build.index(_MOST_ROWS), first_row, build.index(_MOST_ROWS), sizes.rows - 1)
    place = gemm.place(scope, problem)
    epilogue = Epilogue(task, scope, pointers, place, shape)
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
    one_group = build.seq(
        [
            Declare(group, column_block * sizes.groups + number),
            _dots(function, shape, height, sizes, rows, tile, source, start, table),
            epilogue.store(tile),
        ]
    )
    here = build.minimum(sizes.groups, all_groups - column_block * sizes.groups)
    body = build.seq(
        [
            Declare(table),
            Declare(buffer),
            Declare(first_row, row_block * _MOST_ROWS),
            Declare(rows, build.minimum(build.index(_MOST_ROWS), sizes.rows - first_row)),
            Declare(start, right.offset(scope, problem)),
            gemm.fill(scope, filled, problem),
            For(number, build.index(0), here, one_group),
        ]
    )
    grid_vars = (problem, column_block, row_block)
    kernel = Function("gemv", scope.params, body, kind="kernel", grid_vars=grid_vars, attributes=(COMPACT,))
    groups = dims.ceildiv(gemm.columns, shape.columns)
    grid = (gemm.problems, dims.ceildiv(groups, groups_of_item), dims.ceildiv(gemm.rows, _MOST_ROWS))
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
    function: Function,
    shape: TileShape,
    height: int,
    sizes: _Sizes,
    rows: Expr,
    tile: FinishedTile,
    source: Var,
    start: Expr,
    table: Var,
) -> Stmt:
    """All rows of the work item by one column group. The columns of a dot function stay in the cache for all rows."""
    width = shape.lanes // height
    column, row, step = build.size_var("column"), build.size_var("row"), build.size_var("step")
    most = _MOST_ADDED * shape.lanes
    arguments = (
        build.address(table, row),
        build.address(source, start + (tile.first_column + column) * sizes.column_stride),
        sizes.column_stride,
        tile.columns - 1 - column,
        step,
        build.minimum(build.index(most), sizes.run - step),
        build.address(tile.buffer, row * shape.columns + column),
    )
    call = Evaluate(build.call(function.name, *arguments, type=build.INDEX))
    # An empty sum is stored, too.
    count = build.maximum(sizes.run, build.index(1))
    by_steps = For(step, build.index(0), count, call, step=most)
    by_rows = For(row, build.index(0), rows, by_steps, step=height)
    return For(column, build.index(0), tile.columns, by_rows, step=width)


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
    rows = [Var(f"row{i}", PointerType(element)) for i in range(height)]
    places = [Var(f"column{j}", PointerType(source)) for j in range(width)]
    accumulators = [[Var(f"acc{i}_{j}", shape.vector) for j in range(width)] for i in range(height)]
    zero = build.broadcast(build.const(0, shape.dtype), lanes)
    step, whole = build.size_var("step"), build.size_var("whole")

    def multiply(at: Expr, mask: Expr | None) -> list[Stmt]:
        factors = [Var(f"b{j}", shape.vector) for j in range(width)]
        stmts: list[Stmt] = [
            Declare(factor, build.cast(build.load(place, at, lanes=lanes, mask=mask), shape.dtype))
            for factor, place in zip(factors, places, strict=True)
        ]
        for row, line in zip(rows, accumulators, strict=True):
            value = Var("a", shape.vector)
            stmts.append(Declare(value, build.cast(build.load(row, at, lanes=lanes, mask=mask), shape.dtype)))
            stmts += [Assign(acc, multiply_add(value, b, acc)) for acc, b in zip(line, factors, strict=True)]
        return stmts

    declared, mask = leading_lanes(first + count - whole, lanes)
    stmts: list[Stmt] = [
        *(Declare(row, Bitcast(build.load(table, i), row.type)) for i, row in enumerate(rows)),
        *(Declare(p, columns + build.minimum(build.index(j), last) * stride) for j, p in enumerate(places)),
        *(Declare(acc, zero) for line in accumulators for acc in line),
        Declare(whole, first + build.binary("truncdiv", count, build.index(lanes)) * lanes),
        For(step, first, whole - first, build.seq(multiply(step, None)), step=lanes),
        If(whole < first + count, build.seq([*declared, *multiply(whole, mask)])),
    ]
    k = IRBuilder()
    sums = sum_lanes(k, [acc for line in accumulators for acc in line])
    stmts += [k.body]
    for i in range(height):
        part = build.shuffle(sums, sums, list(range(i * width, (i + 1) * width))) if height > 1 else sums
        part = build.extract(part, 0) if width == 1 and height > 1 else part
        at = build.index(i * shape.columns)
        earlier = build.load(buffer, at, lanes=width) if width > 1 else build.load(buffer, at)
        stmts.append(If(first > 0, Store(buffer, (at,), earlier + part), Store(buffer, (at,), part)))
    stmts.append(Return(build.index(0)))
    parameters = (table, columns, stride, last, first, count, buffer)
    name = f"dot_{height}x{width}_{element.short}_{source.short}"
    function = Function(name, parameters, build.seq(stmts), "device", result=index, attributes=(("inline", False),))
    (shared,) = share_functions([function])
    return shared
