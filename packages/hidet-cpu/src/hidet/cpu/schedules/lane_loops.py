"""Code for row programs whose rows lie side by side: SIMD across rows, statistics in small arrays, one entry a column.

    for block of columns                  one work item
      for element of the rows
        vectorised loop over the columns  one such nest a statistic, the first of which may keep the elements
      for element of the rows
        vectorised loop over the columns  one such nest an output

Several neighbouring columns may belong to one row (the channels of a group, in channels-last order); their entries are
reduced once the others are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence

from hidet import dims
from hidet.cpu.schedules.row_layout import Columns, Loop, RowLayout, RowMemory
from hidet.cpu.schedules.row_loops import (
    KEPT_BYTES,
    Content,
    Reduced,
    applied,
    assemble,
    composed,
    first_of,
    is_costly,
    is_worth_keeping,
)
from hidet.cpu.schedules.spans import Body, Span, sweep
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Assign, Declare, For, If, Stmt, Store
from hidet.ir.types import BufferType, with_lanes
from hidet.schedule.rows import RowOutput, RowProgram, Statistic
from hidet.schedule.rule import Program
from hidet.schedule.task import Task

# Columns of a block whose elements are not kept: several cache lines of each row, and enough blocks for all threads.
STREAMED_COLUMNS = 256
# Columns of a block whose elements are kept: as many as fit, within these.
LEAST_COLUMNS, MOST_COLUMNS = 16, 256


def adjoining_rows(task: Task, program: RowProgram, layout: RowLayout, lanes: int, picoseconds: int) -> Program:
    """The program of `task`, whose layout has columns. lanes: of a SIMD vector. picoseconds: time of one element."""
    columns = layout.columns
    assert columns is not None
    memory = RowMemory(task, program, layout)
    depth = dims.product([loop.extent for loop in layout.inner])
    capacity = KEPT_BYTES // program.dtype.nbytes
    wanted: Dim = STREAMED_COLUMNS
    if is_worth_keeping(program) and dims.prove_le(depth * LEAST_COLUMNS, capacity) is not False:
        fitting = dims.floordiv(capacity, dims.maximum(1, depth))
        wanted = dims.minimum(MOST_COLUMNS, dims.maximum(LEAST_COLUMNS, fitting))
    # Blocks of whole rows whose vectors do not straddle cache lines, if there are any.
    unit = columns.width
    if isinstance(unit, int) and math.lcm(unit, LEAST_COLUMNS) <= MOST_COLUMNS:
        unit = math.lcm(unit, LEAST_COLUMNS)
    block = unit * dims.maximum(1, dims.floordiv(wanted, unit))
    item = build.size_var("item")
    step = memory.scope.size(block, "block")
    kernel = _Kernel(program, layout, columns, memory, lanes, dims.prove_le(depth * block, capacity))
    body = build.seq(
        [
            Declare(kernel.first, item * step),
            Declare(
                kernel.count, build.minimum(step, memory.scope.size(columns.loop.extent, "columns") - kernel.first)
            ),
            *kernel.declarations,
            kernel.block(),
        ]
    )
    grid_vars = (*(loop.var for loop in layout.outer), item)
    grid = (*(loop.extent for loop in layout.outer), dims.ceildiv(columns.loop.extent, block))
    function = Function("kernel0", memory.scope.params, body, kind="kernel", grid_vars=grid_vars)
    return assemble(task, memory, function, grid, dims.floordiv(block * depth * picoseconds, 1000))


class _Kernel:
    """Statements for one block of columns: `first` is its first one, `count` how many it has.

    fits: whether the elements of a block fit into the local array; None when that depends on sizes.
    """

    def __init__(
        self,
        program: RowProgram,
        layout: RowLayout,
        columns: Columns,
        memory: RowMemory,
        lanes: int,
        fits: bool | None,
    ) -> None:
        self.program, self.layout, self.columns, self.memory, self.lanes = program, layout, columns, memory, lanes
        self.first, self.count = build.size_var("first"), build.size_var("count")
        self.extents = [memory.scope.size(loop.extent, "n") for loop in layout.inner]
        self.depth = memory.scope.size(dims.product([loop.extent for loop in layout.inner]), "depth")
        self.width = memory.scope.size(columns.width, "width")
        self.row_elements = memory.scope.size(program.row_elements, "elements")
        self.capacity = KEPT_BYTES // program.dtype.nbytes
        self.keeps = fits if is_worth_keeping(program) else False
        # Whole vectors are read, also where a block ends within one.
        self.array = _local("kept", program.dtype, self.capacity + lanes)
        # A statistic reduces as many values as it has results: each total becomes the result beside it.
        self.totals = {
            variable: _local(variable.name, total.dtype, MOST_COLUMNS + lanes)
            for s in program.statistics
            for (variable, _), total in zip(s.results, s.totals, strict=True)
        }
        self.finished: list[Var] = []

    @property
    def declarations(self) -> list[Stmt]:
        """Local arrays."""
        kept = [] if self.keeps is False else [Declare(self.array)]
        return [*kept, *(Declare(array) for array in self.totals.values())]

    def block(self) -> Stmt:
        """One block; where the length of rows is not known, with both ways of it."""
        if self.keeps is None:
            return If(self.depth * self.count <= self.capacity, self._block(True), self._block(False))
        return self._block(self.keeps)

    def _block(self, keeps: bool) -> Stmt:
        self.finished = []
        content: Content = functools.partial(self._read, self.program.element)
        stmts: list[Stmt] = []
        for number, statistic in enumerate(self.program.statistics):
            keep = keeps and (statistic.stored or number == 0)
            reduced = functools.partial(self._reduced, statistic, tuple(self.finished))
            stmts += [*self._reduce(statistic, content, reduced, keep), self._finish(statistic)]
            self.finished += [variable for variable, _ in statistic.results]
            if keep:
                content = self._kept
            elif statistic.stored:
                content = composed(first_of(reduced), content)
        return build.seq([*stmts, *(self._output(output, content) for output in self.program.outputs)])

    def _entry(self, variable: Var, span: Span) -> Expr:
        """What is known of a statistic for the columns of a span."""
        return build.load(self.totals[variable], span.start - self.first, lanes=span.lanes)

    def _bindings(self, span: Span, finished: Iterable[Var]) -> dict[Var, Expr]:
        return {self.program.count: self.row_elements, **{v: self._entry(v, span) for v in finished}}

    def _read(self, value: Expr, span: Span) -> Expr | None:
        """`value` from memory."""
        return self.memory.read(value, span, self._bindings(span, self.finished))

    def _position(self, span: Span) -> Expr:
        """Where the elements of a span are kept."""
        place: Expr = build.index(0)
        for loop, extent in zip(self.layout.inner, self.extents, strict=True):
            place = place * extent + loop.var
        return place * self.count + (span.start - self.first)

    def _kept(self, span: Span) -> Expr:
        return build.load(self.array, self._position(span), lanes=span.lanes)

    def _reduced(
        self, statistic: Statistic, finished: Sequence[Var], span: Span, element: Expr
    ) -> tuple[Expr, ...] | None:
        """What a statistic reduces of an element."""
        bindings = {**self._bindings(span, finished), self.program.held: element}
        return applied(statistic, [self.memory.read(value, span, bindings) for value in statistic.values])

    def _arrays(self, statistic: Statistic) -> list[Var]:
        """Where a statistic has its totals, and then its results."""
        return [self.totals[variable] for variable, _ in statistic.results]

    def _reduce(self, statistic: Statistic, content: Content, reduced: Reduced, keep: bool) -> list[Stmt]:
        """Statements that leave the totals of all columns in the statistic's arrays."""
        types, combiner = [total.dtype for total in statistic.totals], statistic.combiner
        identities, arrays = combiner.identity(types), self._arrays(statistic)

        def starts(lanes: int) -> list[Expr]:
            return [build.broadcast(identity, lanes) for identity in identities]

        def store(span: Span, values: Sequence[Expr]) -> list[Stmt]:
            place = span.start - self.first
            return [Store(array, (place,), value) for array, value in zip(arrays, values, strict=True)]

        def one(span: Span, totals: Sequence[Var]) -> list[Stmt] | None:
            """Reduce one element of every column in a span into `totals`."""
            element = Var("x", with_lanes(self.program.dtype, span.lanes))
            loaded, values = content(span), reduced(span, element)
            if loaded is None or values is None:
                return None
            results = [Var("value", value.type) for value in values]
            stmts: list[Stmt] = [Declare(element, loaded), *map(Declare, results, values)]
            if keep:
                kept = results[0] if statistic.stored else element
                stmts.append(Store(self.array, (self._position(span),), kept, span.mask))
            return [*stmts, *map(Assign, totals, combiner.combine(totals, results))]

        def several(before: Callable[[Stmt], Stmt]) -> Body:
            def body(span: Span, _: int) -> list[Stmt] | None:
                totals = [Var("total", with_lanes(dtype, span.lanes)) for dtype in types]
                stmts = one(span, totals)
                if stmts is None:
                    return None
                known = [build.load(array, span.start - self.first, lanes=span.lanes) for array in arrays]
                together = store(span, combiner.combine(known, totals))
                return [*map(Declare, totals, starts(span.lanes)), before(build.seq(stmts)), *together]

            return body

        start = self._sweep(lambda span, _: store(span, starts(span.lanes)))
        return [start, self._deep(2 if is_costly(statistic) else 8, several)]

    def _deep(self, count: int, body: Callable[[Callable[[Stmt], Stmt]], Body]) -> Stmt:
        """Loops over the elements of a row around those over columns, `count` elements a step.

        body: makes the body of the loop over columns from what puts a statement into the loop over a step's elements.
        Each step writes the totals once: loads of elements that lie a multiple of 4 KiB from a total just written would
        wait for it.
        """
        if not self.layout.inner:
            return self._sweep(body(lambda stmt: stmt))
        loop, extent = self.layout.inner[-1], self.extents[-1]
        base, number = build.size_var("base"), build.size_var("number")

        def step(stmt: Stmt) -> Stmt:
            inside = build.seq([Declare(loop.var, base + number), stmt])
            return For(number, build.index(0), build.index(count), inside, kind="unroll")

        whole = build.binary("truncdiv", extent, build.index(count)) * count
        main = For(base, build.index(0), whole, self._sweep(body(step)), step=count)
        rest = For(loop.var, whole, extent - whole, self._sweep(body(lambda stmt: stmt)))
        return self._around(build.seq([main, rest]), self.layout.inner[:-1])

    def _finish(self, statistic: Statistic) -> Stmt:
        """Turn totals into the statistic's results; columns of one row are reduced first and get the same."""
        arrays, combiner = self._arrays(statistic), statistic.combiner
        finished = tuple(self.finished)

        def made(span: Span, bindings: dict[Var, Expr]) -> tuple[list[Stmt], list[Var]] | None:
            """The results, each of which may use those before it."""
            stmts: list[Stmt] = []
            results = []
            for variable, finish in statistic.results:
                value = self.memory.read(finish, span, bindings)
                if value is None:
                    return None
                result = Var(variable.name, value.type)
                stmts.append(Declare(result, value))
                results.append(result)
                bindings = {**bindings, variable: result}
            return stmts, results

        def body(span: Span, _: int) -> list[Stmt] | None:
            place = span.start - self.first
            totals = [Var("total", with_lanes(t.dtype, span.lanes)) for t in statistic.totals]
            loads = [build.load(array, place, lanes=span.lanes) for array in arrays]
            found = made(span, {**self._bindings(span, finished), **dict(zip(statistic.totals, totals, strict=True))})
            if found is None:
                return None
            stores = [Store(array, (place,), value) for array, value in zip(arrays, found[1], strict=True)]
            return [*map(Declare, totals, loads), *found[0], *stores]

        if self.columns.width == 1:
            return self._sweep(body)
        group, column = build.size_var("group"), build.size_var("column")
        start = group * self.width
        totals = [Var("total", total.dtype) for total in statistic.totals]
        reduction = combiner.combine(totals, [build.load(array, start + column) for array in arrays])
        bindings = self._bindings(Span(group, start + self.first), finished)
        found = made(Span(group, group), {**bindings, **dict(zip(statistic.totals, totals, strict=True))})
        assert found is not None, "one element is always read"
        write = [Store(array, (start + column,), value) for array, value in zip(arrays, found[1], strict=True)]
        stmts = [
            *map(Declare, totals, combiner.identity([total.dtype for total in totals])),
            For(column, build.index(0), self.width, build.seq(map(Assign, totals, reduction))),
            *found[0],
            For(column, build.index(0), self.width, build.seq(write)),
        ]
        return For(group, build.index(0), self._groups(self.count), build.seq(stmts))

    def _groups(self, columns: Expr) -> Expr:
        return build.binary("truncdiv", columns, self.width)

    def _output(self, output: RowOutput, content: Content) -> Stmt:
        def element(span: Span, _: int) -> list[Stmt] | None:
            loaded = content(span)
            held = Var("x", with_lanes(self.program.dtype, span.lanes))
            bindings = {**self._bindings(span, self.finished), self.program.held: held}
            value = self.memory.read(output.value, span, bindings)
            store = None if value is None else self.memory.store(output, span, value)
            return None if loaded is None or store is None else [Declare(held, loaded), store]

        def statistic(span: Span, _: int) -> list[Stmt] | None:
            value = self._read(output.value, span)
            store = None if value is None else self.memory.store(output, span, value)
            return None if store is None else [store]

        if not output.per_row:
            return self._around(self._sweep(element, 2), self.layout.inner)
        if self.columns.width == 1:
            return self._sweep(statistic)
        group = self.columns.group
        value = self.memory.read(
            output.value, Span(group, group), self._bindings(Span(group, group * self.width), self.finished)
        )
        assert value is not None
        store = self.memory.store(output, Span(group, group), value)
        assert store is not None
        return For(group, self._groups(self.first), self._groups(self.count), store)

    def _sweep(self, body: Body, unroll: int = 1) -> Stmt:
        """A loop over the columns of the block."""
        return sweep(self.columns.loop.var, self.first, self.count, self.lanes, unroll, body)

    def _around(self, body: Stmt, loops: Sequence[Loop]) -> Stmt:
        """Loops over elements of a row around `body`."""
        for loop, extent in reversed(list(zip(loops, self.extents, strict=False))):
            body = For(loop.var, build.index(0), extent, body)
        return body


def _local(name: str, dtype: DType, elements: int) -> Var:
    return Var(name, BufferType(dtype, (build.index(elements),), space="local"))
