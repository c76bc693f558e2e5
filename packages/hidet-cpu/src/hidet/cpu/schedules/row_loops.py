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
from contextlib import ExitStack

from hidet import dims, dtypes
from hidet.compute.definition import Combiner
from hidet.cpu.schedules.row_layout import RowLayout, RowMemory
from hidet.cpu.schedules.spans import Body, Span, sweep
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch
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
    k = IRBuilder()
    if kernel.keeps is not False:
        k.declare(kernel.array)
    with k.loop(last.var, count, start):
        kernel.row(k)
    grid_vars = (*(loop.var for loop in outer), item)
    grid = (*(loop.extent for loop in outer), dims.ceildiv(last.extent, block))
    function = Function("kernel0", memory.scope.params, k.body, kind="kernel", grid_vars=grid_vars)
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
    """Writes one row."""

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

    def row(self, k: IRBuilder) -> None:
        """One row; where its length is not known, with both ways of it."""
        if self.keeps is not None:
            self._row(k, self.keeps)
            return
        with k.if_(self.count <= self.capacity):
            self._row(k, True)
        with k.else_():
            self._row(k, False)

    def _row(self, k: IRBuilder, keeps: bool) -> None:
        program = self.program
        bindings: dict[Var, Expr] = {program.count: self.count}
        content: Content = functools.partial(self._computed, program.element, bindings)
        for number, statistic in enumerate(program.statistics):
            keep = keeps and (statistic.stored or number == 0)
            reduced = functools.partial(self._reduced, statistic, dict(bindings))
            totals = self._reduce(k, statistic, content, reduced, keep)
            here = Span(self.layout.inner[-1].var, self.layout.inner[-1].var)
            known = dict(zip(statistic.totals, totals, strict=True))
            for variable, finish in statistic.results:
                value = self.memory.read(finish, here, {**bindings, **known})
                assert value is not None, "one element is always read"
                bindings[variable] = k.let(variable.name, value)
            if keep:
                content = self._kept
            elif statistic.stored:
                content = composed(first_of(reduced), content)
        for output in program.outputs:
            self._output(k, output, content, bindings)

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

    def _reduce(self, k: IRBuilder, statistic: Statistic, content: Content, reduced: Reduced, keep: bool) -> list[Expr]:
        """Reduce a statistic over the row; gives its totals."""
        kinds, combiner = [total.dtype for total in statistic.totals], statistic.combiner
        partial: dict[int, list[Var]] = {}

        def types(span: Span) -> list[DType]:
            # One sum after another loses more than those of lanes do: a single accumulator is a wider one.
            return kinds if span.lanes > 1 else [dtypes.f64 if kind == dtypes.f32 else kind for kind in kinds]

        def body(k: IRBuilder, span: Span, number: int) -> bool:
            element = Var("x", with_lanes(self.program.dtype, span.lanes))
            loaded, values = content(span), reduced(span, element)
            if loaded is None or values is None:
                return False
            fresh = [Var(f"total{number}", with_lanes(dtype, span.lanes)) for dtype in types(span)]
            accumulators = partial.setdefault(number, fresh)
            k.declare(element, loaded)
            results: Sequence[Expr] = [k.let("value", value) for value in values]
            if keep:
                place = substitute(self.position, {span.var: span.start})
                kept = results[0] if statistic.stored else element
                k.store(self.array, place, kept, span.mask)
            results = [build.cast(r, dtype) for r, dtype in zip(results, types(span), strict=True)]
            if span.mask is not None:
                identities = combiner.identity(types(span))
                results = [build.select(span.mask, r, i) for r, i in zip(results, identities, strict=True)]
            k.assign_each(accumulators, combiner.combine(accumulators, results))
            return True

        # The loops say how many accumulators there are.
        loops = IRBuilder()
        self._sweep(loops, 2 if is_costly(statistic) else 4, body)
        for accumulators in partial.values():
            identities = combiner.identity([var.dtype for var in accumulators])
            for var, identity in zip(accumulators, identities, strict=True):
                k.declare(var, build.broadcast(identity, var.lanes))
        k.emit(loops.body)
        vectors: Sequence[Expr] = partial[0]
        for number in range(1, len(partial)):
            vectors = combiner.combine(vectors, partial[number])
        return [
            k.let("total", build.cast(total, kind))
            for total, kind in zip(_reduce_lanes(k, combiner, vectors), kinds, strict=True)
        ]

    def _output(self, k: IRBuilder, output: RowOutput, content: Content, bindings: Mapping[Var, Expr]) -> None:
        def body(k: IRBuilder, span: Span, number: int) -> bool:
            element = Var("x", with_lanes(self.program.dtype, span.lanes))
            loaded = content(span)
            value = self.memory.read(output.value, span, {**bindings, self.program.held: element})
            store = None if value is None else self.memory.store(output, span, value)
            if loaded is None or store is None:
                return False
            k.declare(element, loaded)
            k.emit(store)
            return True

        if not output.per_row:
            self._sweep(k, 2, body)
            return
        here = Span(self.layout.inner[-1].var, build.index(0))
        value = self.memory.read(output.value, here, bindings)
        store = None if value is None else self.memory.store(output, here, value)
        assert store is not None
        k.emit(store)

    def _sweep(self, k: IRBuilder, unroll: int, body: Body) -> None:
        """Loops over the row."""
        *outer, (last, extent) = zip(self.layout.inner, self.extents, strict=True)
        with ExitStack() as loops:
            for loop, size in outer:
                loops.enter_context(k.loop(loop.var, size))
            sweep(k, last.var, build.index(0), extent, self.lanes, unroll, body)


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


def _reduce_lanes(k: IRBuilder, combiner: Combiner, values: Sequence[Expr]) -> Sequence[Expr]:
    """Reduce the lanes of vectors by halves. LLVM keeps the small arrays in registers."""
    while values[0].lanes > 1:
        lanes = values[0].lanes
        arrays = [k.array("halves", value.dtype, lanes, space="local") for value in values]
        k.store_each(arrays, 0, values)
        low, high = (
            [build.load(array, build.index(start), lanes=lanes // 2) for array in arrays] for start in (0, lanes // 2)
        )
        values = combiner.combine(low, high)
    return values


def is_worth_keeping(program: RowProgram) -> bool:
    """Whether elements take more than a load, so that a copy of the row saves work."""
    return program.is_computed or any(s.stored for s in program.statistics)


def is_costly(statistic: Statistic) -> bool:
    """Whether reducing an element takes more than a few operations, so that two vectors at a time fill the
    pipelines."""
    return statistic.function is not None or any(
        isinstance(n, Unary) for value in statistic.values for n in walk(value)
    )
