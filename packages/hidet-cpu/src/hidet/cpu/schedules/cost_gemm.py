"""How long a matrix product or convolution takes as chosen: a model of `gemm` and `gemv` in seconds, from sizes alone.

A tile of r rows and c vectors does a step in as long as the slowest of these takes:

    multiplying   r * c vectors at the rate of multiply-adds
    waiting       the latency of a multiply-add, because a step adds to the sums of the step before
    reading       r elements, c vectors and a prefetch, two a cycle

and takes a few cycles a call besides, and for each sum that a chunk leaves in memory. Columns and rows stream from the
level of memory that keeps all operands of the task, behind the arithmetic but for a part. Columns that no pass has
packed are packed by each work item, or by a kernel before. Work items are shared out to threads whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hidet.cpu.constants import fma_rate
from hidet.cpu.schedules.gemm_blocking import Blocking, Extents, Item, blocking_of
from hidet.cpu.schedules.gemm_choice import GemmParams
from hidet.cpu.schedules.gemm_tile import EDGE_ROWS, TileShape
from hidet.cpu.schedules.gemv import MOST_ROWS, is_skinny
from hidet.cpu.schedules.pack import Order
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.schedule.cost import extent_estimate
from hidet.target.constants import DeviceConstants

# Cycles of a call of a tile's function, of each sum that it writes, and reads again in a later chunk, and of each
# vector that is stored to the result.
_CALL, _LEFT, _CONTINUED, _FINISHED = 25.0, 1.0, 1.0, 3.0
# Cycles of finding a row under a tap, and where there are more rows than general registers keep the addresses of.
_POINTER, _POINTERS, _SPILLED = 1.0, 8, 3.0
# Cycles of a step more of a whole tile of so many rows, which does two steps at once where their number is even.
_TWICE = 1.5
# Cycles of a work item, of a column group of it, and of an entry of its table: of a matrix, or of an image.
_ITEM, _GROUP, _ROW, _TAP = 150.0, 40.0, 3.0, 5.0
# Cycles of packing an element: squares that are transposed in registers, vectors that are copied, and single elements,
# by work items and by a kernel before.
_PACKED: Mapping[Order, float] = {"steps": 0.25, "taps": 0.35, "columns": 0.25}
_SINGLE, _SINGLE_BEFORE = 1.1, 0.6
# Cycles of packing a step of a vector that has fewer columns than lanes, of which each is copied alone.
_PART = 12.0
# Cycles of a dot function of `gemv`, which adds the lanes of its sums at the end.
_DOT = 60.0
# Cycles in which a tile of more than four vectors finishes columns that are no whole tile.
_WIDEST, _RAGGED = 4, 500.0
# What streams behind the arithmetic, or arithmetic behind it, takes one part of so many besides.
_HIDDEN = 8
# Seconds of work below which a launch is not shared out to threads.
_SHARED = 5e-6


@dataclass(frozen=True, slots=True)
class Operands:
    """How the operands of a product lie. column: the type of its columns' elements.

    order: of columns that are not packed, whoever packs them; None where they are packed. copied: elements of rows or
    images that a kernel before copies.
    """

    column: DType
    order: Order | None
    copied: int = 0


def gemm_seconds(
    extents: Extents,
    operands: Operands,
    shape: TileShape,
    params: GemmParams,
    constants: DeviceConstants,
    threads: int,
) -> float:
    """Seconds of a product with these parameters, the kernels before it and all."""
    model = _Model(extents, operands, shape, constants, min(threads, constants.cores))
    if params.is_gemv and (is_skinny(extents.rows) is not None or known(extents.rows) <= MOST_ROWS):
        return model.before(is_packed=False) + model.dots(params.item.groups)
    is_packed = operands.order is not None and not params.is_packed_on_the_way
    return model.before(is_packed=is_packed) + model.tiles(blocking_of(shape, extents, params.item))


def item_count(extents: Extents, shape: TileShape, item: Item) -> int:
    """Work items of the kernel that multiplies by register tiles."""
    row_blocks = _ceil(known(extents.rows), item.tiles * shape.rows)
    return known(extents.problems) * row_blocks * _ceil(_ceil(known(extents.columns), shape.columns), item.groups)


class _Model:
    """The parts of the model for one product."""

    def __init__(
        self, extents: Extents, operands: Operands, shape: TileShape, constants: DeviceConstants, threads: int
    ) -> None:
        self.order, self.operands, self.shape, self.constants = extents.order, operands, shape, constants
        self.problems, self.rows, self.columns = map(known, (extents.problems, extents.rows, extents.columns))
        self.taps, self.run = known(extents.taps), known(extents.run)
        self.steps = self.taps * self.run
        self.nbytes, self.cycle = shape.dtype.nbytes, constants.cycle
        self.vector = shape.lanes / fma_rate(constants, shape.dtype)
        self.products = self.problems * self.rows * self.columns * self.steps
        is_shared = self.products / fma_rate(constants, shape.dtype) > _SHARED
        self.threads = threads if is_shared else 1
        right = self.steps * self.columns * operands.column.nbytes
        left = self.rows * self.run * self.nbytes
        far = constants.level_of(self.problems * (left + right + self.rows * self.columns * self.nbytes))
        self.bandwidth = min(self.threads * far.core_bandwidth, far.device_bandwidth) / self.threads
        self.near = constants.level("L2").nbytes

    def before(self, *, is_packed: bool) -> float:
        """Of kernels that pack columns, and copy rows."""
        total = 0.0
        if is_packed and self.operands.order is not None:
            elements = self.problems * self.columns * self.steps
            moved = elements * (self.operands.column.nbytes + 2 * self.nbytes)
            cycles = self._packed_cycles(self.operands.order, _SINGLE_BEFORE)
            busy = self.problems * self.steps * cycles * self.cycle
            # What it writes has to be read again, so that little of that hides behind the packing.
            total += self._launched(busy + moved / self.bandwidth)
        if self.operands.copied:
            total += self._launched(self.operands.copied * 3 * self.nbytes / self.bandwidth)
        return total

    def _launched(self, seconds: float) -> float:
        return seconds / self.threads + (self.constants.launch if self.threads > 1 else 0.0)

    def _packed_cycles(self, order: Order, single: float) -> float:
        """Of packing all columns at one step. single: of an element that is packed alone."""
        part = _PART if order == "columns" and self.columns % self.shape.lanes else 0.0
        # What is shorter than a square is no square.
        neighbours = {"steps": self.run, "taps": self.steps}.get(order, self.shape.lanes)
        each = single if neighbours < self.shape.lanes else _PACKED.get(order, single)
        return self.columns * each + part

    def tiles(self, blocking: Blocking) -> float:
        """Of the kernel that multiplies by register tiles."""
        groups, row_blocks = _ceil(self.columns, self.shape.columns), _ceil(self.rows, blocking.rows)
        column_blocks = _ceil(groups, blocking.groups)
        items = self.problems * row_blocks * column_blocks
        packed = 0.0
        if self.order is not None:
            packed = self.problems * row_blocks * self.steps * self._packed_cycles(self.order, _SINGLE)
        table = self.problems * column_blocks * self.rows * (_ROW if self.taps == 1 else _TAP * self.taps)
        started = items * (_ITEM + _GROUP * blocking.groups)
        busy = self._computed(blocking) + (packed + table + started) * self.cycle + items * self.constants.item
        busy += self._fetched(blocking, row_blocks)
        streamed = self._streamed(blocking, row_blocks, column_blocks) / self.bandwidth
        return self._shared(busy, streamed, items)

    def _fetched(self, blocking: Blocking, row_blocks: int) -> float:
        """Seconds of fetching packed chunks again, which what they were packed from has driven out of the first-level
        cache."""
        if self.order is None:
            return 0.0
        width = min(self.columns, self.shape.columns)
        chunk = known(blocking.taps) * known(blocking.steps) * width * (self.nbytes + self.operands.column.nbytes)
        if chunk <= self.constants.levels[0].nbytes:
            return 0.0
        packed = self.problems * row_blocks * self.columns * self.steps * self.nbytes
        return packed / self.constants.level("L2").core_bandwidth

    def dots(self, groups: int) -> float:
        """Of the kernel that reads columns where they lie."""
        lanes = self.shape.lanes
        height = min(4, 1 << (self.rows - 1).bit_length(), lanes)
        width = lanes // height
        functions = _ceil(self.rows, height) * self.problems * _ceil(self.columns, width)
        # Vectors of both operands, which lie across cache lines, are read at one a cycle, half of them behind products.
        step = lanes * self.vector + (height + width) / 2 * self.cycle
        busy = functions * (_ceil(self.steps, lanes) * step + _DOT * self.cycle)
        items = self.problems * _ceil(_ceil(self.columns, self.shape.columns), groups)
        busy += items * (_ITEM + _GROUP * groups) * self.cycle
        read = self.problems * self.columns * self.steps * self.operands.column.nbytes
        return self._shared(busy, read / self.bandwidth, items)

    def _shared(self, busy: float, streamed: float, items: int) -> float:
        """Of work items that compute and read so long in all, by threads that take whole ones."""
        alone = max(busy, streamed) + min(busy, streamed) / _HIDDEN
        share = max(1 / self.threads, _ceil(items, self.threads) / items)
        return alone * share + (self.constants.launch if self.threads > 1 else 0.0)

    def _computed(self, blocking: Blocking) -> float:
        """Seconds of all tiles."""
        shape = self.shape
        chunks = _ceil(self.taps, known(blocking.taps)) * _ceil(self.run, known(blocking.steps))
        whole, rest = divmod(self.columns, shape.columns)
        widths = ((whole, shape.vectors), (1 if rest else 0, _ceil(rest, shape.lanes)))
        tiles, left = divmod(self.rows, shape.rows)
        lower = next((height for height in reversed(EDGE_ROWS) if left <= height), shape.rows)
        total = 0.0
        for groups, vectors in widths:
            for count, rows in ((tiles, shape.rows), (1 if left else 0, lower)):
                sums = rows * vectors
                reads = (rows + vectors + 1) / 2 * self.cycle
                if rows > _POINTERS and vectors == shape.vectors and self.run % 2 == 0:
                    reads += _TWICE * self.cycle
                step = max(sums * self.vector, self.constants.fma_latency, reads)
                calls = chunks * _CALL + self.taps * (rows * _POINTER + max(0, rows - _POINTERS) * _SPILLED)
                calls += sums * (chunks * _LEFT + (chunks - 1) * _CONTINUED + _FINISHED)
                if shape.vectors > _WIDEST and groups == 1 and self.columns % shape.lanes:
                    calls += _RAGGED
                total += groups * count * (self.steps * step + calls * self.cycle)
        return self.problems * total

    def _streamed(self, blocking: Blocking, row_blocks: int, column_blocks: int) -> float:
        """Bytes that all work items read from the level of the operands, and write to it."""
        element = self.nbytes if self.order is None else self.operands.column.nbytes
        right = row_blocks * self.columns * self.steps * element
        # Rows of a work item stay in its own caches from one column group to the next.
        stay = min(blocking.rows, self.rows) * self.run * self.nbytes <= self.near
        left = column_blocks * (1 if stay else blocking.groups) * self.rows * self.run * self.nbytes
        # What is written is read before.
        return self.problems * (right + left + 2 * self.rows * self.columns * self.nbytes)


def known(dim: Dim) -> int:
    """A size as a number, at least 1: what a symbol is hinted or guessed to be."""
    return max(1, extent_estimate(dim))


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
