"""Code for row programs whose rows are contiguous: SIMD along the row, one row after the other.

    for block of rows                     one work item
      for row
        one vectorised loop a statistic, the first of which may keep the row in a small local array
        one vectorised loop an output

A row that is computed (fused producers, conversions, exponentials) is kept, so that this is done once. Rows too long
for the array are computed again in each loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from hidet import dims
from hidet.compute.definition import Combiner
from hidet.cpu.schedules.row_layout import RowLayout, RowMemory
from hidet.cpu.schedules.spans import Body, Span, sweep
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Assign, Declare, For, If, Launch, Stmt, Store
from hidet.ir.types import BufferType, PointerType, with_lanes
from hidet.ir.visit import substitute, walk
from hidet.schedule.rows import RowOutput, RowProgram, Statistic
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
    *outer, last = layout.outer
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


Content = Callable[[Span], "Expr | None"]
Reduced = Callable[[Span, Expr], "tuple[Expr, ...] | None"]


class _Kernel:
    """Statements for one row."""

    def __init__(self, program: RowProgram, layout: RowLayout, memory: RowMemory, lanes: int) -> None:
        self.program, self.layout, self.memory, self.lanes = program, layout, memory, lanes
        self.extents = [memory.scope.size(loop.extent, "n") for loop in layout.inner]
        self.position: Expr = build.index(0)
        for loop, extent in zip(layout.inner, self.extents, strict=True):
            self.position = self.position * extent + loop.var
        self.count = memory.scope.size(program.row_elements, "count")
        self.capacity = KEPT_BYTES // program.dtype.nbytes
        wants = is_worth_keeping(program)
        fits = dims.prove_le(program.row_elements, self.capacity)
        self.keeps = None if wants and fits is None else wants and fits is not False
        # Whole vectors are read, also where a row ends within one.
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

    def _row(self, keeps: bool) -> Stmt:
        program = self.program
        bindings: dict[Var, Expr] = {program.count: self.count}
        content: Content = functools.partial(self._computed, program.element, bindings)
        stmts: list[Stmt] = []
        for number, statistic in enumerate(program.statistics):
            keep = keeps and (statistic.stored or number == 0)
            reduced = functools.partial(self._reduced, statistic, dict(bindings))
            reductions, totals = self._reduce(statistic, content, reduced, keep)
            stmts += reductions
            here = Span(self.layout.inner[-1].var, self.layout.inner[-1].var)
            known = dict(zip(statistic.totals, totals, strict=True))
            for variable, value in statistic.results:
                result = Var(variable.name, variable.type)
                stmts.append(Declare(result, self.memory.read(value, here, {**bindings, **known})))
                bindings[variable] = result
            if keep:
                content = self._kept
            elif statistic.stored:
                content = composed(first_of(reduced), content)
        return build.seq([*stmts, *(self._output(output, content, bindings) for output in program.outputs)])

    def _computed(self, value: Expr, bindings: Mapping[Var, Expr], span: Span) -> Expr | None:
        """Elements of the row from memory."""
        return self.memory.read(value, span, bindings)

    def _kept(self, span: Span) -> Expr:
        """Elements of the row from the local array."""
        return build.load(self.array, substitute(self.position, {span.var: span.start}), lanes=span.lanes)

    def _reduced(
        self, statistic: Statistic, bindings: Mapping[Var, Expr], span: Span, element: Expr
    ) -> tuple[Expr, ...] | None:
        """What a statistic reduces of an element."""
        read = [self.memory.read(v, span, {**bindings, self.program.held: element}) for v in statistic.values]
        return applied(statistic, read)

    def _reduce(
        self, statistic: Statistic, content: Content, reduced: Reduced, keep: bool
    ) -> tuple[list[Stmt], list[Expr]]:
        """Statements that reduce a statistic over the row, and its totals."""
        types, combiner = [total.dtype for total in statistic.totals], statistic.combiner
        identities = combiner.identity(types)
        partial: dict[int, list[Var]] = {}

        def body(span: Span, number: int) -> list[Stmt] | None:
            fresh = [Var(f"total{number}", with_lanes(dtype, span.lanes)) for dtype in types]
            accumulators = partial.setdefault(number, fresh)
            element = Var("x", with_lanes(self.program.dtype, span.lanes))
            loaded, values = content(span), reduced(span, element)
            if loaded is None or values is None:
                partial.clear()
                return None
            results = [Var("value", value.type) for value in values]
            stmts: list[Stmt] = [Declare(element, loaded), *map(Declare, results, values)]
            if keep:
                place = substitute(self.position, {span.var: span.start})
                stmts.append(Store(self.array, (place,), results[0] if statistic.stored else element, span.mask))
            mask = span.mask
            counted: Sequence[Expr] = results
            if mask is not None:
                counted = [build.select(mask, r, i) for r, i in zip(results, identities, strict=True)]
            return [*stmts, *map(Assign, accumulators, combiner.combine(accumulators, counted))]

        loops = self._sweep(2 if is_costly(statistic) else 4, body)
        start: list[Stmt] = [
            Declare(var, build.broadcast(identity, var.lanes))
            for accumulators in partial.values()
            for var, identity in zip(accumulators, identities, strict=True)
        ]
        vectors: Sequence[Expr] = partial[0]
        for number in range(1, len(partial)):
            vectors = combiner.combine(vectors, partial[number])
        across, totals = _reduce_lanes(combiner, vectors)
        return [*start, loops, *across], totals

    def _output(self, output: RowOutput, content: Content, bindings: Mapping[Var, Expr]) -> Stmt:
        def body(span: Span, number: int) -> list[Stmt] | None:
            element = Var("x", with_lanes(self.program.dtype, span.lanes))
            loaded = content(span)
            value = self.memory.read(output.value, span, {**bindings, self.program.held: element})
            store = None if value is None else self.memory.store(output, span, value)
            return None if loaded is None or store is None else [Declare(element, loaded), store]

        if not output.per_row:
            return self._sweep(2, body)
        here = Span(self.layout.inner[-1].var, build.index(0))
        value = self.memory.read(output.value, here, bindings)
        store = None if value is None else self.memory.store(output, here, value)
        assert store is not None
        return store

    def _sweep(self, unroll: int, body: Body) -> Stmt:
        """Loops over the row."""
        inner = sweep(self.layout.inner[-1].var, build.index(0), self.extents[-1], self.lanes, unroll, body)
        for loop, size in reversed(list(zip(self.layout.inner[:-1], self.extents[:-1], strict=True))):
            inner = For(loop.var, build.index(0), size, inner)
        return inner


def composed(outer: Callable[[Span, Expr], Expr | None], inner: Content) -> Content:
    """`outer` of what `inner` gives."""

    def content(span: Span) -> Expr | None:
        element = inner(span)
        return None if element is None else outer(span, element)

    return content


def first_of(reduced: Reduced) -> Callable[[Span, Expr], Expr | None]:
    """The first of the values that are reduced."""

    def first(span: Span, element: Expr) -> Expr | None:
        values = reduced(span, element)
        return None if values is None else values[0]

    return first


def applied(statistic: Statistic, values: Sequence[Expr | None]) -> tuple[Expr, ...] | None:
    """The values that a statistic reduces, its function applied; None where one is not known."""
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values):
        return None
    return known if statistic.function is None else (statistic.function(known[0]), *known[1:])


def _reduce_lanes(combiner: Combiner, values: Sequence[Expr]) -> tuple[list[Stmt], list[Expr]]:
    """Reduce the lanes of vectors by halves. LLVM keeps the small arrays in registers."""
    stmts: list[Stmt] = []
    while values[0].lanes > 1:
        lanes = values[0].lanes
        arrays = [Var("halves", BufferType(v.dtype, (build.index(lanes),), space="local")) for v in values]
        stmts += map(Declare, arrays)
        stmts += [Store(array, (build.index(0),), value) for array, value in zip(arrays, values, strict=True)]
        low, high = (
            [build.load(array, build.index(start), lanes=lanes // 2) for array in arrays] for start in (0, lanes // 2)
        )
        values = combiner.combine(low, high)
    totals = [Var("total", value.type) for value in values]
    return [*stmts, *map(Declare, totals, values)], list(totals)


def is_worth_keeping(program: RowProgram) -> bool:
    """Whether elements take more than a load, so that a copy of the row saves work."""
    return program.is_computed or any(s.stored for s in program.statistics)


def is_costly(statistic: Statistic) -> bool:
    """Whether reducing an element takes more than a few operations, so that two vectors at a time fill the
    pipelines."""
    return statistic.function is not None or any(
        isinstance(n, Unary) for value in statistic.values for n in walk(value)
    )
