"""Pointwise kernels, whose threads compute elements independently of each other: chains, windows, filters of one
channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import prod

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.gpu.schedules.horizontal import ItemKernel, by_code, fused
from hidet.gpu.schedules.items import are_few, decode_item, thread_number, word_for
from hidet.gpu.schedules.lanes import LaneReader, paths, replaced
from hidet.gpu.schedules.narrow import narrow_divisions, places_of
from hidet.gpu.schedules.pointwise_layout import Pointwise, Turned
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Const, Expr, Load, Reduce, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch, Stmt
from hidet.ir.visit import accesses
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task

_UNROLLED = 16
"""Indices of a reduction up to which its loops are unrolled."""


def launch_pointwise(builder: ProgramBuilder, task: Task, pointwise: Pointwise, threads: int) -> None:
    """Compute an output: with all lanes if every address is a multiple of 16 bytes, element by element otherwise.

    threads: of a block. Where a call tells the number of items, they are counted in 32 bits if they are few enough, and
    have all lanes if they are many enough.
    """

    def launch(lanes: int, word: DType) -> Launch:
        return _PointwiseKernel(builder, task, pointwise, lanes, threads, word).launch()

    count = _items(pointwise, pointwise.lanes) * _elements(pointwise, pointwise.lanes)
    word = word_for(count)
    # Numbers of a flat range are not divided.
    is_asked = word is dtypes.u64 and not pointwise.is_flat
    conditions = [are_few(builder.size(count))] if is_asked else []
    operands = (*pointwise.wide, pointwise.epilogue.result) if pointwise.lanes > 1 else ()
    least = pointwise.busy * pointwise.lanes if pointwise.lanes > 1 else 0
    if dims.prove_le(least, count) is not True:
        conditions.append(builder.size(count) >= least)
    fast = launch(pointwise.lanes, dtypes.u32 if is_asked else word)
    builder.run(builder.by_alignment(operands, fast, lambda: launch(1, word_for(_items(pointwise, 1))), conditions))


def launch_fused(builder: ProgramBuilder, task: Task, outputs: Sequence[Pointwise], threads: int) -> None:
    """Compute several outputs that have nothing to do with each other, those of the same code by one launch.

    threads: of a block.
    """
    fast = _launches(builder, task, outputs, [each.lanes for each in outputs], threads)
    if all(each.lanes == 1 for each in outputs):
        builder.run(fast)
        return
    operands = [operand for each in outputs for operand in (*each.wide, each.epilogue.result)]
    slow = partial(_launches, builder, task, outputs, [1] * len(outputs), threads)
    builder.run(builder.by_alignment(operands, fast, slow))


def _launches(
    builder: ProgramBuilder, task: Task, outputs: Sequence[Pointwise], lanes: Sequence[int], threads: int
) -> Stmt:
    pairs = zip(outputs, lanes, strict=True)
    kernels = [
        _PointwiseKernel(
            builder, task, each, count, threads, word_for(_items(each, count) * _elements(each, count))
        ).kernel()
        for each, count in pairs
    ]
    stmts: list[Stmt] = []
    for alike in by_code(kernels):
        if len(alike) == 1:
            (kernel,) = alike
            blocks: Dim = dims.ceildiv(kernel.items, threads)
            kernel = replace(kernel, function=replace(kernel.function, name=builder.name()))
        else:
            kernel, blocks = fused(alike, builder.name(), threads)
        grid = (builder.size(blocks),)
        stmts.append(builder.launch(kernel.function, kernel.pointers, kernel.sizes, grid, threads))
    return build.seq(stmts)


def _turned(pointwise: Pointwise, lanes: int) -> Turned | None:
    """What threads of so many lanes read in the order of its memory."""
    return pointwise.turned if lanes == pointwise.lanes else None


def _elements(pointwise: Pointwise, lanes: int) -> int:
    """How many elements a thread of so many lanes computes at most."""
    turned = _turned(pointwise, lanes)
    return lanes if turned is None else lanes * turned.extent


def _items(pointwise: Pointwise, lanes: int) -> Dim:
    """How many threads of so many lanes compute an output."""
    return dims.product([count for _, count in _counted(pointwise, lanes)])


def _counted(pointwise: Pointwise, lanes: int) -> list[tuple[Var, Dim]]:
    """The axes along which threads are counted, and how many there are along each: the last one is in lanes."""
    if not pointwise.axes:
        return []
    turned = _turned(pointwise, lanes)
    counts = [*pointwise.extents[:-1], dims.ceildiv(pointwise.extents[-1], lanes)]
    pairs = zip(pointwise.axes, counts, strict=True)
    return [(axis, count) for axis, count in pairs if turned is None or axis is not turned.axis]


def store_lanes(k: IRBuilder, reader: LaneReader, pointer: Var, place: Expr, value: Expr) -> None:
    """Write the reader's neighbours, which are neighbours in memory as well, from `place` on."""
    k.store(pointer, place, gathered(k, reader, pointer.dtype, value))


