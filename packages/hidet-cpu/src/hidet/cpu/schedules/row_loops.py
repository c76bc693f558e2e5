"""Code for row programs whose rows are contiguous: SIMD along the row, one row after the other.

    for block of rows                     one work item
      for row
        one vectorised loop a statistic, the first of which may keep the row in a small local array
        one vectorised loop an output

A row that is computed (fused producers, conversions, exponentials) is kept, so that this is done once. Rows too long
for the array are computed again in each loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dims
from hidet.cpu.schedules.row_layout import Loop, RowLayout, RowMemory
from hidet.cpu.schedules.rows import RowOutput, RowProgram
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Assign, Declare, For, If, Launch, Stmt, Store
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import substitute
from hidet.schedule.rule import Program
from hidet.schedule.task import Task

# Bytes of the array that keeps a row: it shares a first-level cache of 32 to 48 KiB with the row's inputs.
KEPT_BYTES = 32768


def contiguous_rows(
    task: Task, program: RowProgram, layout: RowLayout, item_elements: int, lanes: int, picoseconds: int
) -> Program:
    """The program of `task`. item_elements: elements of a work item, if rows are shorter. lanes: of a SIMD vector.

    picoseconds: estimated time of one element.
    """
    memory = RowMemory(task, program, layout)
    kernel = _Kernel(program, layout, memory, lanes)
    length = dims.maximum(1, program.row_elements)
    *outer, last = layout.outer or (Loop(build.size_var("row"), 1),)
    block: Dim = dims.minimum(dims.maximum(1, dims.floordiv(item_elements, length)), dims.maximum(1, last.extent))
    item = build.size_var("item")
    step = memory.scope.size(block, "block")
    start = item * step
    count = build.minimum(step, memory.scope.size(last.extent, "rows") - start)
    body = build.seq([*kernel.declarations, For(last.var, start, count, kernel.row())])
    grid_vars = (*(loop.var for loop in outer), item)
    grid = (*(loop.extent for loop in outer), dims.ceildiv(last.extent, block))
    function = Function("kernel0", memory.scope.params, body, kind="kernel", grid_vars=grid_vars)
    return assemble(task, memory, function, grid, dims.floordiv(block * length * picoseconds, 1000))


def assemble(task: Task, memory: RowMemory, function: Function, grid: tuple[Dim, ...], cost: Dim) -> Program:
    """The program that launches one kernel. cost: nanoseconds of a work item."""
    pointers = [Var(t.operand.name, PointerType(t.operand.dtype)) for t in (*task.inputs, *task.outputs)]
    arguments = (*grid, *memory.scope.arguments, cost)
    sizes = [build.size_var(f"a{n}") for n in range(len(arguments))]
    launch = Launch(function.name, tuple(sizes[: len(grid)]), (*pointers, *sizes[len(grid) : -1]), cost=sizes[-1])
    entry = Function("entry", (*pointers, *sizes), launch, kind="host")
    return Program(Module((function, entry), "entry"), arguments)


class _Kernel:
    """Statements for one row."""

    def __init__(self, program: RowProgram, layout: RowLayout, memory: RowMemory, lanes: int) -> None:
        self.program, self.layout, self.memory = program, layout, memory
        self.extents = [memory.scope.size(loop.extent, "n") for loop in layout.inner]
        self.position = self._position()
        self.count = memory.scope.size(program.row_elements, "count")
        self.capacity = KEPT_BYTES // program.dtype.nbytes
        self.lanes = lanes
        wants = program.is_computed or any(s.stored for s in program.statistics)
        fits = dims.prove_le(program.row_elements, self.capacity)
        self.keeps = None if wants and fits is None else wants and fits is not False
        self.array = Var("kept", BufferType(program.dtype, (build.index(self.capacity + lanes),), space="local"))

    @property
    def declarations(self) -> list[Stmt]:
        """What precedes the loop over rows."""
        return [] if self.keeps is False else [Declare(self.array)]

    def row(self) -> Stmt:
        """One row; where its length is not known, with both ways of it."""
        if self.keeps is None:
            return If(self.count <= self.capacity, self._row(True), self._row(False))
        return self._row(self.keeps)

    def _position(self) -> Expr:
        place: Expr = build.index(0)
        for loop, extent in zip(self.layout.inner, self.extents, strict=True):
            place = place * extent + loop.var
        return place

    def _row(self, keeps: bool) -> Stmt:
        program = self.program
        bindings: dict[Var, Expr] = {program.count: self.count}
        content = self.memory.read(program.element)
        padded = keeps and program.padding is not None and len(self.layout.inner) == 1
        stmts: list[Stmt] = []
        for number, statistic in enumerate(program.statistics):
            element = Var("x", program.dtype)
            body: list[Stmt] = [Declare(element, content)]
            value = self._value(statistic.value, element, bindings)
            if statistic.stored:
                computed = Var("value", program.dtype)
                body.append(Declare(computed, value))
                value = computed
            if keeps and (statistic.stored or number == 0):
                body.append(Store(self.array, (self.position,), value if statistic.stored else element))
            accumulator = Var("total", statistic.total.dtype)
            identity = statistic.combiner.identity([accumulator.dtype])[0]
            body.append(Assign(accumulator, statistic.combiner.combine([accumulator], [value])[0]))
            stmts += [Declare(accumulator, identity), self._loops(build.seq(body), padded and number > 0)]
            result = Var(statistic.variable.name, statistic.variable.type)
            finish = substitute(self.memory.read(statistic.finish), {**bindings, statistic.total: accumulator})
            stmts.append(Declare(result, finish))
            bindings[statistic.variable] = result
            if keeps:
                content = build.load(self.array, self.position)
            elif statistic.stored:
                content = self._value(statistic.value, content, bindings)
            if padded and number == 0:
                stmts.append(self._pad())
        stmts += [self._output(output, content, bindings) for output in program.outputs]
        return build.seq(stmts)

    def _value(self, value: Expr, element: Expr, bindings: Mapping[Var, Expr]) -> Expr:
        return substitute(self.memory.read(value), {**bindings, self.program.held: element})

    def _loops(self, body: Stmt, padded: bool = False) -> Stmt:
        """Loops over the row, the innermost one vectorised; `padded` rounds a single loop up to whole vectors."""
        if padded:
            return For(self.layout.inner[0].var, build.index(0), self._rounded(), body, kind="vectorize")
        for loop, extent in reversed(list(zip(self.layout.inner, self.extents, strict=True))):
            innermost = loop is self.layout.inner[-1]
            body = For(loop.var, build.index(0), extent, body, kind="vectorize" if innermost else "serial")
        return body

    def _rounded(self) -> Expr:
        return build.binary("truncdiv", self.extents[0] + (self.lanes - 1), self.lanes) * self.lanes

    def _pad(self) -> Stmt:
        """Fill the kept row up to whole vectors with an element that does not count."""
        assert self.program.padding is not None
        var = build.size_var("pad")
        value = build.const(self.program.padding, self.program.dtype)
        return For(var, self.extents[0], self._rounded() - self.extents[0], Store(self.array, (var,), value))

    def _output(self, output: RowOutput, content: Expr, bindings: Mapping[Var, Expr]) -> Stmt:
        pointer, place = self.memory.target(output)
        if output.per_row:
            return Store(pointer, (place,), substitute(self.memory.read(output.value), bindings))
        element = Var("x", self.program.dtype)
        value = self._value(output.value, element, bindings)
        return self._loops(build.seq([Declare(element, content), Store(pointer, (place,), value)]))
