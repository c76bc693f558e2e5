"""The kernel behind matrix products and convolutions: rows given by addresses, columns by packed panels.

    for every block of column groups and rows                  a work item: 20 to 150 us
      fill the table of row addresses
      for every column group of the block
        for every chunk of the sum                             its piece of the panel stays in the first-level cache
          for every tile of rows
            multiply                                           accumulators in registers, `gemm_tile`
            after the last chunk: finish and store             `gemm_epilogue`

While a tile is multiplied, its share of the panel's next piece is fetched, so that weights stream from memory behind
the arithmetic. All sizes are run-time parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.cpu.schedules.gemm_blocking import Blocking
from hidet.cpu.schedules.gemm_columns import (
    ChunkPacker,
    ChunkPlace,
    PackedReader,
    PanelReader,
    StridedColumns,
    SumSizes,
)
from hidet.cpu.schedules.gemm_epilogue import Epilogue, FinishedTile
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_spec import Gemm, RowTable
from hidet.cpu.schedules.gemm_tile import TileArguments, TileShape, choose_tile, tile_functions
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.stmt import Stmt
from hidet.ir.types import BufferType, PointerType
from hidet.schedule.lowering import KernelScope
from hidet.schedule.task import Task

# Entries of the address table of one work item (32 KiB on the stack), and rows of its accumulator buffer.
TABLE_ENTRIES = 4096
BUFFER_ROWS = 264


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
    outer.append(gemm.right.pointer)

    item = _Item(task, gemm, shape, blocking, scope)
    body = item.body(pointers)
    grid_vars = (item.problem, item.column_block, item.row_block)
    function = Function("gemm", scope.params, body, kind="kernel", grid_vars=grid_vars, attributes=(COMPACT,))
    groups = dims.ceildiv(gemm.columns, shape.columns)
    grid = (gemm.problems, dims.ceildiv(groups, blocking.groups), dims.ceildiv(gemm.rows, blocking.rows))
    builder.add((*item.functions.values(), *item.reader.functions))
    builder.launch(function, outer, scope, grid, blocking.nanoseconds)


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """The sizes of a work item, as the kernel's parameters. Rows, columns, taps and steps are those of `Gemm`.

    block_*: of a work item. chunk_*: of what is summed before the next tile's turn. *_chunks: how many there are.
    keep_apart: elements between the buffers of neighbouring tiles. ahead_tiles, ahead_step: how the fetching of what
    comes next is shared out, see `Blocking`.
    """

    taps: Expr
    step: Expr
    all_rows: Expr
    columns: Expr
    run: Expr
    block_rows: Expr
    block_groups: Expr
    chunk_taps: Expr
    chunk_steps: Expr
    tap_chunks: Expr
    step_chunks: Expr
    keep_apart: Expr
    ahead_tiles: Expr
    ahead_step: Expr

    @staticmethod
    def of(scope: KernelScope, gemm: Gemm, blocking: Blocking) -> _Sizes:
        """Parameters in this order; a product without taps has none for them."""

        def of_taps(dim: Dim, name: str) -> Expr:
            return build.index(1) if gemm.taps == 1 else parameter(scope, dim, name)

        return _Sizes(
            taps=of_taps(gemm.taps, "taps"),
            step=scope.size(gemm.step, "step"),
            all_rows=parameter(scope, gemm.rows, "all_rows"),
            columns=parameter(scope, gemm.columns, "columns"),
            run=parameter(scope, gemm.run, "run"),
            block_rows=parameter(scope, blocking.rows, "block_rows"),
            block_groups=parameter(scope, blocking.groups, "block_groups"),
            chunk_taps=of_taps(blocking.taps, "chunk_taps"),
            chunk_steps=parameter(scope, blocking.steps, "chunk_steps"),
            tap_chunks=of_taps(_chunks(gemm.taps, blocking.taps), "tap_chunks"),
            step_chunks=parameter(scope, _chunks(gemm.run, blocking.steps), "step_chunks"),
            keep_apart=parameter(scope, blocking.buffer_step, "buffer_step"),
            ahead_tiles=parameter(scope, blocking.ahead_tiles, "ahead_tiles"),
            ahead_step=parameter(scope, blocking.ahead_step, "ahead_step"),
        )


class _Item:
    """The body of a work item: variables of its loops, and the statements of each loop around the next inner one."""

    def __init__(self, task: Task, gemm: Gemm, shape: TileShape, blocking: Blocking, scope: KernelScope) -> None:
        self.task, self.gemm, self.shape, self.scope = task, gemm, shape, scope
        self.problem, self.column_block, self.row_block = (
            build.size_var(name) for name in ("problem", "column_block", "row_block")
        )
        self.n = n = _Sizes.of(scope, gemm, blocking)
        self.counts = _vector_counts(gemm.columns, shape)
        is_even = all(dims.divisibility(d) % 2 == 0 for d in (gemm.run, blocking.steps))
        self.table = Var("table", BufferType(dtypes.i64, (build.index(TABLE_ENTRIES),), space="local"))
        buffered = build.index(BUFFER_ROWS * shape.columns)
        self.buffer = Var("tiles", BufferType(shape.dtype, (buffered,), space="local"))
        sizes = SumSizes(n.taps, n.run, n.chunk_taps, n.chunk_steps)
        self.reader: PanelReader
        if isinstance(gemm.right, StridedColumns):
            self.reader = ChunkPacker(
                scope,
                gemm.right,
                shape,
                self.problem,
                sizes,
                n.columns,
                blocking.most_steps,
                n.ahead_tiles,
                n.ahead_step,
            )
        else:
            self.reader = PackedReader(scope, gemm.right, shape, self.problem, sizes, n.ahead_tiles, n.ahead_step)
        self.functions = tile_functions(
            shape,
            gemm.element,
            n.step,
            2 if is_even else 1,
            self.counts,
            self.reader.panel_type,
            self.reader.ahead_type,
        )
        self.first_row, self.rows, self.group_count = map(build.size_var, ("first_row", "rows", "groups"))
        self.group, self.chunk, self.tile = map(build.size_var, ("group", "chunk", "tile"))
        self.left_vectors, self.left_rows = map(build.size_var, ("left_vectors", "left_rows"))
        self.first_tap, self.first_step, self.buffer_start = map(
            build.size_var, ("first_tap", "first_step", "buffer_start")
        )
        self.here = ChunkPlace(
            group=self.group,
            vectors=self.left_vectors,
            first_tap=self.first_tap,
            first_step=self.first_step,
            taps=build.minimum(n.chunk_taps, n.taps - self.first_tap),
            steps=build.minimum(n.chunk_steps, n.run - self.first_step),
        )

    def body(self, pointers: Mapping[Operand, Var]) -> Stmt:
        """Fill the table, then one column group after the other."""
        n, height = self.n, self.shape.rows
        # Sizes of the epilogue come before those of the columns, and these before those of the table.
        finish, groups, k = IRBuilder(), IRBuilder(), IRBuilder()
        place = self.gemm.place(self.scope, self.problem)
        Epilogue(self.task, self.scope, pointers, place, self.shape).store(finish, self._finished())
        here = build.minimum(n.block_groups, self.group_count - self.column_block * n.block_groups)
        with groups.for_range("group", here) as number:
            self._group(groups, number, finish.body)

        k.declare(self.table)
        k.declare(self.buffer)
        self.reader.declare(k)
        k.declare(self.first_row, self.row_block * n.block_rows)
        k.declare(self.rows, build.minimum(n.block_rows, n.all_rows - self.first_row))
        k.declare(self.group_count, _ceildiv(n.columns, self.shape.columns))
        table = RowTable(self.table, n.block_rows, self.first_row, _ceildiv(self.rows, height) * height, n.all_rows - 1)
        self.gemm.fill(k, self.scope, table, self.problem)
        k.emit(groups.body)
        return k.body

    def _group(self, k: IRBuilder, number: Var, finish: Stmt) -> None:
        """One panel, chunk by chunk. finish: what follows the last chunk of a tile."""
        n, most = self.n, self.shape.vectors
        vectors = _ceildiv(n.columns, self.shape.lanes)
        k.declare(self.group, self.column_block * n.block_groups + number)
        k.declare(self.left_vectors, build.minimum(build.index(most), vectors - self.group * most))
        with k.loop(self.chunk, n.tap_chunks * n.step_chunks):
            self._chunk(k, finish)

    def _chunk(self, k: IRBuilder, finish: Stmt) -> None:
        """One chunk of the sum for all tiles of rows, while what comes next is fetched."""
        n = self.n
        # What comes next: the next chunk, the first one for the next rows, or for the next group.
        is_last_chunk = build.equal(self.chunk, n.tap_chunks * n.step_chunks - 1)
        is_last_block = self.first_row + self.rows >= n.all_rows
        next_group = build.select(is_last_block, build.minimum(self.group + 1, self.group_count - 1), self.group)
        next_chunk = build.select(is_last_chunk, build.index(0), self.chunk + 1)
        following = replace(
            self.here,
            group=build.select(is_last_chunk, next_group, self.group),
            first_tap=build.binary("truncdiv", next_chunk, n.step_chunks) * n.chunk_taps,
            first_step=build.binary("rem", next_chunk, n.step_chunks) * n.chunk_steps,
        )
        k.declare(self.first_tap, build.binary("truncdiv", self.chunk, n.step_chunks) * n.chunk_taps)
        k.declare(self.first_step, build.binary("rem", self.chunk, n.step_chunks) * n.chunk_steps)
        self.reader.begin(k, self.here, following)
        with k.loop(self.tile, _ceildiv(self.rows, self.shape.rows)):
            k.declare(self.left_rows, self.rows - self.tile * self.shape.rows)
            k.declare(self.buffer_start, self.tile * n.keep_apart)
            self._multiply(k)
            with k.if_(is_last_chunk):
                k.emit(finish)

    def _multiply(self, k: IRBuilder) -> None:
        """One call of the function of the tile's size."""
        n = self.n
        ahead, ahead_step, ahead_rate = self.reader.ahead(self.tile)
        arguments = TileArguments(
            table=build.address(self.table, self.first_tap * n.block_rows + self.tile * self.shape.rows),
            table_stride=n.block_rows,
            taps=self.here.taps,
            first_step=self.first_step,
            steps=self.here.steps,
            step=n.step,
            panel=self.reader.panel(self.here),
            panel_stride=self.reader.vector_stride,
            run=self.reader.run,
            ahead=ahead,
            ahead_step=ahead_step,
            ahead_rate=ahead_rate,
            buffer=build.address(self.buffer, self.buffer_start),
            continued=self.chunk > 0,
        )

        def multiply(height: int, count: int) -> None:
            k.run(build.call(self.functions[height, count].name, *arguments.listed(), type=build.INDEX))

        choose_tile(k, self.shape, self.left_rows, self.left_vectors, self.counts, multiply)

    def _finished(self) -> FinishedTile:
        """The tile in the buffer after the last chunk."""
        shape = self.shape
        first_column = self.group * shape.columns
        return FinishedTile(
            first_row=self.first_row + self.tile * shape.rows,
            rows=build.minimum(build.index(shape.rows), self.left_rows),
            first_column=first_column,
            columns=build.minimum(build.index(shape.columns), self.n.columns - first_column),
            is_ragged=dims.divisibility(self.gemm.columns) % shape.lanes != 0,
            buffer=self.buffer,
            buffer_start=self.buffer_start,
        )


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
