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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

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
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.types import BufferType, with_lanes
from hidet.schedule.rows import RowOutput, RowProgram, Statistic
from hidet.schedule.rule import Program
from hidet.schedule.task import Task

# Columns of a block whose elements are not kept: several cache lines of each row, and enough blocks for all threads.
STREAMED_COLUMNS = 256
# Columns of a block whose elements are kept: as many as fit, within these.
LEAST_COLUMNS, MOST_COLUMNS = 16, 256


Around = Callable[[IRBuilder], AbstractContextManager[object]]
"""Puts what is written inside into a loop, or leaves it as it is."""


def adjoining_rows(
    task: Task, program: RowProgram, layout: RowLayout, most_columns: int, lanes: int, picoseconds: int
) -> Program:
    """The program of `task`, whose layout has columns.

    most_columns: of a work item, at most MOST_COLUMNS. lanes: of a SIMD vector. picoseconds: time of one element.
    """
    columns = layout.columns
    assert columns is not None
    memory = RowMemory(task, program, layout)
    depth = dims.product([loop.extent for loop in layout.inner])
    capacity = KEPT_BYTES // program.dtype.nbytes
    wanted: Dim = STREAMED_COLUMNS
    if is_worth_keeping(program) and dims.prove_le(depth * LEAST_COLUMNS, capacity) is not False:
        fitting = dims.floordiv(capacity, dims.maximum(1, depth))
        wanted = dims.minimum(MOST_COLUMNS, dims.maximum(LEAST_COLUMNS, fitting))
    if most_columns < MOST_COLUMNS:
        wanted = dims.minimum(most_columns, wanted)
    # Blocks of whole rows whose vectors do not straddle cache lines, if there are any.
    unit = columns.width
    if isinstance(unit, int) and math.lcm(unit, LEAST_COLUMNS) <= MOST_COLUMNS:
        unit = math.lcm(unit, LEAST_COLUMNS)
    block = unit * dims.maximum(1, dims.floordiv(wanted, unit))
    item = build.size_var("item")
    step = memory.scope.size(block, "block")
    kernel = _Kernel(program, layout, columns, memory, lanes, dims.prove_le(depth * block, capacity))
    k = IRBuilder()
    k.declare(kernel.first, item * step)
    k.declare(kernel.count, build.minimum(step, memory.scope.size(columns.loop.extent, "columns") - kernel.first))
    kernel.block(k)
    grid_vars = (*(loop.var for loop in layout.outer), item)
    grid = (*(loop.extent for loop in layout.outer), dims.ceildiv(columns.loop.extent, block))
    function = Function("kernel0", memory.scope.params, k.body, kind="kernel", grid_vars=grid_vars)
    return assemble(task, memory, function, grid, dims.floordiv(block * depth * picoseconds, 1000))


