"""The first records of long rows in order, without putting the rows in order.

A block finds the first `wanted` records of a part of a row by digits, from the highest bits on:

    how many records have each value of the digit          in shared memory
    the value that record number `wanted` has              sums over the values, by all threads
    the same for the next digit of the records with that value, until few enough are left
    these and all that come before them                    one tile in shared memory, which is put in order

A record's position is part of it, so that the digits tell equal elements apart, too: the earlier ones come first. Where
rows are few, several blocks take parts of one, and the first of their first records are found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Routine, Scatter
from hidet.cuda.schedules.exchange import WARP, barrier, block_number, shared, sum_before, thread_in_block
from hidet.cuda.schedules.lanes import registers
from hidet.cuda.schedules.row_records import Records, RowKernel, Rows
from hidet.cuda.schedules.sort_kernels import MOST, SPAN, Tile, bitonic_sort, greatest, is_less, tile_memory
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Stmt, Store, While
from hidet.schedule.cost import extent_estimate
from hidet.schedule.fallback import NestBuilder

MOST_SELECTED = MOST // 2
"""Records of a row that are selected at most: half a tile, so that a digit's value may bring as many that are not."""
_DIGIT = 11
"""Bits of a digit: sign, exponent and two bits more of an f32. Counts of its values take 8 KiB."""
_POSITION_BITS = 31
"""Bits of a position in a row of unknown length."""
_AT_ONCE = 2048
"""Records that a block reads at once; registers for more would leave room for fewer blocks."""
_BLOCKS = 528
"""Blocks that keep the device busy: four for each of 132 multiprocessors."""
_LEAST_PART = 4096
"""Records of a part of a row that are worth a block."""


def write_selected(nest: NestBuilder, stage: Routine | Scatter, rows: Rows, wanted: int) -> None:
    """Add the kernels that write the first `wanted` records of every row, in order, as results."""
    part = _part(rows, wanted)
    parts = dims.ceildiv(rows.length, part)
    if parts == 1:
        _Selection(nest, stage, rows, wanted, None).add(rows.length, None)
        return
    total = rows.count * parts * wanted
    best = tuple(nest.scratch(f"best{n}", dtype, total) for n, dtype in enumerate(rows.parts))
    records = Records(best, parts * wanted)
    _Selection(nest, stage, rows, wanted, None).add(part, records)
    _Selection(nest, stage, rows, wanted, records).add(records.count, None)


