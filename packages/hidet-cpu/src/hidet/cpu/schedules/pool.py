"""Pooling: reductions over windows whose positions are index formulas, vectorised along an axis they do not touch.

    for every block of the other axes                      a work item
      for every group of vectors along the chosen axis
        for the taps of the window: accumulators = combine(accumulators, elements)
        finish and store

The chosen axis lies contiguously in the input and the output, as channels do in channels-last order. Without such an
axis elements are computed one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Compute, Operand
from hidet.context import CompileContext
from hidet.cpu.schedules.cost_items import shared_seconds, task_bytes
from hidet.cpu.schedules.gemm_lanes import Leaf, lane_wise
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.pack import decode
from hidet.dims import Dim, DimExpr
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Const, Expr, Reduce, Size, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Stmt
from hidet.ir.visit import accesses, walk
from hidet.schedule.cost import extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.inlined import inlined_value
from hidet.schedule.lowering import KernelScope, Lowering, Reader
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task

# Columns of a work item where there are few rows.
_FEW_ROWS, _ITEM_COLUMNS = 16, 256
# Cycles of a tap: of a group of vectors that are reduced at once, of each of them, and of an element beside them; where
# there are no vectors, of a row of results and of an element.
_GROUP, _VECTOR, _ELEMENT = 2.0, 1.0, 2.6
_ROW, _SINGLE = 8.0, 0.55


@dataclass(frozen=True, slots=True)
class PoolParams:
    """item_elements: that a work item reads. vectors: of results that are reduced at once, at most, to share the
    arithmetic on positions and hide the latency of one."""

    item_elements: int = 131072
    vectors: int = 4


class PoolRule(ScheduleRule[None, PoolParams]):
    """Schedules pooling of any kind and rank; the result of each window needs that window alone."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Definitions of `compute` stages on inputs in memory."""
        if any(prologue is not None for prologue in task.prologues):
            return None
        return Match(task) if all(isinstance(stage, Compute) for stage in task.definition.stages) else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[PoolParams]:
        """Elements of a work item, and results that are reduced at once."""
        return Space(
            (
                Knob("item_elements", (16384, 131072, 524288), "elements that a work item reads"),
                Knob("vectors", (1, 2, 4, 8), "vectors of results that are reduced at once, at most"),
            ),
            PoolParams,
        )

    def default(self, match: Match[None], ctx: CompileContext) -> PoolParams:
        """Some 20 us a work item."""
        return PoolParams()

    def predict(self, match: Match[None], params: PoolParams, ctx: CompileContext) -> float | None:
        """Each vector of a window's elements takes some cycles, as does each element beside whole vectors."""
        task, constants, busy, items = match.task, known_constants(ctx), 0.0, 0
        assert constants is not None
        for epilogue, tensor in zip(task.epilogues, task.outputs, strict=True):
            kernel = _Kernel(task, epilogue, tensor.type, ctx.target.vector_bits, params)
            cycles, launched = kernel.cycles()
            busy += cycles * constants.cycle
            items += launched
        return shared_seconds(busy, task_bytes(task), items, constants, ctx.options.threads or constants.cores)

    def build(self, match: Match[None], params: PoolParams, ctx: CompileContext) -> Program:
        """One kernel an output."""
        task = match.task
        builder = ProgramBuilder(task)
        for number, (epilogue, tensor) in enumerate(zip(task.epilogues, task.outputs, strict=True)):
            kernel = _Kernel(task, epilogue, tensor.type, ctx.target.vector_bits, params)
            kernel.launch(builder, f"pool{number}")
        return builder.program()


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """The axis to vectorise along, how many elements go together, and how those from `start` on are computed.

    reduced: the reductions whose results `value` uses.
    """

    position: int
    lanes: int
    start: Var
    reduced: Stmt
    value: Expr