def gathered(k: IRBuilder, reader: LaneReader, dtype: DType, value: Expr) -> Expr:
    """The values of the reader's neighbours as one of type `dtype`."""
    if reader.lanes == 1:
        return value
    made = k.array("made", dtype, reader.lanes)
    with reader.each_lane(k):
        k.store(made, reader.lane, value)
    return build.load(made, 0, lanes=reader.lanes)


class PointwiseMemory:
    """The parameters of a kernel that computes an output, and where its tensors lie.

    outer: the arguments for the pointers. fixed: what axes of the output are that no thread counts.
    """

    def __init__(self, builder: ProgramBuilder, task: Task, pointwise: Pointwise) -> None:
        self.scope = KernelScope()
        operands = list(dict.fromkeys(access.operand for access in accesses(pointwise.value)))
        self.lowering = Lowering(self.scope, {})
        pointers = {operand: self.scope.pointer(operand.name, operand.dtype) for operand in operands}
        self.result = self.scope.pointer("result", pointwise.epilogue.result.dtype)
        self.outer = [*(builder.pointers[operand] for operand in operands), builder.pointers[pointwise.epilogue.result]]
        self.strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        for operand, pointer in pointers.items():
            self.lowering.buffer(operand, pointer, self.strides[operand])
        self._target = [self.scope.size(stride, "stride") for stride in pointwise.output.type.element_strides]
        self._axes, self._shape = pointwise.epilogue.axes, pointwise.shape
        self.fixed: dict[Var, Expr] = {axis: build.index(0) for axis in self._axes if axis not in pointwise.axes}

    def reader(self, axis: Var, lanes: int) -> LaneReader:
        """Reads neighbours along an axis."""
        return LaneReader(self.lowering, self.strides, self._shape, axis, lanes)

    def place(self, axis: Var, first: Expr) -> Expr:
        """Where the element at the axes' values is written, `axis` being `first`."""
        axes = [self.fixed.get(other, first if other is axis else other) for other in self._axes]
        return build.flatten(axes, self._target)


