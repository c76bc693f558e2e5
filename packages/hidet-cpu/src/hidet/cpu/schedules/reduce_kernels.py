"""Kernels over blocks of rows, and the program that launches them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.cpu.schedules.reduce_columns import ColumnReducer
from hidet.cpu.schedules.reduce_layout import Loop, ReductionLayout, ReductionMemory
from hidet.cpu.schedules.reduce_rows import Range, RowReducer, whole
from hidet.cpu.schedules.reductions import ReductionProgram
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import For, If, Launch, Stmt
from hidet.ir.types import PointerType
from hidet.ir.visit import walk
from hidet.schedule.rule import Program
from hidet.schedule.task import Task

Body = Callable[[RowReducer | ColumnReducer], list[Stmt]]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How a reduction program is computed.

    column: the loop along which rows lie side by side, None to go along rows. tile: how many of those are reduced at
    once, a multiple of `lanes`, the elements of a vector. item_elements: elements of a work item.
    """

    program: ReductionProgram
    layout: ReductionLayout
    column: Loop | None
    tile: int
    lanes: int
    item_elements: int


@dataclass(frozen=True, slots=True, eq=False)
class ReductionKernel:
    """A kernel and how it is launched. cost: nanoseconds of a work item."""

    function: Function
    grid: tuple[Dim, ...]
    memory: ReductionMemory
    cost: Dim


def whole_kernel(task: Task, plan: Plan) -> ReductionKernel:
    """The kernel that reduces whole rows."""
    memory = ReductionMemory(task, plan.program, plan.layout)
    ranges = [whole(loop, memory) for loop in plan.layout.inner]

    def body(reducer: RowReducer | ColumnReducer) -> list[Stmt]:
        stmts: list[Stmt] = []
        for level in plan.program.levels:
            reducing, totals = reducer.reduce(level.reductions, ranges)
            reducer.bind(level.reductions, totals)
            stmts += [*reducing, *reducer.formulas(level.formulas)]
        return [*stmts, *reducer.outputs(plan.program.outputs)]

    length = dims.maximum(1, plan.layout.row_elements)
    return row_kernel("kernel0", plan, memory, body, length, {}, element_picoseconds(plan.program))


def element_picoseconds(program: ReductionProgram) -> int:
    """Estimated time of one element on one core."""
    values = [value for level in program.levels for reduction in level.reductions for value in reduction.values]
    functions = sum(isinstance(n, Unary) for value in values for n in walk(value))
    return 60 * len(program.levels) + 150 * functions


def row_kernel(
    name: str,
    plan: Plan,
    memory: ReductionMemory,
    body: Body,
    length: Dim,
    bindings: Mapping[Var, Expr],
    picoseconds: int,
    more_grid: Sequence[tuple[Var, Dim]] = (),
) -> ReductionKernel:
    """A kernel over blocks of rows.

    body: statements of one row (or tile of rows) from its `RowReducer` or `ColumnReducer`. length: elements reduced
    there.
    bindings: what formula variables of earlier kernels are. more_grid: further grid variables, before the blocks'.
    """
    outer = list(plan.layout.outer)
    last = plan.column
    if last is None and outer:
        last = outer[-1]
    others = [(loop.var, loop.extent) for loop in outer if loop is not last]
    item = build.size_var("item")
    if last is None:
        stmts = body(RowReducer(memory, bindings))
        return kernel_of(name, memory, stmts, (*more_grid, (item, 1)), length * picoseconds)
    rows: Dim = dims.maximum(1, dims.floordiv(plan.item_elements, length))
    if plan.column is not None:
        rows = dims.ceildiv(rows, plan.tile) * plan.tile
    block = dims.minimum(rows, dims.maximum(1, last.extent))
    step = memory.scope.size(block, "block")
    start = item * step
    count = build.minimum(step, memory.scope.size(last.extent, "rows") - start)
    if plan.column is None:
        stmts = [For(last.var, start, count, build.seq(body(RowReducer(memory, bindings))))]
    else:
        stmts = [_tiles(plan, memory, body, bindings, last, start, count)]
    grid = (*others, *more_grid, (item, dims.ceildiv(last.extent, block)))
    return kernel_of(name, memory, stmts, grid, block * length * picoseconds)


def _tiles(
    plan: Plan,
    memory: ReductionMemory,
    body: Body,
    bindings: Mapping[Var, Expr],
    column: Loop,
    start: Expr,
    count: Expr,
) -> Stmt:
    """Full tiles of rows, and what is left over, as vectors and then fewer rows."""

    def reduce_tile(first: Expr, rows: Expr) -> Stmt:
        return build.seq(body(ColumnReducer(memory, bindings, Range(column.var, first, rows, plan.tile), plan.tile)))

    tile, size = build.size_var("tile"), build.index(plan.tile)
    full = reduce_tile(start + tile, size)
    if dims.divisibility(column.extent) % plan.tile == 0:
        return For(tile, build.index(0), count, full, step=plan.tile)
    vector, lanes = build.size_var("vector"), build.index(plan.lanes)
    left = count - tile
    first = start + tile + vector
    some = If(left - vector >= lanes, reduce_tile(first, lanes), reduce_tile(first, left - vector))
    rest = For(vector, build.index(0), left, some, step=plan.lanes)
    return For(tile, build.index(0), count, If(left >= size, full, rest), step=plan.tile)


def kernel_of(
    name: str, memory: ReductionMemory, stmts: Sequence[Stmt], grid: Sequence[tuple[Var, Dim]], picoseconds: Dim
) -> ReductionKernel:
    function = Function(
        name, memory.scope.params, build.seq(stmts), kind="kernel", grid_vars=tuple(var for var, _ in grid)
    )
    cost = dims.floordiv(picoseconds, 1000) + 20
    return ReductionKernel(function, tuple(extent for _, extent in grid), memory, cost)


def assemble(
    task: Task, kernels: Sequence[ReductionKernel], scratch: Mapping[str, tuple[DType, Dim]] | None = None
) -> Program:
    """The program that launches kernels in order. scratch: element type and number of elements of each buffer."""
    buffers = scratch or {}
    pointers = [Var(t.operand.name, PointerType(t.operand.dtype)) for t in (*task.inputs, *task.outputs)]
    temporary = {name: Var(name, PointerType(dtype)) for name, (dtype, _) in buffers.items()}
    arguments: list[Dim] = []
    sizes: list[Var] = []
    launches: list[Stmt] = []

    def parameter(value: Dim) -> Expr:
        sizes.append(build.size_var(f"a{len(sizes)}"))
        arguments.append(value)
        return sizes[-1]

    for kernel in kernels:
        grid = tuple(map(parameter, kernel.grid))
        own = [temporary[name] for name in kernel.memory.scratch]
        passed = [*pointers, *own, *map(parameter, kernel.memory.scope.arguments)]
        launches.append(Launch(kernel.function.name, grid, tuple(passed), cost=parameter(kernel.cost)))
    entry = Function("entry", (*pointers, *temporary.values(), *sizes), build.seq(launches), kind="host")
    functions = (*(kernel.function for kernel in kernels), entry)
    nbytes = tuple(count * dtype.nbytes for dtype, count in buffers.values())
    return Program(Module(functions, "entry"), tuple(arguments), nbytes)
