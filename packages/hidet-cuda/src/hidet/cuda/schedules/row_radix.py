"""Rows put in order digit by digit, from the lowest on: each pass keeps the order of the one before among equals.

Rows that fit a tile stay in shared memory. Of longer ones each pass takes three kernels:

    how many records of each tile have each value of the digit            a block a tile
    how many of the tiles before have it, and how many of all tiles       a warp a value
    records to their places: after those with smaller values, those of    a block a tile, which puts its records in
    the tiles before, and those before in the tile                        order first, so that neighbours are written

Only bits that differ are looked at (`Rows.order_bits`): bf16 takes two passes, f32 four.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import SUM, Routine, Scatter
from hidet.cuda.schedules.digit_tile import BITS, THREADS, DigitTile, digit_of, each_element
from hidet.cuda.schedules.exchange import WARP, barrier, block_number, shared, sum_before, thread_in_block
from hidet.cuda.schedules.lanes import registers
from hidet.cuda.schedules.row_records import Records, RowKernel, Rows
from hidet.cuda.schedules.scan_kernel import Chunks, ChunkWalk
from hidet.cuda.schedules.sort_kernels import Record
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Declare, Evaluate, For, If, Stmt, Store
from hidet.schedule.fallback import NestBuilder

_TILE_BYTES = 32 << 10
"""Shared memory for the records of a tile; counts take 8 KiB more."""
_AT_ONCE = 4
"""Records of a tile whose results a thread reads at once; registers for more would leave room for fewer blocks."""
_SCAN_THREADS = 128
_SCAN_EACH = 4


def most_in_tile(rows: Rows) -> int:
    """Records of the largest tile."""
    return _TILE_BYTES // sum(dtype.nbytes for dtype in rows.parts)


def order_in_tile(
    nest: NestBuilder, stage: Routine | Scatter, rows: Rows, length: int, target: Records | None, wanted: Dim
) -> None:
    """Add the kernel that orders rows of up to `length` records, at most `most_in_tile`, a block each.

    target: where the first `wanted` records go; None for results.
    """
    kernel = RowKernel(nest, stage, rows)
    kept = None if target is None else kernel.memory(target)
    thread, number, step = (build.size_var(name) for name in ("thread", "number", "pass"))
    place, element = build.size_var("place"), build.size_var("element")
    tile = DigitTile(rows.parts, -(-length // THREADS), thread)
    low, high = rows.order_bits
    passes = -(-(high - low) // BITS)
    # Digits of a word leave registers for a third block.
    shift = Var("shift", dtypes.u32 if low >= 32 else dtypes.u64)
    count, ends = kernel.size(rows.length), kernel.size(wanted)
    if kept is None or target is None:
        written = _results(kernel, tile, count, lambda slot: slot, ends)
    else:
        store = kernel.store(kept, place, kernel.size(target.count), tile.load(place))
        here = Declare(place, element * THREADS + thread)
        written = [each_element(element, tile.each, [here, If(place < ends, build.seq(store))])]
    one_pass = [
        Declare(shift, build.cast(step * BITS + low % 32, shift.dtype)),
        *tile.put_in_order(shift),
        If(step < passes - 1, build.seq(tile.read_back())),
    ]
    body = [
        *tile.declare(),
        Declare(thread, thread_in_block()),
        *kernel.row_of(block_number(), 1, number),
        *tile.read(lambda place: rows.record(kernel, place), count),
        For(step, build.index(0), build.index(passes), build.seq(one_pass)),
        *written,
    ]
    kernel.launch(body, rows.count, 1, THREADS)


def _results(
    kernel: RowKernel, tile: DigitTile, count: Expr, place: Callable[[Expr], Expr], wanted: Expr
) -> list[Stmt]:
    """Write what the results have for the first `count` records of a tile in shared memory, where it is wanted.

    place: in the row, of the record at a place of the tile. What is written is read before, for several records: every
    read would wait for the write before it otherwise.
    """
    slot, element, here, last, group = (build.size_var(name) for name in ("slot", "element", "here", "last", "group"))
    values = kernel.rows.results(kernel, tile.load(slot))
    held = [registers(f"result{n}", value.dtype, _AT_ONCE) for n, value in enumerate(values)]
    at = (group + element) * THREADS + tile.thread
    read = [Store(array, (element,), value) for array, value in zip(held, values, strict=True)]
    write = kernel.rows.write(kernel, here, [build.load(array, element) for array in held])
    move = [Declare(here, place(slot)), If(here < wanted, build.seq(write))]
    body = [
        *map(Declare, held),
        each_element(element, _AT_ONCE, [Declare(slot, build.minimum(at, last)), *read]),
        each_element(element, _AT_ONCE, [Declare(slot, at), If(slot <= last, build.seq(move))]),
    ]
    return [
        Declare(last, build.minimum(count, tile.elements) - 1),
        For(group, build.index(0), build.index(tile.each), build.seq(body), step=_AT_ONCE),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _PassKernel:
    """A kernel of a pass, and what other passes launch it with something else for.

    memory: where its records came from and went when it was added. shift: its parameter for the digit's place.
    """

    kernel: RowKernel
    memory: tuple[Var, ...]
    shift: Expr


class RadixPasses:
    """Adds the kernels that order long rows, of any length."""

    def __init__(self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> None:
        self.nest, self.stage, self.rows = nest, stage, rows
        self.each = most_in_tile(rows) // THREADS
        self.tiles = dims.ceildiv(rows.length, most_in_tile(rows))
        self._counts = self._table("counts", THREADS * self.tiles)
        self._totals = self._table("totals", THREADS)
        self._added: dict[tuple[str, bool, bool], _PassKernel] = {}
        self._scan: RowKernel | None = None

    def write_first(self, wanted: Dim) -> None:
        """Write the first records of every row as results."""
        self._run(wanted, to_results=True)

    def in_order(self) -> Records:
        """All records of every row, in scratch memory."""
        last = self._run(self.rows.length, to_results=False)
        assert last is not None
        return last

    def _run(self, wanted: Dim, *, to_results: bool) -> Records | None:
        low, high = self.rows.order_bits
        shifts = range(low, high, BITS)
        kept = len(shifts) - to_results
        memory = [self._records(name) for name in ("even_", "odd_")[:kept]]
        source: Records | None = None
        for number, shift in enumerate(shifts):
            target = memory[number % 2] if number < kept else None
            self._launch("count", source, None, shift, wanted)
            self._launch_scan()
            self._launch("move", source, target, shift, wanted)
            source = target
        return source

    def _launch(self, what: str, source: Records | None, target: Records | None, shift: int, wanted: Dim) -> None:
        """Launch a kernel of a pass, which is added once for all passes that read and write memory of a kind."""
        key = (what, source is None, target is None)
        memory = tuple(part for records in (source, target) if records is not None for part in records.parts)
        known = self._added.get(key)
        if known is not None:
            changed = dict(zip(known.memory, memory, strict=True))
            known.kernel.launch_again(self.rows.count * self.tiles, 1, THREADS, changed, {known.shift: shift})
            return
        kernel = RowKernel(self.nest, self.stage, self.rows)
        place = kernel.scope.argument(shift, "shift")
        self._added[key] = _PassKernel(kernel, memory, place)
        at = build.cast(place, dtypes.u64)
        body = self._count(kernel, source, at) if what == "count" else self._move(kernel, source, target, at, wanted)
        kernel.launch(body, self.rows.count * self.tiles, 1, THREADS)

    def _count(self, kernel: RowKernel, source: Records | None, shift: Expr) -> list[Stmt]:
        """Count the values of the digit in a tile: a value a thread tells how many it has."""
        (table,) = kernel.memory(self._counts)
        thread, number, position = (build.size_var(name) for name in ("thread", "tile", "position"))
        element, counts = build.size_var("element"), shared("values", dtypes.i32, THREADS)
        count, tiles = kernel.size(self.rows.length), kernel.size(self.tiles)
        held = [registers(f"held{n}", dtype, self.each) for n, dtype in enumerate(self.rows.parts[:1])]
        record = self._source(kernel, source, count)(position)
        place = build.size_var("place")
        here = Declare(place, (number * self.each + element) * THREADS + thread)
        there = Declare(position, build.minimum(place, count - 1))
        first = Store(held[0], (element,), build.cast(record[0], held[0].dtype))
        digit = build.cast(digit_of([build.load(held[0], element)], shift), dtypes.i64)
        one = build.const(1, dtypes.i32)
        add = Evaluate(intrinsic_call("cuda.reduce_add_at", build.address(counts, digit), one))
        return [
            *map(Declare, (counts, *held)),
            Declare(thread, thread_in_block()),
            *kernel.row_of(block_number(), self.tiles, number),
            Store(counts, (thread,), build.const(0, dtypes.i32)),
            barrier(),
            each_element(element, self.each, [here, there, first]),
            each_element(element, self.each, [here, If(place < count, add)]),
            barrier(),
            *kernel.store((table,), thread * tiles + number, tiles * THREADS, [build.load(counts, thread)]),
        ]

    def _launch_scan(self) -> None:
        """For each value, how many records of the tiles before a tile have it, and how many of all."""
        values = self.rows.count * THREADS
        warps = _SCAN_THREADS // WARP
        if self._scan is not None:
            self._scan.launch_again(values, warps, _SCAN_THREADS, {}, {})
            return
        kernel = self._scan = RowKernel(self.nest, self.stage, self.rows)
        counts, totals = kernel.memory(self._counts), kernel.memory(self._totals)
        lane, value = build.size_var("lane"), build.size_var("value")
        tiles, carry = kernel.size(self.tiles), Var("carry", dtypes.i32)
        size = tiles * THREADS
        walk = ChunkWalk(
            Chunks(WARP, _SCAN_EACH),
            SUM,
            [carry],
            lane,
            read=lambda k, tile: kernel.load(counts, value * tiles + tile, size),
            write=lambda k, tile, before: k.emit(*kernel.store(counts, value * tiles + tile, size, before)),
            exclusive=True,
            is_turned=False,
        )
        k = IRBuilder()
        thread = k.let("thread", thread_in_block())
        k.declare(lane, thread % WARP)
        item = k.let("item", block_number() * warps + thread // WARP)
        with k.if_(item < kernel.size(values)):
            k.emit(*kernel.row_of(item, THREADS, value))
            k.declare(carry, build.const(0, dtypes.i32))
            walk.emit(k, build.index(0), tiles)
            with k.if_(build.equal(lane, 0)):
                k.emit(*kernel.store(totals, value, build.index(THREADS), [carry]))
        kernel.launch([k.body], values, warps, _SCAN_THREADS)

    def _move(
        self, kernel: RowKernel, source: Records | None, target: Records | None, shift: Expr, wanted: Dim
    ) -> list[Stmt]:
        """Write the records of a tile to their places."""
        thread, number, first = (build.size_var(name) for name in ("thread", "tile", "first"))
        slot, place, element = (build.size_var(name) for name in ("slot", "place", "element"))
        count, tiles = kernel.size(self.rows.length), kernel.size(self.tiles)
        tile = DigitTile(self.rows.parts, self.each, thread)
        bases = shared("bases", dtypes.i32, THREADS)
        read = self._source(kernel, source, count)
        kept = None if target is None else kernel.memory(target)
        (before,) = kernel.load(kernel.memory(self._counts), thread * tiles + number, tiles * THREADS)
        (total,) = kernel.load(kernel.memory(self._totals), thread, build.index(THREADS))
        own = Var("of_value", dtypes.i32)
        sums, smaller = sum_before(own, tile.totals, THREADS, thread)
        base = smaller + before - build.load(tile.starts, thread)

        def moved(slot: Expr) -> Expr:
            digit = build.cast(digit_of(tile.load(slot), shift), dtypes.i64)
            return slot + build.cast(build.load(bases, digit), dtypes.i64)

        if kept is None:
            written = _results(kernel, tile, count - first, moved, kernel.size(wanted))
        else:
            store = [Declare(place, moved(slot)), *kernel.store(kept, place, count, tile.load(slot))]
            here = Declare(slot, element * THREADS + thread)
            written = [each_element(element, tile.each, [here, If(first + slot < count, build.seq(store))])]
        return [
            *tile.declare(),
            Declare(bases),
            Declare(thread, thread_in_block()),
            *kernel.row_of(block_number(), self.tiles, number),
            Declare(first, number * tile.elements),
            *tile.read(lambda place: read(first + place), count - first),
            *tile.put_in_order(shift),
            Declare(own, total),
            *sums,
            Store(bases, (thread,), base),
            barrier(),
            *written,
        ]

    def _source(self, kernel: RowKernel, source: Records | None, count: Expr) -> Callable[[Expr], Record]:
        """What is at a position of the row."""
        if source is None:
            return lambda position: self.rows.record(kernel, position)
        memory = kernel.memory(source)
        return lambda position: kernel.load(memory, position, count)

    def _table(self, name: str, count: Dim) -> Records:
        return Records((self.nest.scratch(name, dtypes.i32, self.rows.count * count),), count)

    def _records(self, name: str) -> Records:
        total = self.rows.count * self.rows.length
        parts = [self.nest.scratch(f"{name}{n}", dtype, total) for n, dtype in enumerate(self.rows.parts)]
        return Records(tuple(parts), self.rows.length)
