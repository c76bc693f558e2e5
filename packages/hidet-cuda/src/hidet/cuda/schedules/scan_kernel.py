"""The kernel of a running fold: a row, or a part of one, by a thread, a warp or a block.

    for every chunk of the row, as many neighbours a thread as stay in its registers
      what this thread folds, element by element
      what the lanes and the warps before it fold to        shuffles, then shared memory
      results of this thread's elements

Values are always folded in the same order, and left is what comes earlier along the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.compute.definition import Combiner
from hidet.cuda.schedules.exchange import WARP, barrier, moved, shared
from hidet.cuda.schedules.lanes import registers
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.stmt import Assign, Declare, For, If, Stmt, Store

Read = Callable[[Expr], tuple[Sequence[Stmt], Sequence[Expr]]]
Write = Callable[[Expr, Sequence[Expr]], Sequence[Stmt]]


@dataclass(frozen=True, slots=True, eq=False)
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
    """Statements that fold a row from `start` to `end`, which are numbers of steps.

    read: statements and values at a step. write: what is done with the fold at a step; None folds only. carry: what was
    folded before, which holds the fold of the whole row afterwards. is_turned: steps run against the axis.
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
        is_turned: bool,
    ) -> None:
        self.chunks, self.combiner, self.carry, self.member = chunks, combiner, carry, member
        self.read, self.write = read, write
        self.exclusive, self.is_turned = exclusive, is_turned
        self.types = [var.dtype for var in carry]
        self.warps = max(1, chunks.threads // WARP)

    def statements(self, start: Expr, end: Expr) -> list[Stmt]:
        """All of them; every thread that shares the row runs them."""
        chunk, element, step = (build.size_var(name) for name in ("chunk", "element", "step"))
        held = [registers(f"held{n}", dtype, self.chunks.each) for n, dtype in enumerate(self.types)]
        own = [Var(f"own{n}", dtype) for n, dtype in enumerate(self.types)]
        tiles = [shared(f"warps{n}", dtype, self.warps) for n, dtype in enumerate(self.types)] if self.warps > 1 else []
        here = Declare(step, chunk + self.member * self.chunks.each + element)
        before, values = self.read(step)
        value = self._fresh("value")
        load: list[Stmt] = [
            here,
            *(Declare(var, neutral) for var, neutral in zip(value, self._neutral(), strict=True)),
            If(step < end, build.seq([*before, *self._assign(value, values)])),
            *(Store(array, (element,), var) for array, var in zip(held, value, strict=True)),
        ]
        at = [build.load(array, element) for array in held]
        fold = [*self._fold(own, own, at), *(Store(a, (element,), v) for a, v in zip(held, own, strict=True))]
        body: list[Stmt] = [
            *map(Declare, held),
            self._each(element, load),
            *(Declare(var, neutral) for var, neutral in zip(own, self._neutral(), strict=True)),
            self._each(element, fold),
        ]
        prefix = self._fresh("prefix")
        body += self._exchange(own, prefix, tiles)
        if self.write is not None:
            body.append(self._each(element, self._results(element, here, step, end, prefix, held)))
        return [*map(Declare, tiles), For(chunk, start, end - start, build.seq(body), step=self.chunks.elements)]

    def _each(self, element: Var, body: Sequence[Stmt]) -> Stmt:
        return For(element, build.index(0), build.index(self.chunks.each), build.seq(body), kind="unroll")

    def _results(
        self, element: Var, here: Stmt, step: Var, end: Expr, prefix: Sequence[Var], held: Sequence[Var]
    ) -> list[Stmt]:
        """What an element's fold is, and what is written of it."""
        assert self.write is not None
        result = self._fresh("result")
        stmts: list[Stmt] = [here, *(Declare(var, start) for var, start in zip(result, prefix, strict=True))]
        if self.exclusive:
            before = [build.load(array, element - 1) for array in held]
            stmts.append(If(element > 0, build.seq(self._fold(result, prefix, before))))
        else:
            stmts += self._fold(result, prefix, [build.load(array, element) for array in held])
        return [*stmts, If(step < end, build.seq(self.write(step, result)))]

    def _exchange(self, own: Sequence[Var], prefix: Sequence[Var], tiles: Sequence[Var]) -> list[Stmt]:
        """From what each thread folded to what lies before it, `prefix`, and what lies before the next chunk."""
        if self.chunks.threads == 1:
            return [
                *(Declare(var, old) for var, old in zip(prefix, self.carry, strict=True)),
                *self._fold(self.carry, self.carry, own),
            ]
        lane = build.cast(self.member % WARP, dtypes.i32)
        stmts: list[Stmt] = []
        for distance in (1, 2, 4, 8, 16):
            below = self._fresh("below")
            stmts += [Declare(var, moved("up", value, distance)) for var, value in zip(below, own, strict=True)]
            stmts.append(If(lane >= distance, build.seq(self._fold(own, below, own))))
        before, whole = self._fresh("before"), self._fresh("whole")
        stmts += [Declare(var, moved("up", value, 1)) for var, value in zip(before, own, strict=True)]
        if not tiles:
            stmts += [Declare(var, moved("", value, WARP - 1)) for var, value in zip(whole, own, strict=True)]
            stmts += [Declare(var, old) for var, old in zip(prefix, self.carry, strict=True)]
            stmts.append(If(lane > 0, build.seq(self._fold(prefix, self.carry, before))))
            return [*stmts, *self._fold(self.carry, self.carry, whole)]
        warp, other = build.size_var("warp"), build.size_var("other")
        parts = [build.load(tile, other) for tile in tiles]
        last = [Store(tile, (warp,), value) for tile, value in zip(tiles, own, strict=True)]
        sweep = [If(other < warp, build.seq(self._fold(prefix, prefix, parts))), *self._fold(whole, whole, parts)]
        return [
            *stmts,
            Declare(warp, self.member // WARP),
            If(build.equal(lane, WARP - 1), build.seq(last)),
            barrier(),
            *(Declare(var, old) for var, old in zip(prefix, self.carry, strict=True)),
            *(Declare(var, old) for var, old in zip(whole, self.carry, strict=True)),
            For(other, build.index(0), build.index(self.warps), build.seq(sweep), kind="unroll"),
            If(lane > 0, build.seq(self._fold(prefix, prefix, before))),
            *self._assign(self.carry, whole),
            # The next chunk writes to the same memory.
            barrier(),
        ]

    def _fold(self, target: Sequence[Var], earlier: Sequence[Expr], later: Sequence[Expr]) -> list[Stmt]:
        """target = what two neighbouring pieces fold to; `earlier` comes in earlier steps."""
        pair = (later, earlier) if self.is_turned else (earlier, later)
        fresh = self._fresh("next")
        combined = self.combiner.combine(*pair)
        return [*(Declare(var, x) for var, x in zip(fresh, combined, strict=True)), *self._assign(target, fresh)]

    def _assign(self, target: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
        return [Assign(var, value) for var, value in zip(target, values, strict=True)]

    def _fresh(self, name: str) -> list[Var]:
        return [Var(f"{name}{n}", dtype) for n, dtype in enumerate(self.types)]

    def _neutral(self) -> Sequence[Expr]:
        return self.combiner.identity(self.types)


def thread_in_block() -> Expr:
    """This thread's number."""
    return build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)


def block_number() -> Expr:
    """This block's number."""
    return build.cast(intrinsic_call("cuda.block_idx.x"), dtypes.i64)