class _Kernel:
    def __init__(self, task: Task, epilogue: Compute, output: TensorType, vector_bits: int, params: PoolParams) -> None:
        self.epilogue, self.output, self.vector_bits, self.params = epilogue, output, vector_bits, params
        self.value = inlined_value(task, epilogue)
        self.strides = {t.operand: t.type.element_strides for t in task.inputs}
        self.scope = KernelScope()
        self.pointers = {t.operand: self.scope.pointer(t.operand.name, t.operand.dtype) for t in task.inputs}
        self.result = self.scope.pointer(epilogue.result.name, epilogue.result.dtype)
        self.known = {
            operand: [self.scope.size(stride, "stride") for stride in strides]
            for operand, strides in self.strides.items()
        }
        self.lowering = Lowering(self.scope, {})
        for operand, pointer in self.pointers.items():
            self.lowering.readers[operand] = self._reader(operand, pointer)

    def _reader(self, operand: Operand, pointer: Var) -> Reader:
        return lambda indices: build.load(pointer, build.flatten(indices, self.known[operand]))

    def cycles(self) -> tuple[float, int]:
        """What all results take about, and how many work items they are."""
        column = self._column()
        _, rows, width = self._loops(column)
        taps, lanes = _taps(self.value), 1 if column is None else column.lanes
        count, columns = extent_estimate(rows), extent_estimate(width)
        block, of_item = _item(rows, width, taps, self.params.item_elements)
        whole, rest = divmod(columns, lanes)
        vectors = -(-lanes * 32 // self.vector_bits)
        each = whole * (_GROUP + vectors * _VECTOR) + rest * _ELEMENT
        if column is None:
            each = _ROW + columns * _SINGLE
        return count * taps * each, max(1, -(-count // block)) * max(1, -(-columns // of_item))

    def _loops(self, column: _Column | None) -> tuple[int, Dim, Dim]:
        """The axis of columns, how many rows of them there are, and how many columns."""
        extents = self.output.shape
        position = len(extents) - 1 if column is None else column.position
        rows = dims.product([extent for n, extent in enumerate(extents) if n != position])
        return position, rows, extents[position] if extents else 1

    def launch(self, builder: ProgramBuilder, name: str) -> None:
        axes, extents = self.epilogue.axes, self.output.shape
        column = self._column()
        position, rows, width = self._loops(column)
        others = [n for n in range(len(axes)) if n != position]
        taps = _taps(self.value)
        block, columns = _item(rows, width, taps, self.params.item_elements)

        row_block, column_block, row = (build.size_var(n) for n in ("row_block", "column_block", "row"))
        all_rows, all_columns = parameter(self.scope, rows, "rows"), parameter(self.scope, width, "columns")
        block_rows, block_columns = parameter(self.scope, block, "block"), parameter(self.scope, columns, "block")
        counted = [parameter(self.scope, extents[n], "extent") if n != others[0] else None for n in others]
        digits = decode(row, counted)
        target = [self.scope.size(stride, "stride") for stride in self.output.element_strides]
        first, start = column_block * block_columns, row_block * block_rows
        k = IRBuilder()
        with k.loop(row, build.minimum(block_rows, all_rows - start), start):
            for n, digit in zip(others, digits, strict=True):
                k.declare(axes[n], digit)
            self._columns(k, column, position, target, first, build.minimum(block_columns, all_columns - first))
        function = Function(name, self.scope.params, k.body, kind="kernel", grid_vars=(row_block, column_block))
        pointers = (*(builder.pointers[operand] for operand in self.pointers), builder.pointers[self.epilogue.result])
        grid = (dims.ceildiv(rows, block), dims.ceildiv(width, columns))
        elements = dims.minimum(columns, width) * (block * taps)
        cost = dims.maximum(1, dims.floordiv(elements, 8 if column is not None else 1))
        builder.launch(function, pointers, self.scope, grid, cost)

    def _columns(
        self, k: IRBuilder, column: _Column | None, position: int, target: Sequence[Expr], first: Expr, count: Expr
    ) -> None:
        """Loops over the columns of one row."""
        if not self.epilogue.axes:
            self._element(k, target)
            return
        axis = self.epilogue.axes[position]
        if column is None:
            with k.loop(axis, count, first):
                self._element(k, target)
            return
        lanes = column.lanes
        place = build.flatten([column.start if other is axis else other for other in self.epilogue.axes], target)
        whole = build.binary("truncdiv", count, build.index(lanes))
        with k.for_range("number", whole) as number:
            k.declare(column.start, first + number * lanes)
            k.emit(column.reduced)
            k.store(self.result, place, column.value)
        if dims.divisibility(self.output.shape[position]) % lanes:
            done = whole * lanes
            with k.loop(axis, count - done, first + done):
                self._element(k, target)

    def _element(self, k: IRBuilder, target: Sequence[Expr]) -> None:
        """One element at the axes' values."""
        before, value = self.lowering.statements(self.lowering.resolve(self.value, {}))
        k.emit(*before)
        k.store(self.result, build.flatten(self.epilogue.axes, target), value)

    def _column(self) -> _Column | None:
        """An axis that is contiguous in the output and whose neighbours the value can be computed for at once."""
        bits = max(access.operand.dtype.bits for access in accesses(self.value))
        for position, (extent, stride) in enumerate(zip(self.output.shape, self.output.element_strides, strict=True)):
            if stride != 1 or extent == 1:
                continue
            lanes = max(1, self.vector_bits // max(32, bits))
            is_pair = any(isinstance(n, Reduce) and len(n.values) > 1 for n in walk(self.value))
            while (
                not is_pair
                and lanes < self.params.vectors * self.vector_bits // 32
                and dims.divisibility(extent) % (2 * lanes) == 0
            ):
                lanes *= 2
            column = self._vector(position, lanes)
            if column is not None:
                return column
        return None

    def _vector(self, position: int, lanes: int) -> _Column | None:
        """How `lanes` neighbours along an axis are computed at once; None when they cannot be."""
        axis, start = self.epilogue.axes[position], build.size_var("start")
        k = IRBuilder()
        accumulators: dict[tuple[Var, ...], tuple[Var, ...]] = {}

        def leaf(node: Expr) -> Expr | None:
            if isinstance(node, Access):
                return self._load(node, axis, start, lanes)
            if isinstance(node, Var):
                return None if node is axis else node
            assert isinstance(node, Reduce)
            if node.axes not in accumulators:
                made = self._reduction(k, node, leaf, lanes)
                if made is None:
                    return None
                accumulators[node.axes] = made
            return accumulators[node.axes][node.result]

        value = lane_wise(self.value, lanes, leaf)
        return None if value is None else _Column(position, lanes, start, k.body, self.lowering.resolve(value, {}))

    def _load(self, access: Access, axis: Var, start: Var, lanes: int) -> Expr | None:
        strides = self.strides[access.operand]
        is_vector = False
        indices: list[Expr] = []
        for index, stride in zip(access.indices, strides, strict=True):
            if index is axis:
                if stride not in (0, 1):
                    return None
                is_vector |= stride == 1
                indices.append(start)
            elif axis in walk(index):
                return None
            else:
                indices.append(index)
        place = build.flatten(indices, self.known[access.operand])
        return build.load(self.pointers[access.operand], place, lanes=lanes if is_vector else 1)

    def _reduction(self, k: IRBuilder, node: Reduce, leaf: Leaf, lanes: int) -> tuple[Var, ...] | None:
        """The variables that hold what a reduction gives; None when a value has no form in vectors."""
        values = [lane_wise(value, lanes, leaf) for value in node.values]
        present = [self.lowering.resolve(value, {}) for value in values if value is not None]
        if len(present) != len(values):
            return None
        starts = node.combiner.identity([value.dtype for value in present])
        accumulators = k.let_each("acc", (build.broadcast(start, lanes) for start in starts))
        # Parameters of inner loops come first.
        extents = [self._extent(extent) for extent in reversed(node.extents)]
        with ExitStack() as taps:
            for axis, extent in zip(node.axes, reversed(extents), strict=True):
                taps.enter_context(k.loop(axis, extent))
            k.assign_each(accumulators, k.let_each("next", node.combiner.combine(accumulators, present)))
        return tuple(accumulators)

    def _extent(self, extent: Expr) -> Expr:
        """Constant numbers of taps are parameters, so that windows of different sizes share a kernel."""
        if isinstance(extent, Const) and isinstance(extent.value, int):
            return parameter(self.scope, extent.value, "taps")
        return self.lowering.resolve(extent, {})


def _taps(value: Expr) -> int:
    """About how many elements one result is made of."""
    count = 1
    for node in walk(value):
        if isinstance(node, Reduce):
            sizes = [e.dim if isinstance(e, Size) else e.value if isinstance(e, Const) else 4 for e in node.extents]
            total = dims.product([size for size in sizes if isinstance(size, int | DimExpr)])
            known = total if isinstance(total, int) else dims.hint_value(total)
            count = max(count, known or 1)
    return count


def _item(rows: Dim, columns: Dim, taps: int, elements: int) -> tuple[int, int]:
    """Rows and columns of a work item."""
    known: Mapping[str, int | None] = {
        "rows": rows if isinstance(rows, int) else dims.hint_value(rows),
        "columns": columns if isinstance(columns, int) else dims.hint_value(columns),
    }
    width = max(1, known["columns"] or _ITEM_COLUMNS)
    if (known["rows"] or _FEW_ROWS) < _FEW_ROWS:
        width = min(width, _ITEM_COLUMNS)
    else:
        # All of them, also of a symbolic extent that turns out larger than its hint.
        width = max(width, elements)
    return max(1, elements // max(1, min(width, known["columns"] or _ITEM_COLUMNS) * taps)), width
