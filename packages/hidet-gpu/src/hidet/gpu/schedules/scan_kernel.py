"""The kernel of a scan: a row, or a part of one, by a thread, a warp or a block.

    for every chunk of the row, as many neighbours a thread as stay in its registers
      what this thread reduces, element by element
      what the lanes and the warps before it reduce to      shuffles, then shared memory
      results of this thread's elements

Values are always combined in the same order, and left is what comes earlier along the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.compute.definition import Combiner
from hidet.gpu.schedules.exchange import WARP, barrier, moved
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var

Read = Callable[[IRBuilder, Expr], Sequence[Expr]]
Write = Callable[[IRBuilder, Expr, Sequence[Expr]], None]


@dataclass(frozen=True, slots=True)
class Chunks:
    """How a row is walked along: `threads` share it, each takes `each` neighbouring elements at once.

    threads: 1, a warp, or a block. Rows of a warp or of one thread share a block with others.
    """

    threads: int
    each: int

    @property
    def elements(self) -> int:
        """Elements that are taken at once."""
        return self.threads * self.each


class ChunkWalk:
    """Statements that scan a row from `start` to `end`, which are numbers of steps.

    read: statements and values at a step. write: what is done with the result at a step; None reduces only. carry: what
    was scanned before, which holds the total of the whole row afterwards. is_reversed: steps run against the axis.
    member: the number of this thread among those that share the row.
    """

    def __init__(
        self,
        chunks: Chunks,
        combiner: Combiner,
        carry: Sequence[Var],
        member: Expr,
        *,
        read: Read,
        write: Write | None,
        exclusive: bool,
        is_reversed: bool,
    ) -> None:
        self.chunks, self.combiner, self.carry, self.member = chunks, combiner, carry, member
        self.read, self.write = read, write
        self.exclusive, self.is_reversed = exclusive, is_reversed
        self.types = [var.dtype for var in carry]
        self.warps = max(1, chunks.threads // WARP)

    def emit(self, k: IRBuilder, start: Expr, end: Expr) -> None:
        """Write the walk; every thread that shares the row runs it."""
        each, warps = self.chunks.each, self.warps
        types = list(enumerate(self.types))
        tiles = [k.array(f"warps{n}", dtype, warps, space="shared") for n, dtype in types] if warps > 1 else []
        with k.for_range("chunk", end - start, start, self.chunks.elements) as chunk:
            held = [k.array(f"held{n}", dtype, each) for n, dtype in types]
            with k.for_range("element", each, kind="unroll") as element:
                step = k.let("step", chunk + self.member * each + element)
                value = k.let_each("value", self._neutral())
                with k.if_(step < end):
                    k.assign_each(value, self.read(k, step))
                k.store_each(held, element, value)
            own = k.let_each("own", self._neutral())
            with k.for_range("element", each, kind="unroll") as element:
                self._combine(k, own, own, [build.load(array, element) for array in held])
                k.store_each(held, element, own)
            prefix = self._exchange(k, own, tiles)
            if self.write is not None:
                with k.for_range("element", each, kind="unroll") as element:
                    step = k.let("step", chunk + self.member * each + element)
                    result = self._result(k, element, prefix, held)
                    with k.if_(step < end):
                        self.write(k, step, result)

    def _result(self, k: IRBuilder, element: Var, prefix: Sequence[Var], held: Sequence[Var]) -> list[Var]:
        """What an element's result is."""
        result = k.let_each("result", prefix)
        if not self.exclusive:
            self._combine(k, result, prefix, [build.load(array, element) for array in held])
            return result
        with k.if_(element > 0):
            self._combine(k, result, prefix, [build.load(array, element - 1) for array in held])
        return result

    def _exchange(self, k: IRBuilder, own: Sequence[Var], tiles: Sequence[Var]) -> list[Var]:
        """From what each thread reduced to what lies before it, and what lies before the next chunk."""
        if self.chunks.threads == 1:
            prefix = k.let_each("prefix", self.carry)
            self._combine(k, self.carry, self.carry, own)
            return prefix
        lane = build.cast(self.member % WARP, dtypes.i32)
        for distance in (1, 2, 4, 8, 16):
            below = k.let_each("below", [moved("up", value, distance) for value in own])
            with k.if_(lane >= distance):
                self._combine(k, own, below, own)
        before = k.let_each("before", [moved("up", value, 1) for value in own])
        if not tiles:
            whole = k.let_each("whole", [moved("", value, WARP - 1) for value in own])
            prefix = k.let_each("prefix", self.carry)
            with k.if_(lane > 0):
                self._combine(k, prefix, self.carry, before)
            self._combine(k, self.carry, self.carry, whole)
            return prefix
        warp = k.let("warp", self.member // WARP)
        with k.if_(build.equal(lane, WARP - 1)):
            k.store_each(tiles, warp, own)
        k.emit(barrier())
        prefix, whole = k.let_each("prefix", self.carry), k.let_each("whole", self.carry)
        with k.for_range("other", self.warps, kind="unroll") as other:
            parts = [build.load(tile, other) for tile in tiles]
            with k.if_(other < warp):
                self._combine(k, prefix, prefix, parts)
            self._combine(k, whole, whole, parts)
        with k.if_(lane > 0):
            self._combine(k, prefix, prefix, before)
        k.assign_each(self.carry, whole)
        # The next chunk writes to the same memory.
        k.emit(barrier())
        return prefix

    def _combine(self, k: IRBuilder, target: Sequence[Var], earlier: Sequence[Expr], later: Sequence[Expr]) -> None:
        """target = what two neighbouring pieces combine to; `earlier` comes in earlier steps."""
        pair = (later, earlier) if self.is_reversed else (earlier, later)
        k.assign_each(target, k.let_each("next", self.combiner.combine(*pair)))

    def _neutral(self) -> Sequence[Expr]:
        return self.combiner.identity(self.types)
