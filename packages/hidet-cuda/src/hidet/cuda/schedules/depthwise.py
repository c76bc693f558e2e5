"""Depthwise convolutions: a thread computes several neighbouring channels of several neighbouring pixels.

    for row of the filter
      what the pixels see of the image's row, and the filter's row: into registers, once
      for tap of the row: every pixel += what lies under its tap * the tap
    results

What neighbouring pixels share is read and widened once instead of once a tap. A thread of a single pixel reads all rows
before it multiplies.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.cuda.schedules.finish import finished_value
from hidet.cuda.schedules.lanes import BYTES, LaneReader, registers
from hidet.cuda.schedules.operands import window_axes
from hidet.cuda.schedules.point_kernel import (
    digits,
    launch_elements,
    store_lanes,
    thread_number,
    word_for,
)
from hidet.cuda.schedules.point_layout import points_of
from hidet.cuda.schedules.product import WindowAxis
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.dims import Dim
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, For, If, Launch, Stmt, Store
from hidet.ir.visit import accesses
from hidet.ops.rules import arithmetic_dtype
from hidet.schedule.cost import element_count
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task, TaskTensor
from hidet.target import Target

_THREADS = 128
_BUSY = 1 << 15
"""Threads below which fewer pixels a thread keep more of the device busy."""
_PIXELS = 4
_UNROLLED = 16
"""Taps up to which the rows of a filter are unrolled."""
_LINE = WindowAxis(1, 0, 1, 1, 1, 1, 0)
"""The missing axis of images that are lines."""


@dataclass(frozen=True, slots=True, eq=False)
class Depthwise:
    """A convolution with a filter a channel, channels and filters being neighbours.

    value: an element of the result from `total`, the sum, over the result's axes: image, channel, and those of space.
    lanes: channels of a thread. pixels: of a thread, along the last axis. is_small: whether there are too few threads
    to wait for each other's reads.
    """

    image: TaskTensor
    weight: TaskTensor
    output: TensorType
    window: tuple[WindowAxis, WindowAxis]
    total: Var
    value: Expr
    lanes: int
    pixels: int
    is_small: bool


class DepthwiseRule:
    """Schedules depthwise convolutions of lines and images whose channels are neighbours."""

    def match(self, task: Task, target: Target) -> Match | None:
        """None for other groups, layouts and ranks, and for a number of channels that is odd."""
        found = _depthwise(task)
        return None if found is None else Match(task, found)

    def space(self, match: Match, target: Target) -> SearchSpace:
        """Pixels of a thread."""
        return SearchSpace({"pixels": (1, 2, 4)})

    def default(self, match: Match, target: Target) -> Params:
        """As many pixels as keep the device busy."""
        return {"pixels": match.data.pixels}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """A kernel for aligned addresses, and one that computes element by element."""
        task, conv = match.task, replace(match.data, pixels=params["pixels"])
        builder = ProgramBuilder(task)
        fast = _DepthwiseKernel(builder, task, conv).launch()
        extra = [access.operand for access in accesses(conv.value)]
        operands = (conv.image.operand, conv.weight.operand, task.epilogues[0].result, *extra)
        slow = functools.partial(launch_elements, builder, task, points_of(task, 0), 1)
        builder.run(builder.by_alignment(operands, fast, slow))
        return builder.program()


def _depthwise(task: Task) -> Depthwise | None:
    assert task.anchor is not None
    image, weight = task.anchor_inputs[:2]
    if image is None or weight is None or len(task.outputs) != 1 or task.anchor.attrs["groups"] == 1:
        return None
    output, epilogue, shape = task.outputs[0].type, task.epilogues[0], task.anchor.outputs[0].tensor.shape
    filters, width, *taps = weight.type.shape
    if width != 1 or dims.prove_equal(filters, image.type.shape[1]) is not True or not 1 <= len(taps) <= 2:
        return None
    types = (image.type, output)
    if any(type_.element_strides[1] != 1 for type_ in types) or weight.type.element_strides[0] != 1:
        return None
    total = Var("total", arithmetic_dtype(image.type.dtype))
    value = finished_value(task, epilogue, total)
    if value is None or len(epilogue.axes) != len(shape) or not all(isinstance(tap, int) for tap in taps):
        return None
    axes = window_axes(task.anchor.attrs, image.type, taps, shape)
    strides = [stride for type_ in (*types, weight.type) for stride in type_.element_strides if stride != 1]
    lanes = BYTES // max(image.type.dtype.nbytes, output.dtype.nbytes)
    while lanes > 1 and any(dims.divisibility(dim) % lanes for dim in (filters, *strides)):
        lanes //= 2
    if lanes == 1:
        return None
    # Windows that are steps apart share less.
    pixels, count = max(1, _PIXELS // axes[-1].step), element_count(shape) // lanes
    while pixels > 1 and count // pixels < _BUSY:
        pixels //= 2
    window = (_LINE, axes[0]) if len(axes) == 1 else (axes[0], axes[1])
    return Depthwise(image, weight, output, window, total, value, lanes, pixels, count < _BUSY)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Arrays of a thread: what it has read of the image under some rows of the filter, and these rows.

    there: whether a pixel of the image is inside of it; None where those outside are zero in `seen`.
    """

    seen: Var
    filters: Var
    there: Var | None

    @staticmethod
    def of(conv: Depthwise, span: int, rows: int) -> _Held:
        """Room for `rows` rows, each under `span` pixels of the image."""
        seen = registers("seen", conv.image.type.dtype, rows * span * conv.lanes)
        filters = registers("filters", conv.weight.type.dtype, rows * _taps(conv.window[1]) * conv.lanes)
        return _Held(seen, filters, registers("there", dtypes.boolean, rows * span) if conv.pixels == 1 else None)

    def declared(self) -> list[Stmt]:
        """Their declarations."""
        return [Declare(array) for array in (self.seen, self.filters, self.there) if array is not None]