class _PointwiseKernel:
    """The kernel of `lanes` elements a thread. word: in which these are numbered."""

    def __init__(
        self, builder: ProgramBuilder, task: Task, pointwise: Pointwise, lanes: int, threads: int, word: DType
    ) -> None:
        self.builder, self.pointwise, self.lanes, self.threads, self.word = builder, pointwise, lanes, threads, word
        self.memory = PointwiseMemory(builder, task, pointwise)
        self.scope, self.lowering = self.memory.scope, self.memory.lowering

    def kernel(self) -> ItemKernel:
        """The kernel, and what it is called with."""
        pointwise, lanes = self.pointwise, self.lanes
        counted, word = _counted(pointwise, lanes), self.word
        items = _items(pointwise, lanes)
        numbers = [*(axis for axis, _ in counted[:-1]), build.size_var("vector")] if counted else []
        extents = [self.scope.size(count, "extent") for _, count in counted]
        total, k = build.cast(self.scope.size(items, "items"), word), IRBuilder()
        item = k.let("item", thread_number(word, self.threads))
        with k.if_(item < total):
            decode_item(k, item, extents, numbers)
            self._write(k, k.let("first", numbers[-1] * lanes if numbers else build.index(0)))
        function = Function(self.builder.name(), self.scope.params, k.body, kind="kernel")
        known = {size: dims.bounds(dim) for size, dim in zip(self.scope.sizes, self.scope.arguments, strict=True)}
        known |= {number: places_of(count) for number, (_, count) in zip(numbers, counted, strict=True)}
        function = narrow_divisions(function, known)
        return ItemKernel(function, tuple(self.memory.outer), tuple(self.scope.arguments), items)

    def launch(self) -> Launch:
        """The kernel alone, and its launch."""
        kernel, threads = self.kernel(), self.threads
        blocks = (self.builder.size(kernel.items) + (threads - 1)) // threads
        return self.builder.launch(kernel.function, kernel.pointers, kernel.sizes, (blocks,), threads)

    def _write(self, k: IRBuilder, first: Var) -> None:
        """All lanes of a thread; the last one of a flat range may have fewer, one by one."""
        pointwise, lanes = self.pointwise, self.lanes
        turned = _turned(pointwise, lanes)
        if turned is not None:
            self._write_turned(k, first, turned)
            return
        if lanes == 1 or dims.divisibility(pointwise.extents[-1]) % lanes == 0:
            self._write_lanes(k, first, lanes)
            return
        count = self.scope.size(pointwise.extents[-1], "count")
        with k.if_(first + lanes <= count):
            self._write_lanes(k, first, lanes)
        with k.else_(), k.for_range("place", count - first, first) as place:
            self._write_lanes(k, place, 1)

    def _write_turned(self, k: IRBuilder, first: Var, turned: Turned) -> None:
        """Read all that lies along an axis for all lanes, and write it position by position."""
        lanes, axis, last = self.lanes, turned.axis, self.pointwise.axes[-1]
        held = k.array("held", turned.access.dtype, turned.extent * lanes)
        start = self.lowering.resolve(turned.access, {**self.memory.fixed, last: first, axis: build.index(0)})
        assert isinstance(start, Load)
        for done in range(0, turned.extent * lanes, lanes):
            k.store(held, done, build.load(start.buffer, start.indices[0] + done, lanes=lanes))
        reader, read = self.memory.reader(last, lanes), Var("read", turned.access.dtype)
        value = replaced(self.pointwise.value, {turned.access: read})
        with k.loop(axis, build.index(turned.extent), kind="unroll"):
            element = build.load(held, reader.lane * turned.extent + axis)
            result = self.lowering.resolve(value, {**self.memory.fixed, read: element})
            store_lanes(k, reader, self.memory.result, self.memory.place(last, first), result)

    def _write_lanes(self, k: IRBuilder, first: Var, lanes: int) -> None:
        pointwise = self.pointwise
        # A result of one element has no axis.
        axis = pointwise.axes[-1] if pointwise.axes else first
        reader = self.memory.reader(axis, lanes)
        (value,) = self._read(k, reader, [pointwise.value], first, self.memory.fixed)
        store_lanes(k, reader, self.memory.result, self.memory.place(axis, first), value)

    def _read(
        self, k: IRBuilder, reader: LaneReader, values: Sequence[Expr], first: Expr, bindings: Mapping[Var, Expr]
    ) -> list[Expr]:
        """Read and reduce; gives the values of lane number `reader.lane`."""
        reduced, results = dict[Expr, Var](), dict(bindings)
        known: dict[tuple[Var, ...], list[Var]] = {}
        for node, reached in paths(values).items():
            if not isinstance(node, Reduce):
                continue
            if () not in reached:
                raise ScheduleError("a reduction under a condition may read what is not there")
            if node.axes not in known:
                known[node.axes] = self._reduce(k, reader, node, first, bindings)
            reduced[node] = Var("reduced", node.dtype)
            results[reduced[node]] = build.load(known[node.axes][node.result], reader.lane)
        reads = reader.read([replaced(value, reduced) for value in values], first, results)
        k.emit(reads.declarations, reads.loads)
        return reads.values

    def _reduce(
        self, k: IRBuilder, reader: LaneReader, node: Reduce, first: Expr, bindings: Mapping[Var, Expr]
    ) -> list[Var]:
        """Reduce for every lane; gives the arrays with the results."""
        types = [value.dtype for value in node.values]
        totals = [k.array(f"total{n}", dtype, reader.lanes) for n, dtype in enumerate(types)]
        with reader.each_lane(k):
            k.store_each(totals, reader.lane, node.combiner.identity(types))
        bounds = [self.lowering.resolve(extent, bindings) for extent in node.extents]
        taps = [int(bound.value) if isinstance(bound, Const) else _UNROLLED + 1 for bound in bounds]  # type: ignore[arg-type]  # extents
        with ExitStack() as loops:
            for n, (axis, bound) in enumerate(zip(node.axes, bounds, strict=True)):
                is_short = isinstance(bound, Const) and prod(taps[n:]) <= _UNROLLED
                loops.enter_context(k.loop(axis, bound, kind="unroll" if is_short else "serial"))
            values = self._read(k, reader, node.values, first, bindings)
            with reader.each_lane(k):
                olds = [build.load(total, reader.lane) for total in totals]
                k.store_each(totals, reader.lane, k.let_each("next", node.combiner.combine(olds, values)))
        return totals
