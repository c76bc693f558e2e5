"""The first sort keys of long rows in order, without putting the rows in order.

A block finds the first `wanted` sort keys of a part of a row by digits, from the highest bits on:

    how many sort keys have each value of the digit  in shared memory
    the value that sort key number `wanted` has      sums over the values, by all threads
    the same for the next digit of the sort keys with that value, until few enough are left
    these and all that come before them              one tile in shared memory, which is put in order

A sort key's position is part of it, so that the digits tell equal elements apart, too: the earlier ones come first.
Where rows are few, several blocks take parts of one, and the first of their first sort keys are found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Routine, Scatter
from hidet.dims import Dim
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.exchange import WARP, barrier, block_number, shared, sum_before, thread_in_block
from hidet.gpu.schedules.row_sort_keys import RowKernel, Rows, SortKeys
from hidet.gpu.schedules.sort_kernels import MOST, SPAN, Tile, bitonic_sort, greatest, is_less, tile_memory
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Declare
from hidet.schedule.cost import extent_estimate
from hidet.schedule.fallback import NestBuilder

MOST_SELECTED = MOST // 2
"""Sort keys of a row that are selected at most: half a tile, so that a digit's value may bring as many that are not."""
_DIGIT = 11
"""Bits of a digit: sign, exponent and two bits more of an f32. Counts of its values take 8 KiB."""
_POSITION_BITS = 31
"""Bits of a position in a row of unknown length."""
_AT_ONCE = 2048
"""Sort keys that a block reads at once; registers for more would leave room for fewer blocks."""
_BLOCKS = 4
"""Blocks of a multiprocessor that keep it busy."""
_LEAST_PART = 4096
"""Sort keys of a part of a row that are worth a block."""


def write_selected(nest: NestBuilder, stage: Routine | Scatter, rows: Rows, wanted: int) -> None:
    """Add the kernels that write the first `wanted` sort keys of every row, in order, as results."""
    part = _part(rows, wanted)
    parts = dims.ceildiv(rows.length, part)
    if parts == 1:
        _Selection(nest, stage, rows, wanted, None).add(rows.length, None)
        return
    total = rows.count * parts * wanted
    best = tuple(nest.scratch(f"best{n}", dtype, total) for n, dtype in enumerate(rows.parts))
    sort_keys = SortKeys(best, parts * wanted)
    _Selection(nest, stage, rows, wanted, None).add(part, sort_keys)
    _Selection(nest, stage, rows, wanted, sort_keys).add(sort_keys.count, None)


