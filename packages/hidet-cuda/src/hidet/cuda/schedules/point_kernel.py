"""Kernels whose threads compute elements independently of each other: chains, windows, filters of one channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims, dtypes
from hidet.cuda.schedules.lanes import LaneReader, paths, registers, replaced
from hidet.cuda.schedules.point_layout import Points
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Reduce, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Declare, For, If, Launch, Stmt, Store
from hidet.ir.visit import accesses
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task

_THREADS = 256
_UNROLLED = 16
"""Indices of a reduction up to which its loops are unrolled."""


def launch_points(builder: ProgramBuilder, task: Task, points: Points) -> None:
    """Compute an output: with all lanes if every address is a multiple of 16 bytes, element by element otherwise."""
    fast = launch_elements(builder, task, points, points.lanes)
    if points.lanes == 1:
        builder.run(fast)
        return
    operands = (*points.wide, points.epilogue.result)
    builder.run(builder.by_alignment(operands, fast, lambda: launch_elements(builder, task, points, 1)))


def launch_elements(builder: ProgramBuilder, task: Task, points: Points, lanes: int) -> Launch:
    """The kernel of `lanes` elements a thread, and its launch."""
    return _PointKernel(builder, task, points, lanes).launch()


def word_for(count: Dim) -> DType:
    """The type in which so many items are numbered: division is several times as fast in 32 bits."""
    upper = dims.bounds(count)[1]
    return dtypes.u32 if upper is not None and upper < 1 << 31 else dtypes.u64


def digits(item: Expr, extents: Sequence[Expr], axes: Sequence[Var]) -> list[Stmt]:
    """Each axis' index from the number of an item, which is a u32 or u64; the last axis counts fastest."""
    stmts: list[Stmt] = []
    rest = item
    for number in range(len(axes) - 1, 0, -1):
        extent, above = build.cast(extents[number], rest.dtype), Var(f"above{number}", rest.dtype)
        stmts += [
            # Told to be positive, it is divided by without a test for zero.
            Declare(above, rest // build.maximum(extent, 1)),
            Declare(axes[number], build.cast(rest - above * extent, dtypes.i64)),
        ]
        rest = above
    return [*stmts, *([Declare(axes[0], build.cast(rest, dtypes.i64))] if axes else [])]


def thread_number(word: DType, threads: int) -> Expr:
    """The number of a thread in the whole grid."""
    block, thread = (build.cast(intrinsic_call(f"cuda.{name}.x"), word) for name in ("block_idx", "thread_idx"))
    return block * threads + thread


def store_lanes(reader: LaneReader, pointer: Var, place: Expr, value: Expr) -> list[Stmt]:
    """Write the reader's neighbours, which are neighbours in memory as well, from `place` on."""
    if reader.lanes == 1:
        return [Store(pointer, (place,), value)]
    made = registers("made", pointer.dtype, reader.lanes)
    whole = build.load(made, 0, lanes=reader.lanes)
    return [Declare(made), reader.each([Store(made, (reader.lane,), value)]), Store(pointer, (place,), whole)]


class PointMemory:
    """The parameters of a kernel that computes an output, and where its tensors lie.

    outer: the arguments for the pointers. fixed: what axes of the output are that no thread counts.
    """

    def __init__(self, builder: ProgramBuilder, task: Task, points: Points) -> None:
        self.scope = KernelScope()
        operands = list(dict.fromkeys(access.operand for access in accesses(points.value)))
        self.lowering = Lowering(self.scope, {})
        pointers = {operand: self.scope.pointer(operand.name, operand.dtype) for operand in operands}
        self.result = self.scope.pointer("result", points.epilogue.result.dtype)
        self.outer = [*(builder.pointers[operand] for operand in operands), builder.pointers[points.epilogue.result]]
        self.strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        for operand, pointer in pointers.items():
            self.lowering.buffer(operand, pointer, self.strides[operand])
        self._target = [self.scope.size(stride, "stride") for stride in points.output.type.element_strides]
        self._axes, self._shape = points.epilogue.axes, points.shape
        self.fixed: dict[Var, Expr] = {axis: build.index(0) for axis in self._axes if axis not in points.axes}

    def reader(self, axis: Var, lanes: int) -> LaneReader:
        """Reads neighbours along an axis."""
        return LaneReader(self.lowering, self.strides, self._shape, axis, lanes)

    def place(self, axis: Var, first: Expr) -> Expr:
        """Where the element at the axes' values is written, `axis` being `first`."""
        axes = [self.fixed.get(other, first if other is axis else other) for other in self._axes]
        return build.flatten(axes, self._target)


class _PointKernel:
    """The kernel of `lanes` elements a thread."""

    def __init__(self, builder: ProgramBuilder, task: Task, points: Points, lanes: int) -> None:
        self.builder, self.points, self.lanes = builder, points, lanes
        self.memory = PointMemory(builder, task, points)
        self.scope, self.lowering = self.memory.scope, self.memory.lowering

    def launch(self) -> Launch:
        """The kernel, and its launch."""
        points, lanes = self.points, self.lanes
        counts = [*points.extents[:-1], dims.ceildiv(points.extents[-1], lanes)] if points.axes else []
        items = dims.product(counts)
        word = word_for(items * lanes)
        item, first = Var("item", word), build.size_var("first")
        numbers = [*points.axes[:-1], build.size_var("vector")] if points.axes else []
        extents = [self.scope.size(count, "extent") for count in counts]
        stmts = digits(item, extents, numbers)
        stmts.append(Declare(first, numbers[-1] * lanes if numbers else build.index(0)))
        total = build.cast(self.scope.size(items, "items"), word)
        body = build.seq([*stmts, self._body(first)])
        whole = build.seq([Declare(item, thread_number(word, _THREADS)), If(item < total, body)])
        function = Function(self.builder.name(), self.scope.params, whole, kind="kernel")
        blocks = (self.builder.size(items) + (_THREADS - 1)) // _THREADS
        return self.builder.launch(function, self.memory.outer, self.scope.arguments, (blocks,), _THREADS)

    def _body(self, first: Var) -> Stmt:
        """All lanes of a thread; the last one of a flat range may have fewer, one by one."""
        points, lanes = self.points, self.lanes
        if lanes == 1 or dims.divisibility(points.extents[-1]) % lanes == 0:
            return self._elements(first, lanes)
        count = self.scope.size(points.extents[-1], "count")
        place = build.size_var("place")
        rest = For(place, first, count - first, self._elements(place, 1))
        return If(first + lanes <= count, self._elements(first, lanes), rest)

    def _elements(self, first: Var, lanes: int) -> Stmt:
        points = self.points
        # A result of one element has no axis.
        axis = points.axes[-1] if points.axes else first
        reader = self.memory.reader(axis, lanes)
        stmts, (value,) = self._values(reader, [points.value], first, self.memory.fixed)
        return build.seq([*stmts, *store_lanes(reader, self.memory.result, self.memory.place(axis, first), value)])

    def _values(
        self, reader: LaneReader, values: Sequence[Expr], first: Expr, bindings: Mapping[Var, Expr]
    ) -> tuple[list[Stmt], list[Expr]]:
        """Statements that read and fold, and the values of lane number `reader.lane`."""
        stmts: list[Stmt] = []
        folded: dict[Expr, Var] = {}
        results = dict(bindings)
        known: dict[tuple[Var, ...], list[Var]] = {}
        for node, reached in paths(values).items():
            if not isinstance(node, Reduce):
                continue
            if () not in reached:
                raise ScheduleError("a reduction under a condition may read what is not there")
            if node.axes not in known:
                known[node.axes] = self._fold(reader, node, first, bindings, stmts)
            folded[node] = Var("folded", node.dtype)
            results[folded[node]] = build.load(known[node.axes][node.result], reader.lane)
        reads = reader.read([replaced(value, folded) for value in values], first, results)
        return [*stmts, *reads.declarations, *reads.loads], reads.values

    def _fold(
        self, reader: LaneReader, node: Reduce, first: Expr, bindings: Mapping[Var, Expr], stmts: list[Stmt]
    ) -> list[Var]:
        """Fold for every lane, and the arrays with the results."""
        types = [value.dtype for value in node.values]
        totals = [registers(f"total{n}", dtype, reader.lanes) for n, dtype in enumerate(types)]
        lane = reader.lane
        starts = [
            Store(total, (lane,), start) for total, start in zip(totals, node.combiner.identity(types), strict=True)
        ]
        stmts += [Declare(total) for total in totals]
        stmts.append(reader.each(starts))
        inner, values = self._values(reader, node.values, first, bindings)
        fresh = [Var(f"next{n}", dtype) for n, dtype in enumerate(types)]
        combined = node.combiner.combine([build.load(total, lane) for total in totals], values)
        fold: list[Stmt] = [Declare(var, value) for var, value in zip(fresh, combined, strict=True)]
        fold += [Store(total, (lane,), var) for total, var in zip(totals, fresh, strict=True)]
        body = build.seq([*inner, reader.each(fold)])
        taps = 1
        for axis, extent in reversed(list(zip(node.axes, node.extents, strict=True))):
            bound = self.lowering.resolve(extent, bindings)
            taps = taps * int(bound.value) if isinstance(bound, Const) else _UNROLLED + 1  # type: ignore[arg-type]  # an extent
            kind = "unroll" if taps <= _UNROLLED else "serial"
            body = For(axis, build.index(0), bound, body, kind=kind)  # type: ignore[arg-type]  # a LoopKind
        stmts.append(body)
        return totals
