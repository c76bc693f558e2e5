"""The kernel behind matrix products and convolutions: rows given by addresses, columns by packed panels.

    for every block of column groups and rows                  a work item: 20 to 150 us
      fill the table of row addresses
      for every column group of the block                      its panel stays in the second-level cache
        for every chunk of the sum                             one, unless a panel is larger than that cache
          for every tile of rows
            for every part of the chunk: multiply              accumulators in registers, `gemm_tile`
            after the last chunk: finish and store             `gemm_epilogue`

While a tile is multiplied, its share of the next group's panel is fetched, so that weights stream from memory behind
the arithmetic. All sizes are run-time parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.cpu.schedules.gemm_blocking import Blocking
from hidet.cpu.schedules.gemm_epilogue import Epilogue, FinishedTile, TilePlace
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_tile import TileArguments, TileShape, choose_tile, tile_functions
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.stmt import Declare, Evaluate, For, If, Stmt
from hidet.ir.types import BufferType, PointerType
from hidet.schedule.lowering import KernelScope
from hidet.schedule.task import Task

# Entries of the address table of one work item (32 KiB on the stack), and rows of its accumulator buffer.
TABLE_ENTRIES = 4096
BUFFER_ROWS = 132


@dataclass(frozen=True, slots=True, eq=False)
class RowTable:
    """The table of addresses to fill: entry tap * stride + i for row `first_row` + i, i below `count`."""

    variable: Var
    stride: Expr
    first_row: Expr
    count: Expr
    last_row: Expr


FillTable = Callable[[KernelScope, RowTable, Expr], Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Gemm:
    """result[p, m, n] = sum over taps t and steps k of row(p, m, t)[k * step] * packed[p][n // lanes][t][k][n % lanes].

    problems: how many products of this size there are (batches, groups); p counts them.
    rows, columns, taps, run: extents of m, n, t, k.
    element, step: dtype of row elements, and their distance.
    packed: pointer of the entry function; panels are contiguous, problems lie `panel_problem_stride` elements apart.
    fill: writes the table of row addresses; it gets the scope for its sizes, the table, and p.
    sources: pointers that `fill` uses, in the entry function and in the kernel.
    place: how p, m and n stand for axes of the result; it gets the scope and p.
    """

    problems: Dim
    rows: Dim
    columns: Dim
    taps: Dim
    run: Dim
    element: DType
    step: Dim
    packed: Var
    panel_problem_stride: Callable[[KernelScope, Expr], Expr]
    fill: FillTable
    sources: Mapping[Var, Var]
    place: Callable[[KernelScope, Expr], TilePlace]


def launch_gemm(builder: ProgramBuilder, task: Task, gemm: Gemm, shape: TileShape, blocking: Blocking) -> None:
    """Add the kernel of `gemm` with the task's epilogues, and its launch."""
    scope = KernelScope()
    pointers: dict[Operand, Var] = {}
    outer: list[Expr] = []
    for operand, pointer in builder.pointers.items():
        pointers[operand] = scope.pointer(operand.name, operand.dtype)
        outer.append(pointer)
    for outside, inside in gemm.sources.items():
        scope.pointers.append(inside)
        outer.append(outside)
    packed = scope.pointer("packed", shape.dtype)
    outer.append(gemm.packed)

    problem, column_block, row_block = (build.size_var(name) for name in ("problem", "column_block", "row_block"))
    grid_vars = (problem, column_block, row_block)
    body, functions = _block(task, gemm, shape, blocking, scope, pointers, packed, grid_vars)
    function = Function("gemm", scope.params, body, kind="kernel", grid_vars=grid_vars, attributes=(COMPACT,))
    groups = dims.ceildiv(gemm.columns, shape.columns)
    grid = (gemm.problems, dims.ceildiv(groups, blocking.groups), dims.ceildiv(gemm.rows, blocking.rows))
    builder.add(functions)
    builder.launch(function, outer, scope, grid, blocking.nanoseconds)


def _block(
    task: Task,
    gemm: Gemm,
    shape: TileShape,
    blocking: Blocking,
    scope: KernelScope,
    pointers: Mapping[Operand, Var],
    packed: Var,
    grid: tuple[Var, Var, Var],
) -> tuple[Stmt, tuple[Function, ...]]:
    """The body of a work item, and the functions it calls."""
    problem, column_block, row_block = grid
    index = build.index
    taps, step = scope.size(gemm.taps, "taps"), scope.size(gemm.step, "step")
    all_rows, columns = parameter(scope, gemm.rows, "all_rows"), parameter(scope, gemm.columns, "columns")
    run = parameter(scope, gemm.run, "run")
    block_rows = parameter(scope, blocking.rows, "block_rows")
    block_groups = parameter(scope, blocking.groups, "block_groups")
    chunk_taps, chunk_steps = scope.size(blocking.taps, "taps"), parameter(scope, blocking.steps, "chunk_steps")
    part_taps, part_steps = scope.size(blocking.part_taps, "taps"), parameter(scope, blocking.part_steps, "part_steps")
    tap_chunks = scope.size(_chunks(gemm.taps, blocking.taps), "tap_chunks")
    step_chunks = parameter(scope, _chunks(gemm.run, blocking.steps), "step_chunks")
    tap_parts = scope.size(_chunks(blocking.taps, blocking.part_taps), "tap_parts")
    step_parts = parameter(scope, _chunks(blocking.steps, blocking.part_steps), "step_parts")
    keep_apart = parameter(scope, blocking.buffer_step, "buffer_step")
    ahead_tiles = parameter(scope, blocking.ahead_tiles, "ahead_tiles")
    ahead_step = parameter(scope, blocking.ahead_step, "ahead_step")
    is_ragged = dims.divisibility(gemm.columns) % shape.lanes != 0
    counts = _vector_counts(gemm.columns, shape)
    unroll = 2 if all(dims.divisibility(n) % 2 == 0 for n in (gemm.run, blocking.steps, blocking.part_steps)) else 1

    functions = tile_functions(shape, gemm.element, step, unroll, counts)

    table = Var("table", BufferType(dtypes.i64, (index(TABLE_ENTRIES),), space="local"))
    buffer = Var("tiles", BufferType(shape.dtype, (index(BUFFER_ROWS * shape.columns),), space="local"))
    first_row, rows = build.size_var("first_row"), build.size_var("rows")
    vectors = _ceildiv(columns, shape.lanes)
    panel_stride = taps * run * shape.lanes
    panels = packed + gemm.panel_problem_stride(scope, problem)

    number, chunk, tile = build.size_var("group"), build.size_var("chunk"), build.size_var("tile")
    group, panel, ahead = build.size_var("group"), Var("panel", packed.type), Var("ahead", packed.type)
    group_count = build.size_var("groups")
    left_vectors, left_rows = build.size_var("left_vectors"), build.size_var("left_rows")
    first_tap, first_step = build.size_var("first_tap"), build.size_var("first_step")
    buffer_start = build.size_var("buffer_start")
    ahead_tile = Var("ahead_tile", packed.type)
    ahead_vector = build.binary("truncdiv", tile, ahead_tiles)
    ahead_share = build.binary("rem", tile, ahead_tiles) * (chunk_taps * chunk_steps)

    part, part_tap, part_step = build.size_var("part"), build.size_var("part_tap"), build.size_var("part_step")
    tap_end = build.minimum(first_tap + chunk_taps, taps)
    step_end = build.minimum(first_step + chunk_steps, run)
    tap_place = part_tap * run
    arguments = TileArguments(
        table=build.address(table, part_tap * block_rows + tile * shape.rows),
        table_stride=block_rows,
        taps=build.minimum(part_taps, tap_end - part_tap),
        first_step=part_step,
        steps=build.minimum(part_steps, step_end - part_step),
        step=step,
        panel=panel + tap_place * shape.lanes,
        panel_stride=panel_stride,
        run=run,
        ahead=ahead_tile + ((part_tap - first_tap) * run - first_step) * ahead_step,
        ahead_step=ahead_step,
        buffer=build.address(buffer, buffer_start),
        continued=chunk + part > 0,
    )

    def multiply(height: int, count: int) -> Stmt:
        name = functions[height, count].name
        return Evaluate(build.call(name, *arguments.listed(), type=build.INDEX))

    first_column = group * shape.columns
    finished = FinishedTile(
        first_row=first_row + tile * shape.rows,
        rows=build.minimum(index(shape.rows), left_rows),
        first_column=first_column,
        columns=build.minimum(index(shape.columns), columns - first_column),
        is_ragged=is_ragged,
        buffer=buffer,
        buffer_start=buffer_start,
    )
    epilogue = Epilogue(task, scope, pointers, gemm.place(scope, problem), shape)
    # What comes next: the next chunk, the first one for the next rows, or for the next group.
    is_last_chunk = build.equal(chunk, tap_chunks * step_chunks - 1)
    is_last_block = first_row + rows >= all_rows
    next_group = build.select(is_last_block, build.minimum(group + 1, group_count - 1), group)
    next_chunk = build.select(is_last_chunk, index(0), chunk + 1)
    next_tap = build.binary("truncdiv", next_chunk, step_chunks) * chunk_taps
    next_step = build.binary("rem", next_chunk, step_chunks) * chunk_steps
    group_panels = panel_stride * shape.vectors
    next_panels = panels + build.select(is_last_chunk, next_group, group) * group_panels
    one_part = [
        Declare(part_tap, first_tap + build.binary("truncdiv", part, step_parts) * part_taps),
        Declare(part_step, first_step + build.binary("rem", part, step_parts) * part_steps),
        choose_tile(shape, left_rows, left_vectors, counts, multiply),
    ]
    one_tile = [
        Declare(left_rows, rows - tile * shape.rows),
        Declare(buffer_start, tile * keep_apart),
        Declare(ahead_tile, ahead + (ahead_vector * panel_stride + ahead_share * ahead_step)),
        For(part, index(0), tap_parts * step_parts, build.seq(one_part)),
        If(is_last_chunk, epilogue.store(finished)),
    ]
    tiles = For(tile, index(0), _ceildiv(rows, shape.rows), build.seq(one_tile))
    one_chunk = [
        Declare(first_tap, build.binary("truncdiv", chunk, step_chunks) * chunk_taps),
        Declare(first_step, build.binary("rem", chunk, step_chunks) * chunk_steps),
        Declare(ahead, next_panels + (next_tap * run + next_step) * shape.lanes),
        tiles,
    ]
    one_group = [
        Declare(group, column_block * block_groups + number),
        Declare(left_vectors, build.minimum(index(shape.vectors), vectors - group * shape.vectors)),
        Declare(panel, panels + group * group_panels),
        For(chunk, index(0), tap_chunks * step_chunks, build.seq(one_chunk)),
    ]
    rows_table = RowTable(table, block_rows, first_row, _ceildiv(rows, shape.rows) * shape.rows, all_rows - 1)
    groups_here = build.minimum(block_groups, group_count - column_block * block_groups)
    body = build.seq(
        [
            Declare(table),
            Declare(buffer),
            Declare(first_row, row_block * block_rows),
            Declare(rows, build.minimum(block_rows, all_rows - first_row)),
            Declare(group_count, _ceildiv(columns, shape.columns)),
            gemm.fill(scope, rows_table, problem),
            For(number, index(0), groups_here, build.seq(one_group)),
        ]
    )
    return body, tuple(functions.values())


def _vector_counts(columns: Dim, shape: TileShape) -> tuple[int, ...]:
    """How many vectors a column group may have: always all of them, or any number."""
    if dims.divisibility(columns) % shape.columns == 0:
        return (shape.vectors,)
    return tuple(range(1, shape.vectors + 1))


def _chunks(whole: Dim, part: Dim) -> Dim:
    """Parts of `whole`, at least one, so that an empty sum is stored too."""
    return 1 if whole == part else dims.maximum(1, dims.ceildiv(whole, part))


def _ceildiv(value: Expr, divisor: int) -> Expr:
    """Rounded up; `value` is not negative."""
    return build.binary("truncdiv", value + (divisor - 1), build.index(divisor))


def inside_pointer(outside: Var) -> Var:
    """The kernel's parameter for a pointer of the entry function."""
    assert isinstance(outside.type, PointerType)
    return Var(outside.name, outside.type)
