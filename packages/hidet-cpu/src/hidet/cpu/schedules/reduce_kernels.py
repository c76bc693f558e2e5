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
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch, Stmt
from hidet.ir.types import PointerType
from hidet.ir.visit import walk
from hidet.schedule.rule import Program
from hidet.schedule.task import Task

Reducer = RowReducer | ColumnReducer
Body = Callable[[Reducer], None]


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

    def body(reducer: Reducer) -> None:
        for level in plan.program.levels:
            reducer.bind(level.reductions, reducer.reduce(level.reductions, ranges))
            reducer.formulas(level.formulas)
        reducer.outputs(plan.program.outputs)

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

    body: writes one row (or tile of rows) by its `RowReducer` or `ColumnReducer`. length: elements reduced there.
    bindings: what formula variables of earlier kernels are. more_grid: further grid variables, before the blocks'.
    """
    outer = list(plan.layout.outer)
    last = plan.column
    if last is None and outer:
        last = outer[-1]
    others = [(loop.var, loop.extent) for loop in outer if loop is not last]
    item = build.size_var("item")
    k = IRBuilder()
    if last is None:
        body(RowReducer(k, memory, bindings))
        return kernel_of(name, memory, k.body, (*more_grid, (item, 1)), length * picoseconds)
    rows: Dim = dims.maximum(1, dims.floordiv(plan.item_elements, length))
    if plan.column is not None:
        rows = dims.ceildiv(rows, plan.tile) * plan.tile
    block = dims.minimum(rows, dims.maximum(1, last.extent))
    step = memory.scope.size(block, "block")
    start = item * step
    count = build.minimum(step, memory.scope.size(last.extent, "rows") - start)
    if plan.column is None:
        with k.loop(last.var, count, start):
            body(RowReducer(k, memory, bindings))
    else:
        _tiles(k, plan, memory, body, bindings, last, start, count)
    grid = (*others, *more_grid, (item, dims.ceildiv(last.extent, block)))
    return kernel_of(name, memory, k.body, grid, block * length * picoseconds)


def _tiles(
    k: IRBuilder,
    plan: Plan,
    memory: ReductionMemory,
    body: Body,
    bindings: Mapping[Var, Expr],
    column: Loop,
    start: Expr,
    count: Expr,
) -> None:
    """Full tiles of rows, and what is left over, as vectors and then fewer rows."""

    def reduce_tile(first: Expr, rows: Expr) -> None:
        body(ColumnReducer(k, memory, bindings, Range(column.var, first, rows, plan.tile), plan.tile))

    size, lanes = build.index(plan.tile), build.index(plan.lanes)
    with k.for_range("tile", count, step=plan.tile) as tile:
        if dims.divisibility(column.extent) % plan.tile == 0:
            reduce_tile(start + tile, size)
            return
        left = count - tile
        with k.if_(left >= size):
            reduce_tile(start + tile, size)
        with k.else_(), k.for_range("vector", left, step=plan.lanes) as vector:
            first = start + tile + vector
            with k.if_(left - vector >= lanes):
                reduce_tile(first, lanes)
            with k.else_():
                reduce_tile(first, left - vector)


def kernel_of(
    name: str, memory: ReductionMemory, body: Stmt, grid: Sequence[tuple[Var, Dim]], picoseconds: Dim
) -> ReductionKernel:
    function = Function(name, memory.scope.params, body, kind="kernel", grid_vars=tuple(var for var, _ in grid))
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