def _part(rows: Rows, wanted: int) -> int:
    """Records of a part of a row."""
    length = extent_estimate(rows.length)
    parts = -(-_BLOCKS // max(1, extent_estimate(rows.count)))
    # Of each part only a small share is left.
    return max(-(-length // parts), _LEAST_PART, 8 * wanted)


@dataclass(frozen=True, slots=True)
class _Digit:
    """Some bits of a part of a record."""

    part: int
    shift: int
    bits: int


def _digits(rows: Rows) -> list[_Digit]:
    """The digits of a record, highest first: those of what orders it, then those of its position."""
    position = (rows.length - 1).bit_length() if isinstance(rows.length, int) else _POSITION_BITS
    _, high = rows.order_bits
    if len(rows.parts) == 1:
        return [*_split(0, high, 32), *_split(0, position, 0)]
    return [*_split(0, high, 0), *_split(1, position, 0)]


def _split(part: int, high: int, low: int) -> Iterator[_Digit]:
    while high > low:
        shift = max(high - _DIGIT, low)
        yield _Digit(part, shift, high - shift)
        high = shift


class _Selection:
    """A kernel under construction. source: what the records are read from; None for the rows themselves."""

    def __init__(
        self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows, wanted: int, source: Records | None
    ) -> None:
        self.rows = rows
        self.kernel = RowKernel(nest, stage, rows)
        self.wanted = self.kernel.size(wanted)
        self.rank = build.cast(self.wanted, dtypes.i32)
        self.extent = rows.length if source is None else source.count
        self.count = self.kernel.size(self.extent)
        self.place = build.size_var("position")
        if source is None:
            self.record = rows.record(self.kernel, self.place)
        else:
            self.record = self.kernel.load(self.kernel.memory(source), self.place, self.count)
        # A tile of two records a thread; small ones leave room for more blocks.
        self.threads = 512 if wanted <= MOST // 8 else MOST // 2
        self.tile_elements = 2 * self.threads
        self.digits = _digits(rows)
        self.thread, self.start, self.end = (build.size_var(name) for name in ("thread", "start", "end"))
        self.counts = shared("counts", dtypes.i32, 1 << _DIGIT)
        # Of the chosen value of a digit: itself, how many records come before, how many have it. Then: collected ones.
        self.found = shared("found", dtypes.i32, 4)
        self.totals = shared("totals", dtypes.i32, self.threads // WARP)
        # Bits that are known of record number `wanted`, and the last record with these.
        self.low = [Var(f"low{n}", dtypes.u64) for n in range(len(rows.parts))]
        self.last = [Var(f"last{n}", dtypes.u64) for n in range(len(rows.parts))]
        self.digit = Var("digit", dtypes.i32)
        self.shift, self.bits = Var("shift", dtypes.u64), Var("bits", dtypes.u64)
        self.before, self.inside = Var("before", dtypes.i32), Var("inside", dtypes.i32)

    def add(self, part: Dim, target: Records | None) -> None:
        """Add the kernel, a block for every `part` records of a row. target: where the first records of each part go,
        followed by greatest ones where the part has fewer; None for results."""
        kernel, rows = self.kernel, self.rows
        kept = None if target is None else kernel.memory(target)
        parts = 1 if target is None else dims.ceildiv(self.extent, part)
        number, member = build.size_var("part"), build.size_var("member")
        tile = Tile(tile_memory(rows.parts, self.tile_elements), self.tile_elements, build.index(0), member)
        each = kernel.size(part)
        if kept is None or target is None:
            written = kernel.finish(member, tile.load(member))
        else:
            written = kernel.store(kept, number * self.wanted + member, kernel.size(target.count), tile.load(member))
        body = [
            *map(Declare, (*tile.parts, self.counts, self.found, self.totals)),
            Declare(self.thread, thread_in_block()),
            Declare(member, self.thread),
            *kernel.row_of(block_number(), parts, number),
            Declare(self.start, number * each),
            Declare(self.end, build.minimum(self.start + each, self.count)),
            *self._search(),
            *self._collect(tile),
            If(member < self.wanted, build.seq(written)),
        ]
        kernel.launch(body, rows.count * parts, 1, self.threads)

    # --- finding the last record -----------------------------------------------------------------------------------

    def _search(self) -> list[Stmt]:
        """Find a record that fits a tile together with all before it, `wanted` or more of them."""
        is_many = self.before + self.inside > self.tile_elements
        bin_ = build.size_var("value")
        clear = For(
            bin_, self.thread, (1 << _DIGIT) - self.thread, Store(self.counts, (bin_,), _i32(0)), step=self.threads
        )
        step = [
            Declare(self.shift, self._of_digit(lambda digit: digit.shift)),
            Declare(self.bits, self._of_digit(lambda digit: digit.bits)),
            clear,
            barrier(),
            self._each_record(self._counted),
            barrier(),
            *self._choose(),
            barrier(),
            *self._narrow(),
        ]
        return [
            Declare(self.before, _i32(0)),
            Declare(self.inside, build.cast(self.end - self.start, dtypes.i32)),
            Declare(self.digit, _i32(0)),
            *(Declare(low, build.const(0, dtypes.u64)) for low in self.low),
            *(Declare(last, build.const(dtypes.u64.max, dtypes.u64)) for last in self.last),
            While(build.logical_and(is_many, self.digit < len(self.digits)), build.seq(step)),
        ]

    def _of_digit(self, what: Callable[[_Digit], int]) -> Expr:
        """A property of the digit whose turn it is."""
        value: Expr = build.const(what(self.digits[-1]), dtypes.u64)
        for number, digit in reversed(list(enumerate(self.digits[:-1]))):
            value = build.select(build.equal(self.digit, number), build.const(what(digit), dtypes.u64), value)
        return value

    def _counted(self, record: Sequence[Expr]) -> list[Stmt]:
        """Count a record that has the bits known so far; those of others differ above the digit, too."""
        words = [build.cast(part, dtypes.u64) for part in record]
        values = [
            build.binary("shr", build.binary("xor", word, low), self.shift)
            for word, low in zip(words, self.low, strict=True)
        ]
        value, one = Var("value", dtypes.u64), build.const(1, dtypes.u64)
        which = values[0]
        if len(values) == 2:
            is_same = build.equal(words[0], self.low[0])
            nothing = build.const(dtypes.u64.max, dtypes.u64)
            which = build.select(self._is_first_part(), values[0], build.select(is_same, values[1], nothing))
        place = build.address(self.counts, build.cast(value, dtypes.i64))
        count = Evaluate(intrinsic_call("cuda.reduce_add_at", place, _i32(1)))
        return [Declare(value, which), If(value < build.binary("shl", one, self.bits), count)]

    def _is_first_part(self) -> Expr:
        return self.digit < sum(digit.part == 0 for digit in self.digits)

    def _choose(self) -> list[Stmt]:
        """Set what is found: the value that record number `wanted` has."""
        each = (1 << _DIGIT) // self.threads
        own, value = Var("own", dtypes.i32), build.size_var("value")
        first = self.thread * each
        before, running = sum_before(own, self.totals, self.threads, self.thread)
        here = Var("here", dtypes.i32)
        rank = self.rank - self.before
        is_found = build.logical_and(running < rank, rank <= running + here)
        stores = [
            Store(self.found, (build.index(n),), x)
            for n, x in enumerate((build.cast(first + value, dtypes.i32), running, here))
        ]
        walk = [
            Declare(here, build.load(self.counts, first + value)),
            If(is_found, build.seq(stores)),
            Assign(running, running + here),
        ]
        return [
            Declare(own, _i32(0)),
            self._unrolled(value, each, [Assign(own, own + build.load(self.counts, first + value))]),
            *before,
            self._unrolled(value, each, walk),
        ]

    def _narrow(self) -> list[Stmt]:
        """Know the digit that was found, and what it leaves."""
        one = build.const(1, dtypes.u64)
        rest = build.binary("shl", one, self.shift) - 1
        value = build.binary("shl", build.cast(build.load(self.found, 0), dtypes.u64), self.shift)
        known = [
            build.seq([Assign(low, build.binary("or", low, value)), Assign(last, build.binary("or", low, rest))])
            for low, last in zip(self.low, self.last, strict=True)
        ]
        return [
            known[0] if len(known) == 1 else If(self._is_first_part(), known[0], known[1]),
            Assign(self.before, self.before + build.load(self.found, 1)),
            Assign(self.inside, build.load(self.found, 2)),
            Assign(self.digit, self.digit + 1),
        ]

    # --- putting what was found in order ---------------------------------------------------------------------------

    def _collect(self, tile: Tile) -> list[Stmt]:
        """Fill the tile with all records up to the last one, and put it in order."""
        slot, place = Var("slot", dtypes.i32), build.size_var("place")
        depth, records = build.size_var("depth"), Var("records", dtypes.i32)

        def collected(record: Sequence[Expr]) -> list[Stmt]:
            words = [build.cast(part, dtypes.u64) for part in record]
            take = [
                Declare(slot, intrinsic_call("cuda.atomic_add", build.address(self.found, build.index(3)), _i32(1))),
                *tile.store(build.cast(slot, dtypes.i64), record),
            ]
            return [If(build.unary("lnot", is_less(self.last, words)), build.seq(take))]

        full = build.binary("shl", build.index(1), depth)
        highest = build.cast(build.maximum(records, self.rank) - 1, dtypes.u32)
        zeros = build.cast(intrinsic_call("cuda.leading_zeros", highest), dtypes.i64)
        return [
            If(build.equal(self.thread, 0), Store(self.found, (build.index(3),), _i32(0))),
            barrier(),
            self._each_record(collected),
            Declare(records, self.before + self.inside),
            Declare(depth, build.maximum(32 - zeros, SPAN.bit_length() - 1)),
            For(
                place,
                build.cast(records, dtypes.i64) + self.thread,
                full - build.cast(records, dtypes.i64) - self.thread,
                build.seq(tile.store(place, greatest(self.rows.parts))),
                step=self.threads,
            ),
            *bitonic_sort(tile, depth),
        ]

    def _each_record(self, work: Callable[[Sequence[Expr]], list[Stmt]]) -> Stmt:
        """Do something with every record of the part of the row; several are read at once."""
        each = _AT_ONCE // self.threads
        chunk, element = build.size_var("chunk"), build.size_var("element")
        held = [registers(f"held{n}", dtype, each) for n, dtype in enumerate(self.rows.parts)]
        place, last = build.size_var("place"), build.size_var("last")
        here = Declare(place, chunk + element * self.threads + self.thread)
        keep = [
            Store(array, (element,), build.cast(value, array.dtype))
            for array, value in zip(held, self.record, strict=True)
        ]
        done = work([build.load(array, element) for array in held])
        body = [
            *map(Declare, held),
            # Reading the last one instead of none takes no branch, which every read would wait for.
            self._unrolled(element, each, [here, Declare(self.place, build.minimum(place, last)), *keep]),
            self._unrolled(element, each, [here, If(place < self.end, build.seq(done))]),
        ]
        walk = For(chunk, self.start, self.end - self.start, build.seq(body), step=_AT_ONCE)
        return build.seq([Declare(last, self.end - 1), walk])

    def _unrolled(self, var: Var, extent: int, body: Sequence[Stmt]) -> Stmt:
        return For(var, build.index(0), build.index(extent), build.seq(body), kind="unroll")


def _i32(value: int) -> Expr:
    return build.const(value, dtypes.i32)
