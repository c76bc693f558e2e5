"""Rows put in order digit by digit, from the lowest on: each pass keeps the order of the one before among equals.

Rows that fit a tile stay in shared memory. Of longer ones each pass takes three kernels:

    how many sort keys of each tile have each value of the digit          a block a tile
    how many of the tiles before have it, and how many of all tiles       a warp a value
    sort keys to their places: after those with smaller values, those of  a block a tile, which puts its sort keys in
    the tiles before, and those before in the tile                        order first, so that neighbours are written

Only bits that differ are looked at (`Rows.order_bits`): bf16 takes two passes, f32 four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import SUM, Routine, Scatter
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.digit_tile import BITS, THREADS, DigitTile, digit_of
from hidet.gpu.schedules.exchange import WARP, barrier, block_number, sum_before, thread_in_block
from hidet.gpu.schedules.row_sort_keys import RowKernel, Rows, SortKeys
from hidet.gpu.schedules.scan_kernel import Chunks, ChunkWalk
from hidet.gpu.schedules.sort_kernels import SortKey
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.schedule.fallback import NestBuilder

_TILE_BYTES = 32 << 10
"""Shared memory for the sort keys of a tile; counts take 8 KiB more."""
_AT_ONCE = 4
"""Sort keys of a tile whose results a thread reads at once; registers for more would leave room for fewer blocks."""
_SCAN_THREADS = 128
_SCAN_EACH = 4


def most_in_tile(parts: Sequence[DType]) -> int:
    """Sort keys of the largest tile. parts: types of the parts of one."""
    return _TILE_BYTES // sum(dtype.nbytes for dtype in parts)


def order_in_tile(
    nest: NestBuilder, stage: Routine | Scatter, rows: Rows, length: int, target: SortKeys | None, wanted: Dim
) -> None:
    """Add the kernel that orders rows of up to `length` sort keys, at most `most_in_tile`, a block each.

    target: where the first `wanted` sort keys go; None for results.
    """
    kernel = RowKernel(nest, stage, rows)
    kept = None if target is None else kernel.memory(target)
    k, thread = IRBuilder(), build.size_var("thread")
    tile = DigitTile(rows.parts, -(-length // THREADS), thread)
    low, high = rows.order_bits
    passes = -(-(high - low) // BITS)
    count, ends = kernel.size(rows.length), kernel.size(wanted)
    tile.declare(k)
    k.declare(thread, thread_in_block())
    kernel.row_of(k, block_number(), 1, "number")
    tile.read(k, lambda place: rows.sort_key(kernel, place), count)
    with k.for_range("pass", passes) as step:
        # Digits of a word leave registers for a third block.
        shift = k.let("shift", build.cast(step * BITS + low % 32, dtypes.u32 if low >= 32 else dtypes.u64))
        tile.put_in_order(k, shift)
        with k.if_(step < passes - 1):
            tile.read_back(k)
    if kept is None or target is None:
        _write_results(k, kernel, tile, count, lambda slot: slot, ends)
    else:
        kept_count = kernel.size(target.count)
        with k.for_range("element", tile.each, kind="unroll") as element:
            place = k.let("place", element * THREADS + thread)
            with k.if_(place < ends):
                kernel.store(k, kept, place, kept_count, tile.load(place))
    kernel.launch(k.body, rows.count, 1, THREADS)


def _write_results(
    k: IRBuilder, kernel: RowKernel, tile: DigitTile, count: Expr, place: Callable[[Expr], Expr], wanted: Expr
) -> None:
    """Write what the results have for the first `count` sort keys of a tile in shared memory, where it is wanted.

    place: in the row, of the sort key at a place of the tile. What is written is read before, for several sort keys:
    every read would wait for the write before it otherwise.
    """
    last = k.let("last", build.minimum(count, tile.elements) - 1)
    with k.for_range("group", tile.each, step=_AT_ONCE) as group:
        slot = build.size_var("slot")
        values = kernel.rows.results(kernel, tile.load(slot))
        held = [k.array(f"result{n}", value.dtype, _AT_ONCE) for n, value in enumerate(values)]
        with k.for_range("element", _AT_ONCE, kind="unroll") as element:
            k.declare(slot, build.minimum((group + element) * THREADS + tile.thread, last))
            k.store_each(held, element, values)
        with k.for_range("element", _AT_ONCE, kind="unroll") as element:
            slot = k.let("slot", (group + element) * THREADS + tile.thread)
            with k.if_(slot <= last):
                here = k.let("here", place(slot))
                with k.if_(here < wanted):
                    kernel.rows.write(k, kernel, here, [build.load(array, element) for array in held])


@dataclass(frozen=True, slots=True, eq=False)
class _PassKernel:
    """A kernel of a pass, and what other passes launch it with something else for.

    memory: where its sort keys came from and went when it was added. shift: its parameter for the digit's place.
    """

    kernel: RowKernel
    memory: tuple[Var, ...]
    shift: Expr


class RadixPasses:
    """Adds the kernels that order long rows, of any length."""

    def __init__(self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> None:
        self.nest, self.stage, self.rows = nest, stage, rows
        self.each = most_in_tile(rows.parts) // THREADS
        self.tiles = dims.ceildiv(rows.length, most_in_tile(rows.parts))
        self._counts = self._table("counts", THREADS * self.tiles)
        self._totals = self._table("totals", THREADS)
        self._added: dict[tuple[str, bool, bool], _PassKernel] = {}
        self._scan: RowKernel | None = None

    def write_first(self, wanted: Dim) -> None:
        """Write the first sort keys of every row as results."""
        self._run(wanted, to_results=True)

    def in_order(self) -> SortKeys:
        """All sort keys of every row, in scratch memory."""
        last = self._run(self.rows.length, to_results=False)
        assert last is not None
        return last

    def _run(self, wanted: Dim, *, to_results: bool) -> SortKeys | None:
        low, high = self.rows.order_bits
        shifts = range(low, high, BITS)
        kept = len(shifts) - to_results
        memory = [self._sort_keys(name) for name in ("even_", "odd_")[:kept]]
        source: SortKeys | None = None
        for number, shift in enumerate(shifts):
            target = memory[number % 2] if number < kept else None
            self._launch("count", source, None, shift, wanted)
            self._launch_scan()
            self._launch("move", source, target, shift, wanted)
            source = target
        return source

    def _launch(self, what: str, source: SortKeys | None, target: SortKeys | None, shift: int, wanted: Dim) -> None:
        """Launch a kernel of a pass, which is added once for all passes that read and write memory of a kind."""
        key = (what, source is None, target is None)
        memory = tuple(part for sort_keys in (source, target) if sort_keys is not None for part in sort_keys.parts)
        known = self._added.get(key)
        if known is not None:
            changed = dict(zip(known.memory, memory, strict=True))
            known.kernel.launch_again(self.rows.count * self.tiles, 1, THREADS, changed, {known.shift: shift})
            return
        kernel, k = RowKernel(self.nest, self.stage, self.rows), IRBuilder()
        place = kernel.scope.argument(shift, "shift")
        self._added[key] = _PassKernel(kernel, memory, place)
        at = build.cast(place, dtypes.u64)
        if what == "count":
            self._count(k, kernel, source, at)
        else:
            self._move(k, kernel, source, target, at, wanted)
        kernel.launch(k.body, self.rows.count * self.tiles, 1, THREADS)

    def _count(self, k: IRBuilder, kernel: RowKernel, source: SortKeys | None, shift: Expr) -> None:
        """Count the values of the digit in a tile: a value a thread tells how many it has."""
        (table,) = kernel.memory(self._counts)
        count, tiles = kernel.size(self.rows.length), kernel.size(self.tiles)
        read = self._source(kernel, source, count)
        counts = k.array("values", dtypes.i32, THREADS, space="shared")
        held = k.array("held0", self.rows.parts[0], self.each)
        thread = k.let("thread", thread_in_block())
        number = kernel.row_of(k, block_number(), self.tiles, "tile")
        k.store(counts, thread, build.const(0, dtypes.i32))
        k.emit(barrier())
        with k.for_range("element", self.each, kind="unroll") as element:
            place = k.let("place", (number * self.each + element) * THREADS + thread)
            position = k.let("position", build.minimum(place, count - 1))
            k.store(held, element, build.cast(read(position)[0], held.dtype))
        with k.for_range("element", self.each, kind="unroll") as element:
            place = k.let("place", (number * self.each + element) * THREADS + thread)
            with k.if_(place < count):
                digit = build.cast(digit_of([build.load(held, element)], shift), dtypes.i64)
                one = build.const(1, dtypes.i32)
                k.run(intrinsic_call("gpu.reduce_add_at", build.address(counts, digit), one))
        k.emit(barrier())
        kernel.store(k, (table,), thread * tiles + number, tiles * THREADS, [build.load(counts, thread)])

    def _launch_scan(self) -> None:
        """For each value, how many sort keys of the tiles before a tile have it, and how many of all."""
        values = self.rows.count * THREADS
        warps = _SCAN_THREADS // WARP
        if self._scan is not None:
            self._scan.launch_again(values, warps, _SCAN_THREADS, {}, {})
            return
        kernel = self._scan = RowKernel(self.nest, self.stage, self.rows)
        counts, totals = kernel.memory(self._counts), kernel.memory(self._totals)
        tiles, k = kernel.size(self.tiles), IRBuilder()
        size = tiles * THREADS
        thread = k.let("thread", thread_in_block())
        lane = k.let("lane", thread % WARP)
        item = k.let("item", block_number() * warps + thread // WARP)
        with k.if_(item < kernel.size(values)):
            value = kernel.row_of(k, item, THREADS, "value")
            carry = k.let("carry", build.const(0, dtypes.i32))
            ChunkWalk(
                Chunks(WARP, _SCAN_EACH),
                SUM,
                [carry],
                lane,
                read=lambda k, tile: kernel.load(counts, value * tiles + tile, size),
                write=lambda k, tile, before: kernel.store(k, counts, value * tiles + tile, size, before),
                exclusive=True,
                is_reversed=False,
            ).emit(k, build.index(0), tiles)
            with k.if_(build.equal(lane, 0)):
                kernel.store(k, totals, value, build.index(THREADS), [carry])
        kernel.launch(k.body, values, warps, _SCAN_THREADS)

    def _move(
        self,
        k: IRBuilder,
        kernel: RowKernel,
        source: SortKeys | None,
        target: SortKeys | None,
        shift: Expr,
        wanted: Dim,
    ) -> None:
        """Write the sort keys of a tile to their places."""
        count, tiles = kernel.size(self.rows.length), kernel.size(self.tiles)
        thread = build.size_var("thread")
        tile = DigitTile(self.rows.parts, self.each, thread)
        read = self._source(kernel, source, count)
        kept = None if target is None else kernel.memory(target)
        counts, totals = kernel.memory(self._counts), kernel.memory(self._totals)
        tile.declare(k)
        bases = k.array("bases", dtypes.i32, THREADS, space="shared")
        k.declare(thread, thread_in_block())
        number = kernel.row_of(k, block_number(), self.tiles, "tile")
        first = k.let("first", number * tile.elements)
        tile.read(k, lambda place: read(first + place), count - first)
        tile.put_in_order(k, shift)
        (before,) = kernel.load(counts, thread * tiles + number, tiles * THREADS)
        (total,) = kernel.load(totals, thread, build.index(THREADS))
        smaller = sum_before(k, k.let("of_value", total), tile.totals, THREADS, thread)
        k.store(bases, thread, smaller + before - build.load(tile.starts, thread))
        k.emit(barrier())

        def moved(slot: Expr) -> Expr:
            digit = build.cast(digit_of(tile.load(slot), shift), dtypes.i64)
            return slot + build.cast(build.load(bases, digit), dtypes.i64)

        if kept is None:
            _write_results(k, kernel, tile, count - first, moved, kernel.size(wanted))
            return
        with k.for_range("element", tile.each, kind="unroll") as element:
            slot = k.let("slot", element * THREADS + thread)
            with k.if_(first + slot < count):
                kernel.store(k, kept, k.let("place", moved(slot)), count, tile.load(slot))

    def _source(self, kernel: RowKernel, source: SortKeys | None, count: Expr) -> Callable[[Expr], SortKey]:
        """What is at a position of the row."""
        if source is None:
            return lambda position: self.rows.sort_key(kernel, position)
        memory = kernel.memory(source)
        return lambda position: kernel.load(memory, position, count)

    def _table(self, name: str, count: Dim) -> SortKeys:
        return SortKeys((self.nest.scratch(name, dtypes.i32, self.rows.count * count),), count)

    def _sort_keys(self, name: str) -> SortKeys:
        total = self.rows.count * self.rows.length
        parts = [self.nest.scratch(f"{name}{n}", dtype, total) for n, dtype in enumerate(self.rows.parts)]
        return SortKeys(tuple(parts), self.rows.length)