def _part(rows: Rows, wanted: int) -> int:
    """Sort keys of a part of a row."""
    length = extent_estimate(rows.length)
    parts = -(-_BLOCKS * rows.target.multiprocessors // max(1, extent_estimate(rows.count)))
    # Of each part only a small share is left.
    return max(-(-length // parts), _LEAST_PART, 8 * wanted)


@dataclass(frozen=True, slots=True)
class _Digit:
    """Some bits of a part of a sort key."""

    part: int
    shift: int
    bits: int


def _digits(rows: Rows) -> list[_Digit]:
    """The digits of a sort key, highest first: those of what orders it, then those of its position."""
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
    """A kernel under construction. source: what the sort keys are read from; None for the rows themselves."""

    def __init__(
        self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows, wanted: int, source: SortKeys | None
    ) -> None:
        self.rows = rows
        self.kernel = RowKernel(nest, stage, rows)
        self.wanted = self.kernel.size(wanted)
        self.rank = build.cast(self.wanted, dtypes.i32)
        self.extent = rows.length if source is None else source.count
        self.count = self.kernel.size(self.extent)
        self.place = build.size_var("position")
        if source is None:
            self.sort_key = rows.sort_key(self.kernel, self.place)
        else:
            self.sort_key = self.kernel.load(self.kernel.memory(source), self.place, self.count)
        # A tile of two sort keys a thread; small ones leave room for more blocks.
        self.threads = 512 if wanted <= MOST // 8 else MOST // 2
        self.tile_elements = 2 * self.threads
        self.digits = _digits(rows)
        self.thread, self.start, self.end = (build.size_var(name) for name in ("thread", "start", "end"))
        self.counts = shared("counts", dtypes.i32, 1 << _DIGIT)
        # Of the chosen value of a digit: itself, how many sort keys come before, how many have it. Then: collected
        # ones.
        self.found = shared("found", dtypes.i32, 4)
        self.totals = shared("totals", dtypes.i32, self.threads // WARP)
        # Bits that are known of sort key number `wanted`, and the last sort key with these.
        self.low = [Var(f"low{n}", dtypes.u64) for n in range(len(rows.parts))]
        self.last = [Var(f"last{n}", dtypes.u64) for n in range(len(rows.parts))]
        self.digit = Var("digit", dtypes.i32)
        self.before, self.inside = Var("before", dtypes.i32), Var("inside", dtypes.i32)

    def add(self, part: Dim, target: SortKeys | None) -> None:
        """Add the kernel, a block for every `part` sort keys of a row. target: where the first sort keys of each part
        go, followed by greatest ones where the part has fewer; None for results."""
        kernel, rows, k = self.kernel, self.rows, IRBuilder()
        kept = None if target is None else kernel.memory(target)
        parts = 1 if target is None else dims.ceildiv(self.extent, part)
        each = kernel.size(part)
        memory = tile_memory(rows.parts, self.tile_elements)
        k.emit(*map(Declare, (*memory, self.counts, self.found, self.totals)))
        k.declare(self.thread, thread_in_block())
        member = k.let("member", self.thread)
        number = kernel.row_of(k, block_number(), parts, "part")
        k.declare(self.start, number * each)
        k.declare(self.end, build.minimum(self.start + each, self.count))
        self._search(k)
        tile = Tile(memory, self.tile_elements, build.index(0), member)
        self._collect(k, tile)
        with k.if_(member < self.wanted):
            if kept is None or target is None:
                kernel.finish(k, member, tile.load(member))
            else:
                place = number * self.wanted + member
                kernel.store(k, kept, place, kernel.size(target.count), tile.load(member))
        kernel.launch(k.body, rows.count * parts, 1, self.threads)

    # --- finding the last sort key -------------------------------------------------------------------------------

    def _search(self, k: IRBuilder) -> None:
        """Find a sort key that fits a tile together with all before it, `wanted` or more of them."""
        k.declare(self.before, _i32(0))
        k.declare(self.inside, build.cast(self.end - self.start, dtypes.i32))
        k.declare(self.digit, _i32(0))
        for low in self.low:
            k.declare(low, build.const(0, dtypes.u64))
        for last in self.last:
            k.declare(last, build.const(dtypes.u64.max, dtypes.u64))
        is_many = self.before + self.inside > self.tile_elements
        with k.while_(build.logical_and(is_many, self.digit < len(self.digits))):
            shift = k.let("shift", self._of_digit(lambda digit: digit.shift))
            bits = k.let("bits", self._of_digit(lambda digit: digit.bits))
            with k.for_range("value", (1 << _DIGIT) - self.thread, self.thread, self.threads) as value:
                k.store(self.counts, value, _i32(0))
            k.emit(barrier())
            with self._each_sort_key(k) as sort_key:
                self._count(k, sort_key, shift, bits)
            k.emit(barrier())
            self._choose(k)
            k.emit(barrier())
            self._narrow(k, shift)

    def _of_digit(self, what: Callable[[_Digit], int]) -> Expr:
        """A property of the digit whose turn it is."""
        value: Expr = build.const(what(self.digits[-1]), dtypes.u64)
        for number, digit in reversed(list(enumerate(self.digits[:-1]))):
            value = build.select(build.equal(self.digit, number), build.const(what(digit), dtypes.u64), value)
        return value

    def _count(self, k: IRBuilder, sort_key: Sequence[Expr], shift: Expr, bits: Expr) -> None:
        """Count a sort key that has the bits known so far; those of others differ above the digit, too."""
        words = [build.cast(part, dtypes.u64) for part in sort_key]
        values = [
            build.binary("shr", build.binary("xor", word, low), shift)
            for word, low in zip(words, self.low, strict=True)
        ]
        which = values[0]
        if len(values) == 2:
            is_same = build.equal(words[0], self.low[0])
            nothing = build.const(dtypes.u64.max, dtypes.u64)
            which = build.select(self._is_first_part(), values[0], build.select(is_same, values[1], nothing))
        value = k.let("value", which)
        with k.if_(value < build.binary("shl", build.const(1, dtypes.u64), bits)):
            place = build.address(self.counts, build.cast(value, dtypes.i64))
            k.run(intrinsic_call("gpu.reduce_add_at", place, _i32(1)))

    def _is_first_part(self) -> Expr:
        return self.digit < sum(digit.part == 0 for digit in self.digits)

    def _choose(self, k: IRBuilder) -> None:
        """Set what is found: the value that sort key number `wanted` has."""
        each = (1 << _DIGIT) // self.threads
        own, first = k.let("own", _i32(0)), self.thread * each
        with k.for_range("value", each, kind="unroll") as value:
            k.assign(own, own + build.load(self.counts, first + value))
        running = sum_before(k, own, self.totals, self.threads, self.thread)
        with k.for_range("value", each, kind="unroll") as value:
            here, rank = k.let("here", build.load(self.counts, first + value)), self.rank - self.before
            with k.if_(build.logical_and(running < rank, rank <= running + here)):
                for n, found in enumerate((build.cast(first + value, dtypes.i32), running, here)):
                    k.store(self.found, n, found)
            k.assign(running, running + here)

    def _narrow(self, k: IRBuilder, shift: Expr) -> None:
        """Know the digit that was found, and what it leaves."""
        rest = build.binary("shl", build.const(1, dtypes.u64), shift) - 1
        value = build.binary("shl", build.cast(build.load(self.found, 0), dtypes.u64), shift)

        def know(part: int) -> None:
            k.assign(self.low[part], build.binary("or", self.low[part], value))
            k.assign(self.last[part], build.binary("or", self.low[part], rest))

        if len(self.low) == 1:
            know(0)
        else:
            with k.if_(self._is_first_part()):
                know(0)
            with k.else_():
                know(1)
        k.assign(self.before, self.before + build.load(self.found, 1))
        k.assign(self.inside, build.load(self.found, 2))
        k.assign(self.digit, self.digit + 1)

    # --- putting what was found in order ---------------------------------------------------------------------------

    def _collect(self, k: IRBuilder, tile: Tile) -> None:
        """Fill the tile with all sort keys up to the last one, and put it in order."""
        with k.if_(build.equal(self.thread, 0)):
            k.store(self.found, 3, _i32(0))
        k.emit(barrier())
        with self._each_sort_key(k) as sort_key:
            words = [build.cast(part, dtypes.u64) for part in sort_key]
            with k.if_(build.unary("lnot", is_less(self.last, words))):
                slot = k.let("slot", intrinsic_call("gpu.atomic_add", build.address(self.found, 3), _i32(1)))
                tile.store(k, build.cast(slot, dtypes.i64), sort_key)
        sort_keys = k.let("sort_keys", self.before + self.inside)
        highest = build.cast(build.maximum(sort_keys, self.rank) - 1, dtypes.u32)
        zeros = build.cast(intrinsic_call("gpu.leading_zeros", highest), dtypes.i64)
        depth = k.let("depth", build.maximum(32 - zeros, SPAN.bit_length() - 1))
        count, full = build.cast(sort_keys, dtypes.i64), build.binary("shl", build.index(1), depth)
        with k.for_range("place", full - count - self.thread, count + self.thread, self.threads) as place:
            tile.store(k, place, greatest(self.rows.parts))
        bitonic_sort(k, tile, depth)

    @contextmanager
    def _each_sort_key(self, k: IRBuilder) -> Iterator[list[Expr]]:
        """Do something with every sort key of the part of the row; several are read at once."""
        each = _AT_ONCE // self.threads
        last = k.let("last", self.end - 1)
        with k.for_range("chunk", self.end - self.start, self.start, _AT_ONCE) as chunk:
            held = [k.array(f"held{n}", dtype, each) for n, dtype in enumerate(self.rows.parts)]
            with k.for_range("element", each, kind="unroll") as element:
                place = k.let("place", chunk + element * self.threads + self.thread)
                # Reading the last one instead of none takes no branch, which every read would wait for.
                k.declare(self.place, build.minimum(place, last))
                for array, value in zip(held, self.sort_key, strict=True):
                    k.store(array, element, build.cast(value, array.dtype))
            with k.for_range("element", each, kind="unroll") as element:
                place = k.let("place", chunk + element * self.threads + self.thread)
                with k.if_(place < self.end):
                    yield [build.load(array, element) for array in held]


def _i32(value: int) -> Expr:
    return build.const(value, dtypes.i32)