class _Kernel:
    """Writes one block of columns: `first` is its first one, `count` how many it has.

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

    def block(self, k: IRBuilder) -> None:
        """One block; where the length of rows is not known, with both ways of it."""
        if self.keeps is not False:
            k.declare(self.array)
        for array in self.totals.values():
            k.declare(array)
        if self.keeps is not None:
            self._block(k, self.keeps)
            return
        with k.if_(self.depth * self.count <= self.capacity):
            self._block(k, True)
        with k.else_():
            self._block(k, False)

    def _block(self, k: IRBuilder, keeps: bool) -> None:
        self.finished = []
        content: Content = functools.partial(self._read, self.program.element)
        for number, statistic in enumerate(self.program.statistics):
            keep = keeps and (statistic.stored or number == 0)
            reduced = functools.partial(self._reduced, statistic, tuple(self.finished))
            self._reduce(k, statistic, content, reduced, keep)
            self._finish(k, statistic)
            self.finished += [variable for variable, _ in statistic.results]
            if keep:
                content = self._kept
            elif statistic.stored:
                content = composed(first_of(reduced), content)
        for output in self.program.outputs:
            self._output(k, output, content)

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

    def _reduce(self, k: IRBuilder, statistic: Statistic, content: Content, reduced: Reduced, keep: bool) -> None:
        """Leave the totals of all columns in the statistic's arrays."""
        types, combiner = [total.dtype for total in statistic.totals], statistic.combiner
        identities, arrays = combiner.identity(types), self._arrays(statistic)

        def starts(lanes: int) -> list[Expr]:
            return [build.broadcast(identity, lanes) for identity in identities]

        def start(k: IRBuilder, span: Span, _: int) -> bool:
            k.store_each(arrays, span.start - self.first, starts(span.lanes))
            return True

        def one(k: IRBuilder, span: Span, totals: Sequence[Var]) -> bool:
            """Reduce one element of every column in a span into `totals`."""
            element = Var("x", with_lanes(self.program.dtype, span.lanes))
            loaded, values = content(span), reduced(span, element)
            if loaded is None or values is None:
                return False
            k.declare(element, loaded)
            results = [k.let("value", value) for value in values]
            if keep:
                kept = results[0] if statistic.stored else element
                k.store(self.array, self._position(span), kept, span.mask)
            k.assign_each(totals, combiner.combine(totals, results))
            return True

        def several(around: Around) -> Body:
            def body(k: IRBuilder, span: Span, _: int) -> bool:
                totals = [k.let("total", value) for value in starts(span.lanes)]
                with around(k):
                    if not one(k, span, totals):
                        return False
                place = span.start - self.first
                known = [build.load(array, place, lanes=span.lanes) for array in arrays]
                k.store_each(arrays, place, combiner.combine(known, totals))
                return True

            return body

        self._sweep(k, start)
        self._deep(k, 2 if is_costly(statistic) else 8, several)

    def _deep(self, k: IRBuilder, count: int, body: Callable[[Around], Body]) -> None:
        """Loops over the elements of a row around those over columns, `count` elements a step.

        body: makes the body of the loop over columns from the loop over a step's elements. Each step writes the totals
        once: loads of elements that lie a multiple of 4 KiB from a total just written would wait for it.
        """
        if not self.layout.inner:
            self._sweep(k, body(nullcontext))
            return
        loop, extent = self.layout.inner[-1], self.extents[-1]
        base, number = build.size_var("base"), build.size_var("number")

        @contextmanager
        def step(k: IRBuilder) -> Iterator[None]:
            with k.loop(number, count, kind="unroll"):
                k.declare(loop.var, base + number)
                yield

        whole = build.binary("truncdiv", extent, build.index(count)) * count
        with self._around(k, self.layout.inner[:-1]):
            with k.loop(base, whole, step=count):
                self._sweep(k, body(step))
            with k.loop(loop.var, extent - whole, whole):
                self._sweep(k, body(nullcontext))

    def _finish(self, k: IRBuilder, statistic: Statistic) -> None:
        """Turn totals into the statistic's results; columns of one row are reduced first and get the same."""
        arrays, combiner = self._arrays(statistic), statistic.combiner
        finished = tuple(self.finished)

        def made(k: IRBuilder, span: Span, bindings: dict[Var, Expr]) -> list[Var] | None:
            """The results, each of which may use those before it."""
            results = []
            for variable, finish in statistic.results:
                value = self.memory.read(finish, span, bindings)
                if value is None:
                    return None
                results.append(k.let(variable.name, value))
                bindings = {**bindings, variable: results[-1]}
            return results

        def body(k: IRBuilder, span: Span, _: int) -> bool:
            place = span.start - self.first
            totals = [k.let("total", build.load(array, place, lanes=span.lanes)) for array in arrays]
            bindings = {**self._bindings(span, finished), **dict(zip(statistic.totals, totals, strict=True))}
            found = made(k, span, bindings)
            if found is None:
                return False
            k.store_each(arrays, place, found)
            return True

        if self.columns.width == 1:
            self._sweep(k, body)
            return
        column = build.size_var("column")
        with k.for_range("group", self._groups(self.count)) as group:
            start = group * self.width
            totals = [k.let("total", value) for value in combiner.identity([t.dtype for t in statistic.totals])]
            with k.loop(column, self.width):
                k.assign_each(totals, combiner.combine(totals, [build.load(array, start + column) for array in arrays]))
            bindings = self._bindings(Span(group, start + self.first), finished)
            found = made(k, Span(group, group), {**bindings, **dict(zip(statistic.totals, totals, strict=True))})
            assert found is not None, "one element is always read"
            with k.loop(column, self.width):
                k.store_each(arrays, start + column, found)

    def _groups(self, columns: Expr) -> Expr:
        return build.binary("truncdiv", columns, self.width)

    def _output(self, k: IRBuilder, output: RowOutput, content: Content) -> None:
        def element(k: IRBuilder, span: Span, _: int) -> bool:
            loaded = content(span)
            held = Var("x", with_lanes(self.program.dtype, span.lanes))
            bindings = {**self._bindings(span, self.finished), self.program.held: held}
            value = self.memory.read(output.value, span, bindings)
            store = None if value is None else self.memory.store(output, span, value)
            if loaded is None or store is None:
                return False
            k.declare(held, loaded)
            k.emit(store)
            return True

        def statistic(k: IRBuilder, span: Span, _: int) -> bool:
            value = self._read(output.value, span)
            store = None if value is None else self.memory.store(output, span, value)
            if store is not None:
                k.emit(store)
            return store is not None

        if not output.per_row:
            with self._around(k, self.layout.inner):
                self._sweep(k, element, 2)
            return
        if self.columns.width == 1:
            self._sweep(k, statistic)
            return
        group = self.columns.group
        bindings = self._bindings(Span(group, group * self.width), self.finished)
        value = self.memory.read(output.value, Span(group, group), bindings)
        assert value is not None
        store = self.memory.store(output, Span(group, group), value)
        assert store is not None
        with k.loop(group, self._groups(self.count), self._groups(self.first)):
            k.emit(store)

    def _sweep(self, k: IRBuilder, body: Body, unroll: int = 1) -> None:
        """A loop over the columns of the block."""
        sweep(k, self.columns.loop.var, self.first, self.count, self.lanes, unroll, body)

    @contextmanager
    def _around(self, k: IRBuilder, loops: Sequence[Loop]) -> Iterator[None]:
        """Loops over elements of a row."""
        with ExitStack() as around:
            for loop, extent in zip(loops, self.extents, strict=False):
                around.enter_context(k.loop(loop.var, extent))
            yield


def _local(name: str, dtype: DType, elements: int) -> Var:
    return Var(name, BufferType(dtype, (build.index(elements),), space="local"))
