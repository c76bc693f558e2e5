"""Records of a tile put in the order of a digit, stably, by the threads of a block.

    for each record: how many of its warp with this digit come before     votes, and a count for each warp and value
    for each value of the digit: where its records start                  sums over the warps, then over the values
    records at their new places                                           in shared memory

A warp's records lie next to each other in the tile, and its threads take neighbours, so that the order of counting is
that of the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.cuda.schedules.exchange import WARP, barrier, shared, sum_before, warp_barrier
from hidet.cuda.schedules.lanes import registers
from hidet.cuda.schedules.sort_kernels import Record, greatest, tile_memory
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Assign, Declare, For, If, Stmt, Store

BITS = 8
"""Bits of a digit: it has as many values as a block has threads."""
THREADS = 1 << BITS
_WARPS = THREADS // WARP
_ALL_LANES = 0xFFFFFFFF


class DigitTile:
    """Memory and statements for tiles of `each` records a thread.

    types: of the parts of a record. thread: this thread's number in the block of THREADS.
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

    def declare(self) -> list[Stmt]:
        """All of its memory."""
        return [Declare(var) for var in (*self.parts, self.starts, self.totals, self._counts, *self._held, self._ranks)]

    def load(self, place: Expr) -> list[Expr]:
        """The record at a place of the tile in shared memory."""
        return [build.load(part, place) for part in self.parts]

    def read(self, record: Callable[[Expr], Record], count: Expr) -> list[Stmt]:
        """Read the records of the tile, of which there are `count`; greatest ones follow, in the order behind all."""
        element, place, at = (build.size_var(name) for name in ("element", "place", "at"))
        found = [Var(f"found{n}", dtype) for n, dtype in enumerate(self.types)]
        keep = [
            Store(held, (element,), build.select(place < count, value, last))
            for held, value, last in zip(self._held, found, greatest(self.types), strict=True)
        ]
        body = [
            Declare(place, self._place(element)),
            # Reading the last one instead of none takes no branch, which every read would wait for.
            Declare(at, build.minimum(place, count - 1)),
            *(Declare(var, build.cast(value, var.dtype)) for var, value in zip(found, record(at), strict=True)),
            *keep,
        ]
        return [each_element(element, self.each, body)]

    def read_back(self) -> list[Stmt]:
        """Read the records of the tile from shared memory."""
        element, place = build.size_var("element"), build.size_var("place")
        keep = [Store(held, (element,), value) for held, value in zip(self._held, self.load(place), strict=True)]
        return [each_element(element, self.each, [Declare(place, self._place(element)), *keep])]

    def put_in_order(self, shift: Expr) -> list[Stmt]:
        """From registers to shared memory, in the order of the digit at `shift`; all threads see the result.

        `starts` tells afterwards where the records with each value start.
        """
        return [*self._rank(shift), barrier(), *self._start(), barrier(), *self._move(shift), barrier()]

    def _rank(self, shift: Expr) -> list[Stmt]:
        """Count the records of the warp; a record's rank is how many with its digit came before."""
        element, value, slot = (build.size_var(name) for name in ("element", "value", "slot"))
        digit, before, base = (Var(name, dtypes.i32) for name in ("digit", "earlier", "base"))
        peers, one = Var("peers", dtypes.u32), build.const(1, dtypes.u32)
        clear = Store(self._counts, (self._slot(value * WARP + self._lane),), build.const(0, dtypes.i32))
        body: list[Stmt] = [
            Declare(digit, digit_of(self._record(element), shift)),
            Declare(peers, build.const(_ALL_LANES, dtypes.u32)),
        ]
        for bit in range(BITS):
            is_set, vote = Var("is_set", dtypes.boolean), Var("vote", dtypes.u32)
            body += [
                Declare(is_set, build.binary("ne", build.binary("and", digit, 1 << bit), 0)),
                Declare(vote, intrinsic_call("cuda.vote_ballot", _ALL_LANES, is_set)),
                Assign(peers, build.binary("and", peers, build.select(is_set, vote, build.unary("not", vote)))),
            ]
        lower = build.binary("shl", one, build.cast(self._lane, dtypes.u32)) - 1
        same = intrinsic_call("cuda.population_count", peers)
        body += [
            Declare(before, intrinsic_call("cuda.population_count", build.binary("and", peers, lower))),
            Declare(slot, self._slot(build.cast(digit, dtypes.i64))),
            Declare(base, build.load(self._counts, slot)),
            warp_barrier(),
            If(build.equal(before, 0), Store(self._counts, (slot,), base + same)),
            warp_barrier(),
            Store(self._ranks, (element,), base + before),
        ]
        return [
            each_element(value, THREADS // WARP, [clear]),
            warp_barrier(),
            each_element(element, self.each, body),
        ]

    def _start(self) -> list[Stmt]:
        """Where the records of each value start in the tile, and those of each warp among them: a value a thread."""
        warp, place, here = build.size_var("warp"), build.size_var("place"), Var("here", dtypes.i32)
        own = Var("own", dtypes.i32)
        body = [
            Declare(place, warp * THREADS + self.thread),
            Declare(here, build.load(self._counts, place)),
            Store(self._counts, (place,), own),
            Assign(own, own + here),
        ]
        stmts, before = sum_before(own, self.totals, THREADS, self.thread)
        return [
            Declare(own, build.const(0, dtypes.i32)),
            each_element(warp, _WARPS, body),
            *stmts,
            Store(self.starts, (self.thread,), before),
        ]

    def _move(self, shift: Expr) -> list[Stmt]:
        element, digit, place = build.size_var("element"), build.size_var("digit"), Var("place", dtypes.i32)
        rank = build.load(self._ranks, element) + build.load(self._counts, self._slot(digit))
        stores = [
            Store(part, (build.cast(place, dtypes.i64),), value)
            for part, value in zip(self.parts, self._record(element), strict=True)
        ]
        body = [
            Declare(digit, build.cast(digit_of(self._record(element), shift), dtypes.i64)),
            Declare(place, rank + build.load(self.starts, digit)),
            *stores,
        ]
        return [each_element(element, self.each, body)]

    def _record(self, element: Expr) -> list[Expr]:
        return [build.load(held, element) for held in self._held]

    def _place(self, element: Expr) -> Expr:
        return self._warp * (WARP * self.each) + element * WARP + self._lane

    def _slot(self, value: Expr) -> Expr:
        """Where this warp counts records with a value."""
        return self._warp * THREADS + value


def digit_of(record: Record, shift: Expr) -> Expr:
    """The digit of a record at a place of its first part, as an i32. A u32 is a place in the upper half of the part."""
    word = record[0]
    if shift.dtype == dtypes.u32:
        word = build.cast(build.binary("shr", word, build.const(32, dtypes.u64)), dtypes.u32)
    moved = build.binary("shr", word, shift)
    return build.cast(build.binary("and", moved, build.const(THREADS - 1, moved.dtype)), dtypes.i32)


def each_element(var: Var, count: int, body: Sequence[Stmt]) -> Stmt:
    """A loop that is unrolled."""
    return For(var, build.index(0), build.index(count), build.seq(body), kind="unroll")
