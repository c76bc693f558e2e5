"""Depthwise convolutions: a thread computes a tile of neighbouring pixels for several neighbouring channels.

    filter, where it is small: into registers, once
    for row of the image under the tile
      the next row into registers, while
      for pixel of this row: every result that has it under a tap += pixel * tap
    results

What neighbours share is read and widened once instead of once a tap, along both axes. Large filters are walked through
row by row, for tiles of one row. Where channels are no neighbours in memory, a thread has one of them, and threads that
follow each other have neighbouring tiles.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.depthwise_plan import Depthwise, taps_of
from hidet.gpu.schedules.items import decode_item, thread_number, word_for
from hidet.gpu.schedules.lanes import LaneReader
from hidet.gpu.schedules.pointwise_kernel import gathered, store_lanes
from hidet.gpu.schedules.product import WindowAxis
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.ir.visit import accesses, walk
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task

MOST_COUNTED = 1 << 30
"""Elements from which on places are no longer computed in 32 bits."""
_THREADS = 128


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Arrays of a thread: rows of the image under its tile, and rows of the filter, which are widened as they come."""

    seen: Var
    filters: Var


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A row of the image under a tile, as row `slot` of what a thread holds.

    below: rows from the first one under the tile to it. is_there: whether it lies inside of the image. adds: pairs of a
    row of the tile, and the row of the held filter that it has over this one.
    """

    below: Expr
    is_there: Var
    slot: int
    adds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """A column of the image under a tile.

    place: where it lies in a row. is_there: whether it lies inside of the image. uses: pairs of a pixel of the tile,
    and the tap that it has over this column.
    """

    place: Var
    is_there: Var
    uses: tuple[tuple[int, int], ...]


def _uses(axis: WindowAxis, results: int) -> dict[int, tuple[tuple[int, int], ...]]:
    """Pairs of a result and a tap, by how far what lies under the tap is from the first place under all of them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for result in range(results):
        for tap in range(taps_of(axis)):
            found.setdefault(result * axis.step + tap * axis.spread, []).append((result, tap))
    return {offset: tuple(found[offset]) for offset in sorted(found)}


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Parameters of a kernel that are needed in many places.

    image, filter, result: strides of their axes, but of the filter's one of one channel. height, width: of the image.
    rows, columns: of the result.
    """

    image: tuple[Expr, ...]
    filter: tuple[Expr, ...]
    result: tuple[Expr, ...]
    height: Expr
    width: Expr
    rows: Expr
    columns: Expr

    @staticmethod
    def of(scope: KernelScope, conv: Depthwise, word: DType) -> _Sizes:
        """New parameters for a convolution, as numbers of type `word`."""

        def size(dim: Dim, name: str) -> Expr:
            return build.cast(scope.size(dim, name), word)

        down, across = conv.window
        outer = conv.image.type.element_strides[:2]
        own, _, *taps = conv.weight.type.element_strides
        rows = taps if len(taps) == 2 else [0, *taps]
        return _Sizes(
            tuple(size(stride, "stride") for stride in (*outer, down.stride, across.stride)),
            tuple(size(stride, "filter_stride") for stride in (own, *rows)),
            tuple(size(stride, "result_stride") for stride in conv.output.element_strides),
            size(down.extent, "height"),
            size(across.extent, "width"),
            size(down.results, "rows"),
            size(across.results, "columns"),
        )


class DepthwiseKernel:
    """The kernel of a depthwise convolution under construction; `launch` makes it and its launch.

    is_small: whether `unproven_reaches` are less than MOST_COUNTED; places in image, filter and result then have 32
    bits, because an address takes half the instructions.
    """

    def __init__(self, builder: ProgramBuilder, task: Task, conv: Depthwise, *, is_small: bool) -> None:
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
        self.image_axis, self.channel = self.epilogue.axes[:2]
        # A line has no rows; their axis is one of its own then.
        self.row, self.column = (build.size_var("row"), *self.epilogue.axes[2:])[-2:]
        is_last = conv.output.element_strides[1] == 1
        self.reader = LaneReader(self.lowering, strides, shape, self.channel, conv.lanes)
        # Results are written along the axis on which they are neighbours.
        self.writer = self.reader if is_last else LaneReader(self.lowering, strides, shape, self.column, conv.run)
        self.word, self.is_small = dtypes.i32 if is_small else dtypes.i64, is_small
        self.sizes = _Sizes.of(self.scope, conv, self.word)

    def launch(self) -> Launch:
        """The kernel, and its launch."""
        conv, scope = self.conv, self.scope
        down, across = conv.window
        tiles, vectors = dims.ceildiv(across.results, conv.pixels), dims.floordiv(conv.output.shape[1], conv.lanes)
        tile, down_tile, vector = (build.size_var(name) for name in ("tile", "down_tile", "vector"))
        patch_tile, patch_vector = build.size_var("patch_tile"), build.size_var("patch_vector")
        images, rows = (self.image_axis, conv.output.shape[0]), (down_tile, dims.ceildiv(down.results, conv.rows))
        counts: list[tuple[Var, Dim]] = [images, (vector, vectors), rows, (tile, tiles)]
        if conv.is_channel_fastest:
            counts = [images, rows, (tile, tiles), (vector, vectors)]
        inner: list[tuple[Var, Dim]] = []
        inside: list[Expr] = []
        tile_number, vector_number = tile + 0, vector + 0
        if conv.patch is not None:
            wide, deep = conv.patch
            counts = [images, rows, (tile, dims.ceildiv(tiles, wide)), (vector, dims.ceildiv(vectors, deep))]
            inner = [(patch_tile, wide), (patch_vector, deep)]
            tile_number, vector_number = tile * wide + patch_tile, vector * deep + patch_vector
            inside = [tile_number < scope.size(tiles, "tiles"), vector_number < scope.size(vectors, "vectors")]
        items = dims.product([count for _, count in (*counts, *inner)])
        # Without patches, which are rounded up, there are no more items than elements of the result.
        word = dtypes.u32 if self.is_small and conv.patch is None else word_for(items * conv.lanes)
        axes = [axis for axis, _ in (*counts, *inner)]
        extents = [*(scope.size(count, "extent") for _, count in counts), *(build.index(count) for _, count in inner)]
        total, k = build.cast(scope.size(items, "items"), word), IRBuilder()
        item = k.let("item", thread_number(word, _THREADS))
        with k.if_(item < total):
            decode_item(k, item, extents, axes)
            with k.if_(build.logical_and(*inside)) if inside else nullcontext():
                self.first_channel = k.let("first_channel", vector_number * conv.lanes)
                self.first_row = k.let("first_row", self._number(down_tile) * conv.rows)
                self.first_column = k.let("first_column", self._number(tile_number) * conv.pixels)
                self.first_line = k.let("first_line", self.first_row * down.step - down.before)
                self._compute(k)
        function = Function(self.builder.name(), scope.params, k.body, kind="kernel")
        blocks = (self.builder.size(items) + (_THREADS - 1)) // _THREADS
        return self.builder.launch(function, self.outer, scope.arguments, (blocks,), _THREADS)

    def _compute(self, k: IRBuilder) -> None:
        """A tile of the result."""
        conv = self.conv
        count, zero = conv.rows * conv.pixels * conv.lanes, build.const(0, conv.total.dtype)
        self.totals = k.array("totals", conv.total.dtype, count)
        with k.for_range("number", count, kind="unroll") as number:
            k.store(self.totals, number, zero)
        self.columns = list(self._find_columns(k))
        if conv.is_kept:
            self._sum_tile(k)
        else:
            self._sum_row(k)
        self._finish(k)

    def _number(self, index: Expr) -> Expr:
        """An index as part of a place."""
        return build.cast(index, self.word)

    def _find_columns(self, k: IRBuilder) -> Iterator[_Column]:
        """Where the columns under the tile lie in a row.

        What lies outside is read at the edge and not used, because threads would wait at a branch.
        """
        across, width, stride = self.conv.window[1], self.sizes.width, self.sizes.image[-1]
        first = self.first_column * across.step
        for offset, uses in _uses(across, self.conv.pixels).items():
            own, is_positive = first + (offset - across.before), offset >= across.before
            is_there = k.let("column_there", _inside(own, width, is_positive))
            yield _Column(k.let("place", _clamped(own, width, is_positive) * stride), is_there, uses)

    def _hold(self, k: IRBuilder, rows: int, filter_rows: int) -> _Held:
        """Room for rows of the image and of the filter."""
        conv = self.conv
        seen = k.array("seen", conv.image.type.dtype, rows * len(self.columns) * conv.lanes)
        count = filter_rows * taps_of(conv.window[1]) * conv.lanes
        return _Held(seen, k.array("filters", conv.total.dtype, count))

    def _sum_tile(self, k: IRBuilder) -> None:
        """The sums of all rows, with the whole filter in registers."""
        conv, down = self.conv, self.conv.window[0]
        uses = _uses(down, conv.rows)
        # A tile of one row waits for memory, not for arithmetic: it asks for all rows before it uses the first one.
        slots = 2 if conv.rows > 1 else len(uses)
        held = self._hold(k, slots, taps_of(down))
        lines = [
            _Line(build.index(below), Var("is_there", dtypes.boolean), number % slots, adds)
            for number, (below, adds) in enumerate(uses.items())
        ]
        for tap in range(taps_of(down)):
            self._read_filter(k, held, build.index(tap), tap)
        for line in lines[: slots - 1]:
            self._read(k, held, line)
        for number, line in enumerate(lines):
            for following in lines[number + slots - 1 : number + slots]:
                self._read(k, held, following)
            self._multiply(k, held, line)

    def _sum_row(self, k: IRBuilder) -> None:
        """The sums of one row, with a row of the filter in registers."""
        down = self.conv.window[0]
        with k.for_range("row_tap", taps_of(down)) as tap:
            held = self._hold(k, 1, 1)
            line = _Line(tap * down.spread, Var("is_there", dtypes.boolean), 0, ((0, 0),))
            self._read_filter(k, held, tap, 0)
            self._read(k, held, line)
            self._multiply(k, held, line)

    def _total(self, row: int, pixel: int) -> Expr:
        """Where the sum of a result is kept, for the reader's lane."""
        return (row * self.conv.pixels + pixel) * self.conv.lanes + self.reader.lane

    def _read_filter(self, k: IRBuilder, held: _Held, tap: Expr, slot: int) -> None:
        """Row `tap` of the filter, into row `slot` of the held ones."""
        lanes, taps = self.conv.lanes, taps_of(self.conv.window[1])
        weight = self.pointers[self.conv.weight.operand]
        with k.for_range("column_tap", taps, kind="unroll") as column:
            narrow = k.array("narrow", weight.dtype, lanes)
            place = _place(map(self._number, (self.first_channel, tap, column)), self.sizes.filter)
            k.store(narrow, 0, build.load(weight, _index(place), lanes=lanes))
            with self.reader.each_lane(k):
                own = (column + slot * taps) * lanes + self.reader.lane
                k.store(held.filters, own, self._wide(build.load(narrow, self.reader.lane)))

    def _read(self, k: IRBuilder, held: _Held, line: _Line) -> None:
        """What a row of the image has under the tile."""
        conv, height, down = self.conv, self.sizes.height, self.conv.window[0]
        own = self.first_line + self._number(line.below)
        is_positive = isinstance(line.below, Const) and int(line.below.value) >= down.before  # type: ignore[arg-type]  # an int
        k.declare(line.is_there, _inside(own, height, is_positive))
        there = (*map(self._number, (self.image_axis, self.first_channel)), _clamped(own, height, is_positive))
        start = k.let("start", _place(there, self.sizes.image[:3]))
        for number, column in enumerate(self.columns):
            value = build.load(self.pointers[conv.image.operand], _index(start + column.place), lanes=conv.lanes)
            k.store(held.seen, self._slot(line, number), value)

    def _slot(self, line: _Line, number: int) -> int:
        """Where column `number` of a row is held."""
        return (line.slot * len(self.columns) + number) * self.conv.lanes

    def _multiply(self, k: IRBuilder, held: _Held, line: _Line) -> None:
        """The products of a row, added to what has its pixels under a tap."""
        lanes, lane, taps = self.conv.lanes, self.reader.lane, taps_of(self.conv.window[1])
        with k.if_(line.is_there), self.reader.each_lane(k):
            for number, column in enumerate(self.columns):
                # Widened first: a choice between finished numbers is no branch.
                read = k.let("read", self._wide(build.load(held.seen, self._slot(line, number) + lane)))
                value = k.let("value", build.select(column.is_there, read, build.const(0, read.dtype)))
                for row, filter_row in line.adds:
                    for pixel, tap in column.uses:
                        factor = build.load(held.filters, (filter_row * taps + tap) * lanes + lane)
                        total = self._total(row, pixel)
                        k.store(self.totals, total, build.load(self.totals, total) + value * factor)

    def _wide(self, value: Expr) -> Expr:
        return build.cast(value, self.totals.dtype)

    def _finish(self, k: IRBuilder) -> None:
        """What is made of the sums, for those pixels of the tile that are there."""
        conv, writer = self.conv, self.writer
        tile_row, piece, lane = build.size_var("tile_row"), build.size_var("piece"), build.size_var("own_lane")
        is_last = writer is self.reader
        channel = self.first_channel if is_last else self.channel
        row, column = (
            self.first_row + self._number(tile_row),
            self.first_column + self._number(piece) * conv.run,
        )
        pixel, sum_lane = (piece, writer.lane) if is_last else (piece * conv.run + writer.lane, lane)
        sums = (tile_row * conv.pixels + pixel) * conv.lanes + sum_lane
        reads = writer.read(
            [conv.value], channel if is_last else _index(column), {conv.total: build.load(self.totals, sums)}
        )
        axes = [self._number(self.image_axis), self._number(channel), row, column]
        if len(self.sizes.result) == 3:
            del axes[2]
        place, value = _index(_place(axes, self.sizes.result)), reads.values[0]
        # What is the same for all pixels, such as a bias, is read once, and no branch is around its use.
        varies = any(axis in walk(conv.value) for axis in (self.row, self.column))
        checks = [row < self.sizes.rows] if conv.rows > 1 else []
        checks += [column < self.sizes.columns] if conv.pixels > conv.run else []
        with nullcontext() if is_last else k.loop(lane, conv.lanes, kind="unroll"):
            if not is_last:
                k.declare(self.channel, self.first_channel + lane)
            if not varies:
                k.emit(reads.declarations, reads.loads)
            with k.loop(tile_row, conv.rows, kind="unroll"):
                k.declare(self.row, _index(row))
                with k.loop(piece, conv.pixels // conv.run, kind="unroll"):
                    if is_last:
                        k.declare(self.column, _index(column))
                    if not varies:
                        value = gathered(k, writer, self.result.dtype, value)
                    with k.if_(build.logical_and(*checks)) if checks else nullcontext():
                        if varies:
                            k.emit(reads.declarations, reads.loads)
                            store_lanes(k, writer, self.result, place, value)
                        else:
                            k.store(self.result, place, value)


def _place(numbers: Iterable[Expr], strides: Sequence[Expr]) -> Expr:
    """Where something lies, from its number on each axis and the axes' strides, of which one is not 0."""
    factors = [stride.value if isinstance(stride, Const) else None for stride in strides]
    terms = [
        number if factor == 1 else number * stride
        for number, stride, factor in zip(numbers, strides, factors, strict=True)
        if factor != 0
    ]
    return functools.reduce(operator.add, terms)


def _index(number: Expr) -> Expr:
    """A place as an index."""
    return build.cast(number, dtypes.i64)


def unproven_reaches(conv: Depthwise) -> tuple[Dim, ...]:
    """How far image, filter and result reach in memory, in elements, where that is not known to be less than
    MOST_COUNTED."""
    reaches: list[Dim] = []
    for type_ in (conv.image.type, conv.weight.type, conv.output):
        reach: Dim = 0
        for extent, stride in zip(type_.shape, type_.element_strides, strict=True):
            reach = reach + extent * stride
        upper = dims.bounds(reach)[1]
        if upper is None or upper >= MOST_COUNTED:
            reaches.append(reach)
    return tuple(dict.fromkeys(reaches))


def _inside(place: Expr, extent: Expr, is_positive: bool) -> Expr:
    """Whether a place lies on an axis. is_positive: it is known not to lie before it."""
    return place < extent if is_positive else build.logical_and(place >= 0, place < extent)


def _clamped(place: Expr, extent: Expr, is_positive: bool) -> Expr:
    """The nearest place on an axis."""
    nearest = build.minimum(place, extent - 1)
    return nearest if is_positive else build.maximum(nearest, 0)
