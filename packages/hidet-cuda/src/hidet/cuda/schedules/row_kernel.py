"""The kernel of a row program: a row is read once, its statistics are folded, its results written.

    for what this thread reads of its row: into registers
    for every statistic: fold what the thread has, then over the threads that share the row
    for what this thread has of its row: results

Rows that do not fit the registers are read again for every statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hidet import dims, dtypes
from hidet.compute.definition import Combiner, Operand
from hidet.cuda.schedules.exchange import WARP, barrier, fold_lanes, fold_warps, shared
from hidet.cuda.schedules.lanes import LaneReader, Reads, registers
from hidet.cuda.schedules.point_kernel import digits, store_lanes, word_for
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.cuda.schedules.row_layout import SIDE, RowLayout, Strides, expressions, program_axes
from hidet.ir import build
from hidet.ir.expr import Access, Cast, Const, Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Declare, For, If, Launch, Stmt, Store
from hidet.ir.visit import accesses
from hidet.schedule.lowering import KernelScope, Lowering, folded
from hidet.schedule.rows import RowOutput, Statistic

_BLOCK = 128
"""Threads of a block whose warps work on rows of their own."""


def launch_rows(
    builder: ProgramBuilder, layout: RowLayout, strides: Strides, pointers: Mapping[Operand, Expr]
) -> Launch:
    """The kernel of a layout, and its launch. strides: of the operands that are read; pointers: where all lie."""
    return _RowKernel(builder, layout, strides, pointers).launch()


class _RowKernel:
    def __init__(
        self, builder: ProgramBuilder, layout: RowLayout, strides: Strides, memory: Mapping[Operand, Expr]
    ) -> None:
        self.builder, self.layout, self.program = builder, layout, layout.program
        self.scope = KernelScope()
        self.lowering = Lowering(self.scope, {})
        read = dict.fromkeys(access.operand for value in expressions(self.program) for access in accesses(value))
        pointers = {operand: self.scope.pointer(operand.name, operand.dtype) for operand in read}
        for operand, pointer in pointers.items():
            self.lowering.buffer(operand, pointer, strides[operand])
        self.results = {o.result: self.scope.pointer(o.result.name, o.result.dtype) for o in self.program.outputs}
        self.outer = [memory[operand] for operand in (*pointers, *self.results)]
        self.reader = LaneReader(self.lowering, strides, program_axes(self.program), layout.axis, layout.lanes)
        self.places = {
            output: [self.scope.size(stride, "stride") for stride in output.strides] for output in self.program.outputs
        }
        self.width = layout.lanes if layout.is_side_by_side else 1
        self.lane = self.reader.lane if layout.is_side_by_side else build.index(0)
        self.member, self.team = build.size_var("member"), build.size_var("team")
        self.is_mine: Expr = build.logical_and()
        self.first, self.copy = build.size_var("first"), build.size_var("copy")
        self.count = self.scope.size(layout.places, "places")
        self.walker, self.column = self.member, build.size_var("column")
        if layout.across:
            self.walker = build.size_var("walker")
        self.inner_extents = [self.scope.size(extent, "inner") for extent in layout.inner_extents]
        self.bindings: dict[Var, Expr] = {
            self.program.count: self.scope.size(dims.product(layout.inner_extents), "count")
        }
        is_even = not layout.across or layout.threads % layout.across == 0
        self.is_exact = is_even and layout.copies > 0 and dims.prove_equal(layout.places, layout.most) is True

    def launch(self) -> Launch:
        """The kernel, and its launch."""
        layout = self.layout
        # Warps that share a row meet in memory of the block, which then has no other row.
        own = layout.threads if layout.threads > WARP else _BLOCK
        threads = layout.threads * SIDE if layout.is_side_by_side else own
        teams = threads // layout.threads
        head = self._find_row(threads, teams)
        stmts = [*head, *self._element(), *self._statistics(), *self._results()]
        function = Function(self.builder.name(), self.scope.params, build.seq(stmts), kind="kernel")
        blocks = (self.builder.size(layout.items) + (teams - 1)) // teams
        return self.builder.launch(function, self.outer, self.scope.arguments, (blocks,), threads)

    def _find_row(self, threads: int, teams: int) -> list[Stmt]:
        """Which row this thread works on, and as which of its threads.

        Where rows share a block, threads behind the last row work on that one, too, and write nothing.
        """
        layout, thread, item = self.layout, build.size_var("thread"), build.size_var("item")
        block, own = (build.cast(intrinsic_call(f"cuda.{name}.x"), dtypes.i64) for name in ("block_idx", "thread_idx"))
        by_side = layout.is_side_by_side
        if teams > 1:
            self.is_mine = Var("is_mine", dtypes.boolean)
        items = self.scope.size(layout.items, "items")
        axes = [*layout.outer]
        extents = [self.scope.size(extent, "outer") for extent in layout.outer_extents]
        if by_side and layout.lanes > 1:
            axes[-1] = build.size_var("group")
            extents[-1] = self.scope.size(dims.floordiv(layout.outer_extents[-1], layout.lanes), "groups")
        word = word_for(layout.items)
        number = Var("number", word)
        stmts: list[Stmt] = [
            Declare(thread, own),
            Declare(self.member, thread // teams if by_side else thread % layout.threads),
            Declare(self.team, thread % teams if by_side else thread // layout.threads),
            Declare(item, block * teams + self.team if teams > 1 else block),
            Declare(number, build.cast(build.minimum(item, items - 1) if teams > 1 else item, word)),
            *digits(number, extents, axes),
        ]
        if isinstance(self.is_mine, Var):
            stmts.append(Declare(self.is_mine, item < items))
        if layout.across:
            stmts.append(Declare(self.walker, self.member // layout.across))
            stmts.append(Declare(self.column, self.member % layout.across))
        if by_side and layout.lanes > 1:
            stmts.append(Declare(self.first, axes[-1] * layout.lanes))
        elif by_side:
            self.first = layout.outer[-1]
        return stmts

    # --- reading -------------------------------------------------------------------------------------------------

    def _element(self) -> list[Stmt]:
        """Read the row into registers, if it stays there: as it lies in memory, or what is computed of that."""
        layout, program = self.layout, self.program
        is_kept = layout.copies > 0
        is_plain = _is_plain(program.element)
        is_stored = any(statistic.stored for statistic in program.statistics)
        whole = is_kept and is_plain
        self.element_reads = self.reader.read(
            [program.element],
            self.first,
            self.bindings,
            layout.copies if whole else 1,
            self.copy if whole else None,
        )
        self.element = self.element_reads.values[0]
        self.held: Var | None = None
        stmts = list(self.element_reads.declarations)
        if not is_kept:
            return stmts
        if is_stored or not is_plain:
            self.held = registers("held", program.dtype, layout.copies * layout.lanes)
            stmts.append(Declare(self.held))
        if is_plain:
            return [*stmts, self._sweep(lambda: self.element_reads.loads)]
        kept = self.reader.each([self._keep(self.element)])
        stmts.append(self._sweep(lambda: [*self.element_reads.loads, kept]))
        self.element = self._kept()
        return stmts

    def _keep(self, value: Expr) -> Stmt:
        assert self.held is not None
        return Store(self.held, (self.copy * self.layout.lanes + self.reader.lane,), value)

    def _kept(self) -> Expr:
        assert self.held is not None
        return build.load(self.held, self.copy * self.layout.lanes + self.reader.lane)

    def _sweep(self, body: Callable[[], Sequence[Stmt]], again: bool = False) -> Stmt:
        """Do something for everything that this thread reads of its row. again: read it first, if it is not kept."""
        layout = self.layout
        place = build.size_var("place")
        position = self.first if not layout.is_side_by_side else None
        own = body()
        # Threads that are left over walk nowhere.
        walks = self.walker < layout.walkers if layout.across else build.logical_and()
        if layout.copies:
            inner = build.seq([*self._position(place, position), *own])
            if not self.is_exact:
                inner = If(build.logical_and(walks, place < self.count), inner)
            here = Declare(place, self.copy * layout.walkers + self.walker)
            return For(self.copy, build.index(0), build.index(layout.copies), build.seq([here, inner]), kind="unroll")
        loads = self.element_reads.loads if again else []
        inner = build.seq([*self._position(place, position), *loads, *own])
        loop = For(place, self.walker, self.count - self.walker, inner, step=layout.walkers)
        return loop if isinstance(walks, Const) else If(walks, loop)

    def _position(self, place: Var, position: Var | None) -> list[Stmt]:
        """The axes within the row at a place."""
        layout = self.layout
        if layout.across and position is not None:
            return [Declare(layout.inner[0], place), Declare(position, self.column * layout.lanes)]
        axes = list(layout.inner)
        extents = list(self.inner_extents)
        if position is not None:
            # The last axis is counted in groups of lanes.
            axes[-1] = build.size_var("vector")
            if len(axes) > 1:
                extents[-1] = self.scope.size(dims.floordiv(layout.inner_extents[-1], layout.lanes), "vectors")
        if len(axes) == 1:
            stmts: list[Stmt] = [Declare(axes[0], place)]
        else:
            word = word_for(layout.reads)
            number = Var("number", word)
            stmts = [Declare(number, build.cast(place, word)), *digits(number, extents, axes)]
        return [*stmts, Declare(position, axes[-1] * layout.lanes)] if position is not None else stmts

    # --- statistics ----------------------------------------------------------------------------------------------

    def _statistics(self) -> list[Stmt]:
        stmts: list[Stmt] = []
        for statistic in self.program.statistics:
            stmts += self._statistic(statistic)
            if statistic.stored:
                self.element = self._kept()
        return stmts

    def _statistic(self, statistic: Statistic) -> list[Stmt]:
        """Fold over the row; afterwards every thread has the result."""
        combiner, types = statistic.combiner, [total.dtype for total in statistic.totals]
        totals = [registers("total", dtype, self.width) for dtype in types]
        olds = [build.load(total, self.lane) for total in totals]
        reads = self._read(statistic.values)

        def fold() -> list[Stmt]:
            found = [Var("found", value.dtype) for value in reads.values]
            made: list[Stmt] = [Declare(var, value) for var, value in zip(found, reads.values, strict=True)]
            if statistic.stored:
                made.append(self._keep(found[0]))
            fresh = [Var("folded", dtype) for dtype in types]
            combined = combiner.combine(olds, found)
            made += [Declare(var, value) for var, value in zip(fresh, combined, strict=True)]
            made += [Store(total, (self.lane,), var) for total, var in zip(totals, fresh, strict=True)]
            return [*reads.declarations, *reads.loads, self.reader.each(made)]

        pairs = zip(totals, combiner.identity(types), strict=True)
        starts = [Store(total, (self.lane,), identity) for total, identity in pairs]
        stmts: list[Stmt] = [*map(Declare, totals), self._each_row(starts), self._sweep(fold, again=True)]
        stmts += self._exchange(combiner, totals)
        self.bindings.update(zip(statistic.totals, olds, strict=True))
        for variable, finish in statistic.results:
            result = registers(variable.name, variable.dtype, self.width)
            finished = Store(result, (self.lane,), self.lowering.resolve(finish, self._at_lane(self.bindings)))
            stmts += [Declare(result), self._each_row([finished])]
            self.bindings[variable] = build.load(result, self.lane)
        return stmts

    def _each_row(self, body: Sequence[Stmt]) -> Stmt:
        """Do something for each of the thread's rows."""
        return self.reader.each(body) if self.layout.is_side_by_side else build.seq(body)

    def _at_lane(self, bindings: Mapping[Var, Expr]) -> dict[Var, Expr]:
        """Bindings for the row at the current lane."""
        if not self.layout.is_side_by_side or self.layout.lanes == 1:
            return dict(bindings)
        return {**bindings, self.layout.axis: self.first + self.reader.lane}

    def _read(self, values: Sequence[Expr]) -> Reads:
        """Values in the element and the statistics so far."""
        return self.reader.read(values, self.first, {**self.bindings, self.program.held: self.element})

    def _exchange(self, combiner: Combiner, totals: Sequence[Var]) -> list[Stmt]:
        """Fold over the threads that share a row."""
        layout = self.layout
        if layout.threads == 1:
            return []
        whole = [Var(f"whole{n}", total.dtype) for n, total in enumerate(totals)]
        back = [Store(total, (self.lane,), var) for total, var in zip(totals, whole, strict=True)]
        if not layout.is_side_by_side:
            stmts: list[Stmt] = [Declare(var, build.load(t, 0)) for var, t in zip(whole, totals, strict=True)]
            stmts += fold_lanes(combiner, whole, min(layout.threads, WARP))
            stmts += fold_warps(combiner, whole, max(1, layout.threads // WARP), self.member)
            return [*stmts, *back]
        count = layout.threads * self.width * SIDE
        tiles = [shared(f"parts{n}", total.dtype, count) for n, total in enumerate(totals)]

        def place(member: Expr) -> Expr:
            return (member * self.width + self.lane) * SIDE + self.team

        other = build.size_var("other")
        mine = zip(tiles, totals, strict=True)
        given = [Store(tile, (place(self.member),), build.load(total, self.lane)) for tile, total in mine]
        parts = [build.load(tile, place(other)) for tile in tiles]
        loop = For(other, build.index(1), build.index(layout.threads - 1), build.seq(folded(combiner, whole, parts)))
        starts = [Declare(var, build.load(tile, place(build.index(0)))) for var, tile in zip(whole, tiles, strict=True)]
        return [
            *map(Declare, tiles),
            self._each_row(given),
            barrier(),
            self._each_row([*starts, loop, *back]),
        ]

    # --- results -------------------------------------------------------------------------------------------------

    def _results(self) -> list[Stmt]:
        stmts: list[Stmt] = []
        elements = [output for output in self.program.outputs if not output.per_row]
        if elements:
            stmts.append(self._sweep(lambda: self._write(elements), again=True))
        rows = [output for output in self.program.outputs if output.per_row]
        if rows:
            one = build.logical_and(build.equal(self.member, 0), self.is_mine)
            stmts.append(If(one, build.seq(self._write_rows(rows))))
        return stmts

    def _write(self, outputs: Sequence[RowOutput]) -> list[Stmt]:
        reads = self._read([output.value for output in outputs])
        body = build.seq([*reads.declarations, *reads.loads, *self._stores(outputs, reads)])
        is_written = self.is_mine
        if self.layout.is_there is not None:
            is_there = self.lowering.resolve(self.layout.is_there, {self.layout.axis: self.first})
            is_written = build.logical_and(is_written, is_there)
        return [body if isinstance(is_written, Const) else If(is_written, body)]

    def _write_rows(self, outputs: Sequence[RowOutput]) -> list[Stmt]:
        if self.layout.is_side_by_side:
            reads = self._read([output.value for output in outputs])
            return [*reads.declarations, *reads.loads, *self._stores(outputs, reads)]
        stmts: list[Stmt] = []
        for output in outputs:
            value = self.lowering.resolve(output.value, self.bindings)
            indices = [self.lowering.resolve(index, {}) for index in output.indices]
            place = build.flatten(indices, self.places[output])
            stmts.append(Store(self.results[output.result], (place,), value))
        return stmts

    def _stores(self, outputs: Sequence[RowOutput], reads: Reads) -> list[Stmt]:
        """Write the neighbours."""
        stmts: list[Stmt] = []
        for output, value in zip(outputs, reads.values, strict=True):
            at = {self.layout.axis: self.first}
            indices = [self.lowering.resolve(index, at) for index in output.indices]
            place = build.flatten(indices, self.places[output])
            stmts += store_lanes(self.reader, self.results[output.result], place, value)
        return stmts


def _is_plain(element: Expr) -> bool:
    """Whether an element is one that is read, perhaps in another type."""
    while isinstance(element, Cast):
        element = element.a
    return isinstance(element, Access)