class _DepthwiseKernel:
    def __init__(self, builder: ProgramBuilder, task: Task, conv: Depthwise) -> None:
        self.builder, self.conv, self.epilogue = builder, conv, task.epilogues[0]
        self.scope = KernelScope()
        self.lowering = Lowering(self.scope, {})
        strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        operands = dict.fromkeys(
            [conv.image.operand, conv.weight.operand, *(access.operand for access in accesses(conv.value))]
        )
        self.pointers = {operand: self.scope.pointer(operand.name, operand.dtype) for operand in operands}
        for operand, pointer in self.pointers.items():
            self.lowering.buffer(operand, pointer, strides[operand])
        self.result = self.scope.pointer("result", self.epilogue.result.dtype)
        self.outer = [builder.pointers[operand] for operand in (*operands, self.epilogue.result)]
        shape = dict(zip(self.epilogue.axes, conv.output.shape, strict=True))
        channel = self.epilogue.axes[1]
        self.reader = LaneReader(self.lowering, strides, shape, channel, conv.lanes)
        self.image_axis, self.channel = self.epilogue.axes[0], channel
        # A line has no rows; their axis is one of its own then.
        self.row, self.column = (build.size_var("row"), *self.epilogue.axes[2:])[-2:]
        self.first = build.size_var("first_column")
        self.pixel = build.size_var("pixel")
        across = conv.window[1]
        self.span = (conv.pixels - 1) * across.step + (_taps(across) - 1) * across.spread + 1
        self.totals = registers("totals", conv.total.dtype, conv.pixels * conv.lanes)

    def launch(self) -> Launch:
        """The kernel, and its launch."""
        conv, scope = self.conv, self.scope
        down, across = conv.window
        counts: tuple[Dim, ...] = (
            conv.output.shape[0],
            down.results,
            dims.ceildiv(across.results, conv.pixels),
            dims.floordiv(conv.output.shape[1], conv.lanes),
        )
        items = dims.product(counts)
        word = word_for(items * conv.lanes)
        item, group, vector = Var("item", word), build.size_var("group"), build.size_var("vector")
        extents = [scope.size(count, "extent") for count in counts]
        body: list[Stmt] = [
            *digits(item, extents, [self.image_axis, self.row, group, vector]),
            Declare(self.channel, vector * conv.lanes),
            Declare(self.first, group * conv.pixels),
            Declare(self.totals),
            *self._sums(),
            self._results(),
        ]
        total = build.cast(scope.size(items, "items"), word)
        whole = build.seq([Declare(item, thread_number(word, _THREADS)), If(item < total, build.seq(body))])
        # Told that a block may have all registers, the assembler leaves reads where they are, before the products.
        attributes = (("min_blocks", 1),) if self.conv.is_small else ()
        function = Function(self.builder.name(), scope.params, whole, kind="kernel", attributes=attributes)
        blocks = (self.builder.size(items) + (_THREADS - 1)) // _THREADS
        return self.builder.launch(function, self.outer, scope.arguments, (blocks,), _THREADS)

    def _each_pixel(self, body: list[Stmt]) -> Stmt:
        return For(self.pixel, build.index(0), build.index(self.conv.pixels), build.seq(body), kind="unroll")

    def _place(self) -> Expr:
        """Where the sum of the current pixel and channel is kept."""
        return self.pixel * self.conv.lanes + self.reader.lane

    def _sums(self) -> list[Stmt]:
        """What the filter's rows add to, and the loops over them."""
        conv = self.conv
        down, across = conv.window
        is_short = _taps(down) * _taps(across) <= _UNROLLED
        # Few threads wait for what they read, not for arithmetic: they ask for all rows before they use the first one.
        reads_ahead = is_short and conv.pixels == 1
        held = _Held.of(conv, self.span, _taps(down) if reads_ahead else 1)
        zero = Store(self.totals, (self._place(),), build.const(0, self.totals.dtype))
        tap = build.size_var("row_tap")
        slot = tap if reads_ahead else build.index(0)
        steps = [self._reads(tap, slot, held), self._products(slot, held)]

        def rows(body: Stmt) -> Stmt:
            kind = "unroll" if is_short else "serial"
            return For(tap, build.index(0), build.index(_taps(down)), body, kind=kind)  # type: ignore[arg-type]  # a LoopKind

        loops = [*held.declared(), *map(rows, steps)] if reads_ahead else [rows(build.seq([*held.declared(), *steps]))]
        return [self._each_pixel([self.reader.each([zero])]), *loops]

    def _reads(self, tap: Var, slot: Expr, held: _Held) -> Stmt:
        """What the pixels see of the image under row `tap` of the filter, and that row, as row `slot` of the arrays."""
        conv, lanes, size = self.conv, self.conv.lanes, self.scope.size
        down, across = conv.window
        image, weight = self.pointers[conv.image.operand], self.pointers[conv.weight.operand]
        number, column_tap = build.size_var("number"), build.size_var("column_tap")
        line, place = build.size_var("line"), build.size_var("place")
        height, width = size(down.extent, "rows"), size(across.extent, "columns")
        strides = [
            size(stride, "stride") for stride in (conv.image.type.element_strides[0], down.stride, across.stride)
        ]
        own = slot * self.span + number

        def found(line: Expr, place: Expr) -> Stmt:
            offset = build.flatten((self.image_axis, line, place), strides) + self.channel
            return Store(held.seen, (own * lanes,), build.load(image, offset, lanes=lanes))

        inside = build.logical_and(line >= 0, line < height, place >= 0, place < width)
        if held.there is not None:
            # What lies outside is read at the edge and not used, because threads would wait at a branch.
            reads: list[Stmt] = [
                found(_clamped(line, height), _clamped(place, width)),
                Store(held.there, (own,), inside),
            ]
        else:
            zero = Store(held.seen, (own * lanes + self.reader.lane,), build.const(0, image.dtype))
            reads = [If(inside, found(line, place), self.reader.each([zero]))]
        read = build.seq([Declare(place, self.first * across.step + number - across.before), *reads])
        taps = conv.weight.type.element_strides[2:]
        row_stride = size(taps[0], "tap_row") if len(taps) == 2 else build.index(0)
        filter_place = tap * row_stride + column_tap * size(taps[-1], "tap_column") + self.channel
        filter_slot = (slot * _taps(across) + column_tap) * lanes
        of_filter = Store(held.filters, (filter_slot,), build.load(weight, filter_place, lanes=lanes))
        return build.seq(
            [
                Declare(line, self.row * size(down.step, "step") + tap * down.spread - down.before),
                For(number, build.index(0), build.index(self.span), read, kind="unroll"),
                For(column_tap, build.index(0), build.index(_taps(across)), of_filter, kind="unroll"),
            ]
        )

    def _products(self, slot: Expr, held: _Held) -> Stmt:
        """The products of row `slot` of the arrays, added to every pixel."""
        lanes, lane, across = self.conv.lanes, self.reader.lane, self.conv.window[1]
        column_tap = build.size_var("column_tap")
        under = slot * self.span + self.pixel * across.step + column_tap * across.spread
        value = _wide(build.load(held.seen, under * lanes + lane))
        if held.there is not None:
            value = build.select(build.load(held.there, under), value, build.const(0, value.dtype))
        factor = _wide(build.load(held.filters, (slot * _taps(across) + column_tap) * lanes + lane))
        sums = Store(self.totals, (self._place(),), build.load(self.totals, self._place()) + value * factor)
        each = self._each_pixel([self.reader.each([sums])])
        return For(column_tap, build.index(0), build.index(_taps(across)), each, kind="unroll")

    def _results(self) -> Stmt:
        """What is made of the sums, for those pixels that are there."""
        conv = self.conv
        bindings: Mapping[Var, Expr] = {conv.total: build.load(self.totals, self._place())}
        reads = self.reader.read([conv.value], self.channel, bindings)
        strides = [self.scope.size(stride, "stride") for stride in conv.output.element_strides]
        place = build.flatten(self.epilogue.axes, strides)
        stores = store_lanes(self.reader, self.result, place, reads.values[0])
        stored = build.seq([*reads.declarations, *reads.loads, *stores])
        if conv.pixels > 1:
            stored = If(self.column < self.scope.size(conv.window[1].results, "width"), stored)
        return self._each_pixel([Declare(self.column, self.first + self.pixel), stored])


def _taps(axis: WindowAxis) -> int:
    """Taps of an axis, which are a number: `DepthwiseRule` takes no others."""
    assert isinstance(axis.taps, int)
    return axis.taps


def _clamped(place: Expr, extent: Expr) -> Expr:
    """The nearest place on an axis."""
    return build.maximum(build.minimum(place, extent - 1), 0)


def _wide(value: Expr) -> Expr:
    return build.cast(value, arithmetic_dtype(value.dtype))
