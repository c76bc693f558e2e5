"""The kernel of a row program: a row is read once, its statistics are reduced, its results written.

    for what this thread reads of its row: into registers
    for every statistic: reduce what the thread has, then over the threads that share the row
    for what this thread has of its row: results

Rows that do not fit the registers are read again for every statistic. Of many long rows a block takes one after the
other. It copies the next one to shared memory, in the background, as soon as it has this one in registers: memory is
not idle while threads exchange statistics. A thread copies what it reads itself; what results of all rows read, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from hidet import dims
from hidet.compute.definition import Combiner, Operand
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.exchange import (
    WARP,
    barrier,
    block_number,
    reduce_lanes,
    reduce_warps,
    shared,
    thread_in_block,
)
from hidet.gpu.schedules.items import decode_item, word_for
from hidet.gpu.schedules.lanes import LaneReader, Reads, registers
from hidet.gpu.schedules.pointwise_kernel import store_lanes
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.row_layout import SIDE, RowLayout, Strides, expressions, program_axes
from hidet.gpu.weights import with_weights
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Const, Expr, Load, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.ir.visit import accesses
from hidet.schedule.lowering import KernelScope, Lowering, accumulate
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
        self.weights = [pointer for operand, pointer in pointers.items() if operand in builder.weights]
        self.results = {o.result: self.scope.pointer(o.result.name, o.result.dtype) for o in self.program.outputs}
        self.outer = [memory[operand] for operand in (*pointers, *self.results)]
        self.reader = LaneReader(self.lowering, strides, program_axes(self.program), layout.axis, layout.lanes)
        self.places = {
            output: [self.scope.size(stride, "stride") for stride in output.strides] for output in self.program.outputs
        }
        self.width = layout.lanes if layout.is_side_by_side else 1
        self.lane = self.reader.lane if layout.is_side_by_side else build.index(0)
        self.is_mine: Expr = build.logical_and()
        self.staged: dict[Access, Expr] = {}
        self.repeated: dict[Access, Expr] = {}
        self.first, self.copy = build.size_var("first"), build.size_var("copy")
        self.count = self.scope.size(layout.places, "places")
        self.inner_extents = [self.scope.size(extent, "inner") for extent in layout.inner_extents]
        count = dims.product(layout.inner_extents)
        # Registers are for rows of one length, if that is known, and divisions by a number take fewer instructions.
        is_known = isinstance(count, int) and layout.copies > 0
        self.bindings: dict[Var, Expr] = {
            self.program.count: build.index(count) if is_known else self.scope.size(count, "count")
        }
        is_even = not layout.across or layout.threads % layout.across == 0
        self.is_exact = is_even and layout.copies > 0 and dims.prove_equal(layout.places, layout.most) is True
        self.held = registers("held", self.program.dtype, layout.copies * layout.lanes)
        self.slot = self.copy * layout.lanes + self.reader.lane

    def launch(self) -> Launch:
        """The kernel, and its launch."""
        layout, k = self.layout, IRBuilder()
        # Warps that share a row meet in memory of the block, which then has no other row.
        own = layout.threads if layout.threads > WARP else _BLOCK
        threads = layout.threads * SIDE if layout.is_side_by_side else own
        teams = threads // layout.threads
        self._find_thread(k, teams)
        if layout.blocks:
            self._walk_rows(k, layout.blocks)
        else:
            self._read_early(k)
            item = block_number() * teams + self.team if teams > 1 else block_number()
            self._find_row(k, k.let("item", item), teams)
            self._read_elements(k)
            self._finish_row(k)
        attributes = (("min_blocks", layout.resident),) if layout.blocks else ()
        function = Function(self.builder.name(), self.scope.params, k.body, kind="kernel", attributes=attributes)
        function = with_weights(function, self.weights)
        blocks = (
            build.index(layout.blocks) if layout.blocks else (self.builder.size(layout.items) + (teams - 1)) // teams
        )
        return self.builder.launch(function, self.outer, self.scope.arguments, (blocks,), threads)

    def _walk_rows(self, k: IRBuilder, blocks: int) -> None:
        """Work on every row that this one of `blocks` blocks takes."""
        length, layout = self.layout.inner_extents[0], self.layout
        assert isinstance(length, int)
        coming = {access: shared("coming", access.dtype, length) for access in layout.staged}
        once = {access: shared("repeated", access.dtype, length) for access in layout.copied_once}
        for array in (*coming.values(), *once.values()):
            k.declare(array)
        self.staged, self.repeated = (
            {access: build.load(array, self.first) for access, array in arrays.items()} for arrays in (coming, once)
        )
        block = k.let("block", block_number())
        self._copy_row(k, block, {**coming, **once})
        with k.for_range("item", self.items - block, block, blocks) as item:
            self._find_row(k, item, 1)
            k.run(intrinsic_call("gpu.copy_async_finish"))
            self._read_elements(k)
            with k.if_(item < self.items - blocks):
                self._copy_row(k, item + blocks, coming)
            self._finish_row(k)
            # Statistics of the next row are exchanged in the same memory, each in its own: where there are several,
            # all threads have read one when they meet for the next.
            if len(self.program.statistics) == 1:
                k.emit(barrier())

    def _copy_row(self, k: IRBuilder, number: Expr, arrays: Mapping[Access, Var]) -> None:
        """Begin to copy what this thread reads of a row to arrays of the block."""
        (row,), (column,) = self.layout.outer, self.layout.inner
        with self._sweep(k):
            for access, array in arrays.items():
                source = self.lowering.resolve(access, {row: number, column: self.first})
                assert isinstance(source, Load)
                target = build.address(array, self.first)
                k.run(intrinsic_call("gpu.copy_async", target, build.address(source.buffer, *source.indices)))

    def _read_early(self, k: IRBuilder) -> None:
        """Read what results of all rows read to registers, before the row."""
        layout = self.layout
        arrays = {
            access: registers("early", access.dtype, layout.copies * layout.lanes) for access in layout.read_early
        }
        if not arrays:
            return
        place = self.copy * layout.lanes
        for array in arrays.values():
            k.declare(array)
        with self._sweep(k):
            for access, array in arrays.items():
                source = self.lowering.resolve(access, {layout.axis: self.first})
                assert isinstance(source, Load)
                k.store(array, place, build.load(source.buffer, *source.indices, lanes=layout.lanes))
        self.repeated = {access: build.load(array, place) for access, array in arrays.items()}

    def _finish_row(self, k: IRBuilder) -> None:
        """Statistics and results of a row that has been read."""
        for statistic in self.program.statistics:
            self._reduce(k, statistic)
            if statistic.stored:
                self.element = build.load(self.held, self.slot)
        self._write_results(k)

    def _find_thread(self, k: IRBuilder, teams: int) -> None:
        """Which of the `teams` rows of its block this thread works on, and as which of its threads."""
        layout, by_side = self.layout, self.layout.is_side_by_side
        # Blocks that stay are for rows of one number, and have no registers to spare.
        self.items = build.index(layout.items) if layout.blocks else self.scope.size(layout.items, "items")
        thread = k.let("thread", thread_in_block())
        self.member = k.let("member", thread // teams if by_side else thread % layout.threads)
        self.team = k.let("team", thread % teams if by_side else thread // layout.threads)
        self.walker = self.member
        if layout.across:
            self.walker = k.let("walker", self.member // layout.across)
            self.column = k.let("column", self.member % layout.across)

    def _find_row(self, k: IRBuilder, item: Var, teams: int) -> None:
        """The axes of row number `item`, of which a block has `teams` side by side.

        Where rows share a block, threads behind the last row work on that one, too, and write nothing.
        """
        layout, by_side = self.layout, self.layout.is_side_by_side
        axes = [*layout.outer]
        extents = [self.scope.size(extent, "outer") for extent in layout.outer_extents]
        if by_side and layout.lanes > 1:
            axes[-1] = build.size_var("group")
            extents[-1] = self.scope.size(dims.floordiv(layout.outer_extents[-1], layout.lanes), "groups")
        own = build.minimum(item, self.items - 1) if teams > 1 else item
        number = k.let("number", build.cast(own, word_for(layout.items)))
        decode_item(k, number, extents, axes)
        if teams > 1:
            self.is_mine = k.let("is_mine", item < self.items)
        if by_side and layout.lanes > 1:
            k.declare(self.first, axes[-1] * layout.lanes)
        elif by_side:
            self.first = layout.outer[-1]

    # --- reading -------------------------------------------------------------------------------------------------

    def _read_elements(self, k: IRBuilder) -> None:
        """Read the row into registers, if it stays there: as it lies in memory, or what is computed of that."""
        layout, program = self.layout, self.program
        is_kept, is_plain = layout.copies > 0, program.is_plain
        copies, copy = (layout.copies, self.copy) if is_kept and is_plain else (1, None)
        self.element_reads = self.reader.read(
            [program.element], self.first, self.bindings, copies, copy, at_hand=self.staged
        )
        self.element = self.element_reads.values[0]
        k.emit(self.element_reads.declarations)
        if not is_kept:
            return
        if not is_plain or any(statistic.stored for statistic in program.statistics):
            k.declare(self.held)
        with self._sweep(k):
            k.emit(self.element_reads.loads)
            if not is_plain:
                with self.reader.each_lane(k):
                    k.store(self.held, self.slot, self.element)
        if not is_plain:
            self.element = build.load(self.held, self.slot)

    @contextmanager
    def _sweep(self, k: IRBuilder, again: bool = False) -> Iterator[None]:
        """Do something for everything that this thread reads of its row. again: read it first, if it is not kept."""
        layout = self.layout
        # Threads that are left over walk nowhere.
        walks = self.walker < layout.walkers if layout.across else build.logical_and()
        if layout.copies:
            with k.loop(self.copy, layout.copies, kind="unroll"):
                place = k.let("place", self.copy * layout.walkers + self.walker)
                is_there = build.logical_and(walks, place < self.count)
                with nullcontext() if self.is_exact else k.if_(is_there):
                    self._find_element(k, place)
                    yield
            return
        with (
            k.if_(walks) if layout.across else nullcontext(),
            k.for_range("place", self.count - self.walker, self.walker, layout.walkers) as place,
        ):
            self._find_element(k, place)
            if again:
                k.emit(self.element_reads.loads)
            yield

    def _find_element(self, k: IRBuilder, place: Var) -> None:
        """The axes within the row at a place."""
        layout = self.layout
        if layout.across:
            k.declare(layout.inner[0], place)
            k.declare(self.first, self.column * layout.lanes)
            return
        axes, extents = [*layout.inner], [*self.inner_extents]
        if not layout.is_side_by_side:
            # The last axis is counted in groups of lanes.
            axes[-1] = build.size_var("vector")
            if len(axes) > 1:
                extents[-1] = self.scope.size(dims.floordiv(layout.inner_extents[-1], layout.lanes), "vectors")
        if len(axes) == 1:
            k.declare(axes[0], place)
        else:
            decode_item(k, k.let("number", build.cast(place, word_for(layout.reads))), extents, axes)
        if not layout.is_side_by_side:
            k.declare(self.first, axes[-1] * layout.lanes)

    # --- statistics ----------------------------------------------------------------------------------------------

    def _reduce(self, k: IRBuilder, statistic: Statistic) -> None:
        """Reduce over the row; afterwards every thread has the result."""
        combiner, types = statistic.combiner, [total.dtype for total in statistic.totals]
        reads = self._read(statistic.values)
        totals = [k.array("total", dtype, self.width) for dtype in types]
        olds = [build.load(total, self.lane) for total in totals]
        with self._each_row(k):
            k.store_each(totals, self.lane, combiner.identity(types))
        with self._sweep(k, again=True):
            k.emit(reads.declarations, reads.loads)
            with self.reader.each_lane(k):
                found = [k.let("found", value) for value in reads.values]
                if statistic.stored:
                    k.store(self.held, self.slot, found[0])
                combined = [k.let("reduced", value) for value in combiner.combine(olds, found)]
                k.store_each(totals, self.lane, combined)
        self._exchange(k, combiner, totals)
        self.bindings.update(zip(statistic.totals, olds, strict=True))
        for variable, finish in statistic.results:
            result = k.array(variable.name, variable.dtype, self.width)
            with self._each_row(k):
                k.store(result, self.lane, self.lowering.resolve(finish, self._at_lane(self.bindings)))
            self.bindings[variable] = build.load(result, self.lane)

    def _each_row(self, k: IRBuilder) -> AbstractContextManager[None]:
        """Do something for each of the thread's rows."""
        return self.reader.each_lane(k) if self.layout.is_side_by_side else nullcontext()

    def _at_lane(self, bindings: Mapping[Var, Expr]) -> dict[Var, Expr]:
        """Bindings for the row at the current lane."""
        if not self.layout.is_side_by_side or self.layout.lanes == 1:
            return dict(bindings)
        return {**bindings, self.layout.axis: self.first + self.reader.lane}

    def _read(self, values: Sequence[Expr]) -> Reads:
        """Values in the element and the statistics so far."""
        bindings = {**self.bindings, self.program.held: self.element}
        return self.reader.read(values, self.first, bindings, at_hand=self.repeated)

    def _exchange(self, k: IRBuilder, combiner: Combiner, totals: Sequence[Var]) -> None:
        """Reduce over the threads that share a row."""
        layout = self.layout
        if layout.threads == 1:
            return
        if not layout.is_side_by_side:
            whole = k.let_each("whole", [build.load(total, 0) for total in totals])
            reduce_lanes(k, combiner, whole, min(layout.threads, WARP))
            reduce_warps(k, combiner, whole, max(1, layout.threads // WARP), self.member)
            k.store_each(totals, self.lane, whole)
            return
        count = layout.threads * self.width * SIDE
        tiles = [k.array(f"parts{n}", total.dtype, count, space="shared") for n, total in enumerate(totals)]

        def place(member: Expr) -> Expr:
            return (member * self.width + self.lane) * SIDE + self.team

        with self._each_row(k):
            k.store_each(tiles, place(self.member), [build.load(total, self.lane) for total in totals])
        k.emit(barrier())
        with self._each_row(k):
            whole = k.let_each("whole", [build.load(tile, place(build.index(0))) for tile in tiles])
            with k.for_range("other", layout.threads - 1, 1) as other:
                k.emit(*accumulate(combiner, whole, [build.load(tile, place(other)) for tile in tiles]))
            k.store_each(totals, self.lane, whole)

    # --- results -------------------------------------------------------------------------------------------------

    def _write_results(self, k: IRBuilder) -> None:
        elements = [output for output in self.program.outputs if not output.per_row]
        if elements:
            is_written = self.is_mine
            if self.layout.is_there is not None:
                is_there = self.lowering.resolve(self.layout.is_there, {self.layout.axis: self.first})
                is_written = build.logical_and(is_written, is_there)
            with (
                self._sweep(k, again=True),
                nullcontext() if isinstance(is_written, Const) else k.if_(is_written),
            ):
                self._write(k, elements)
        rows = [output for output in self.program.outputs if output.per_row]
        if not rows:
            return
        with k.if_(build.logical_and(build.equal(self.member, 0), self.is_mine)):
            if self.layout.is_side_by_side:
                self._write(k, rows)
                return
            for output in rows:
                value = self.lowering.resolve(output.value, self.bindings)
                k.store(self.results[output.result], self._place(output, {}), value)

    def _write(self, k: IRBuilder, outputs: Sequence[RowOutput]) -> None:
        """Write the neighbours."""
        reads = self._read([output.value for output in outputs])
        k.emit(reads.declarations, reads.loads)
        for output, value in zip(outputs, reads.values, strict=True):
            place = self._place(output, {self.layout.axis: self.first})
            store_lanes(k, self.reader, self.results[output.result], place, value)

    def _place(self, output: RowOutput, bindings: Mapping[Var, Expr]) -> Expr:
        """Where an element of a result lies."""
        return build.flatten([self.lowering.resolve(index, bindings) for index in output.indices], self.places[output])
