"""Sort keys of a tile put in the order of a digit, stably, by the threads of a block.

    for each sort key: how many of its warp with this digit come before  votes, and a count for each warp and value
    for each value of the digit: where its sort keys start               sums over the warps, then over the values
    sort keys at their new places                                        in shared memory

A warp's sort keys lie next to each other in the tile, and its threads take neighbours, so that the order of counting is
that of the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.exchange import WARP, barrier, shared, sum_before, warp_barrier
from hidet.gpu.schedules.lanes import registers
from hidet.gpu.schedules.sort_kernels import SortKey, greatest, tile_memory
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr

BITS = 8
"""Bits of a digit: it has as many values as a block has threads."""
THREADS = 1 << BITS
_WARPS = THREADS // WARP
_ALL_LANES = 0xFFFFFFFF


class DigitTile:
    """Memory and statements for tiles of `each` sort keys a thread.

    types: of the parts of a sort key. thread: this thread's number in the block of THREADS.
    """

    def __init__(self, types: Sequence[DType], each: int, thread: Expr) -> None:
        self.types, self.each, self.thread = tuple(types), each, thread
        self.elements = THREADS * each
        self.parts = tile_memory(types, self.elements)
        self.starts = shared("starts", dtypes.i32, THREADS)
        self.totals = shared("totals", dtypes.i32, _WARPS)
        self._counts = shared("counts", dtypes.i32, _WARPS * THREADS)
        self._held = [registers(f"held{n}", dtype, each) for n, dtype in enumerate(types)]
        self._ranks = registers("ranks", dtypes.i32, each)
        self._lane = thread % WARP
        self._warp = thread // WARP

    def declare(self, k: IRBuilder) -> None:
        """All of its memory."""
        for var in (*self.parts, self.starts, self.totals, self._counts, *self._held, self._ranks):
            k.declare(var)

    def load(self, place: Expr) -> list[Expr]:
        """The sort key at a place of the tile in shared memory."""
        return [build.load(part, place) for part in self.parts]

    def read(self, k: IRBuilder, sort_key: Callable[[Expr], SortKey], count: Expr) -> None:
        """Read the sort keys of the tile, of which there are `count`; greatest ones follow, in the order behind all."""
        with k.for_range("element", self.each, kind="unroll") as element:
            place = k.let("place", self._place(element))
            # Reading the last one instead of none takes no branch, which every read would wait for.
            values = sort_key(k.let("at", build.minimum(place, count - 1)))
            found = k.let_each("found", [build.cast(x, dtype) for x, dtype in zip(values, self.types, strict=True)])
            for held, value, last in zip(self._held, found, greatest(self.types), strict=True):
                k.store(held, element, build.select(place < count, value, last))

    def read_back(self, k: IRBuilder) -> None:
        """Read the sort keys of the tile from shared memory."""
        with k.for_range("element", self.each, kind="unroll") as element:
            k.store_each(self._held, element, self.load(k.let("place", self._place(element))))

    def put_in_order(self, k: IRBuilder, shift: Expr) -> None:
        """From registers to shared memory, in the order of the digit at `shift`; all threads see the result.

        `starts` tells afterwards where the sort keys with each value start.
        """
        self._rank(k, shift)
        k.emit(barrier())
        self._start(k)
        k.emit(barrier())
        self._move(k, shift)
        k.emit(barrier())

    def _rank(self, k: IRBuilder, shift: Expr) -> None:
        """Count the sort keys of the warp; a sort key's rank is how many with its digit came before."""
        with k.for_range("value", THREADS // WARP, kind="unroll") as value:
            k.store(self._counts, self._slot(value * WARP + self._lane), build.const(0, dtypes.i32))
        k.emit(warp_barrier())
        with k.for_range("element", self.each, kind="unroll") as element:
            digit = k.let("digit", digit_of(self._sort_key(element), shift))
            peers = k.let("peers", build.const(_ALL_LANES, dtypes.u32))
            for bit in range(BITS):
                is_set = k.let("is_set", build.binary("ne", build.binary("and", digit, 1 << bit), 0))
                vote = k.let("vote", intrinsic_call("gpu.vote_ballot", _ALL_LANES, is_set))
                k.assign(peers, build.binary("and", peers, build.select(is_set, vote, build.unary("not", vote))))
            lower = build.binary("shl", build.const(1, dtypes.u32), build.cast(self._lane, dtypes.u32)) - 1
            before = k.let("earlier", intrinsic_call("gpu.population_count", build.binary("and", peers, lower)))
            slot = k.let("slot", self._slot(build.cast(digit, dtypes.i64)))
            base = k.let("base", build.load(self._counts, slot))
            k.emit(warp_barrier())
            with k.if_(build.equal(before, 0)):
                k.store(self._counts, slot, base + intrinsic_call("gpu.population_count", peers))
            k.emit(warp_barrier())
            k.store(self._ranks, element, base + before)

    def _start(self, k: IRBuilder) -> None:
        """Where the sort keys of each value start in the tile, and those of each warp among them: a value a thread."""
        own = k.let("own", build.const(0, dtypes.i32))
        with k.for_range("warp", _WARPS, kind="unroll") as warp:
            place = k.let("place", warp * THREADS + self.thread)
            here = k.let("here", build.load(self._counts, place))
            k.store(self._counts, place, own)
            k.assign(own, own + here)
        k.store(self.starts, self.thread, sum_before(k, own, self.totals, THREADS, self.thread))

    def _move(self, k: IRBuilder, shift: Expr) -> None:
        with k.for_range("element", self.each, kind="unroll") as element:
            digit = k.let("digit", build.cast(digit_of(self._sort_key(element), shift), dtypes.i64))
            rank = build.load(self._ranks, element) + build.load(self._counts, self._slot(digit))
            place = k.let("place", rank + build.load(self.starts, digit))
            k.store_each(self.parts, build.cast(place, dtypes.i64), self._sort_key(element))

    def _sort_key(self, element: Expr) -> list[Expr]:
        return [build.load(held, element) for held in self._held]

    def _place(self, element: Expr) -> Expr:
        return self._warp * (WARP * self.each) + element * WARP + self._lane

    def _slot(self, value: Expr) -> Expr:
        """Where this warp counts sort keys with a value."""
        return self._warp * THREADS + value


def digit_of(sort_key: SortKey, shift: Expr) -> Expr:
    """The digit of a sort key at a place of its first part, as an i32. A u32 is a place in the upper half of the
    part."""
    word = sort_key[0]
    if shift.dtype == dtypes.u32:
        word = build.cast(build.binary("shr", word, build.const(32, dtypes.u64)), dtypes.u32)
    moved = build.binary("shr", word, shift)
    return build.cast(build.binary("and", moved, build.const(THREADS - 1, moved.dtype)), dtypes.i32)
