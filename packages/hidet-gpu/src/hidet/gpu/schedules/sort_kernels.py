"""Sort keys ordered in shared memory by comparing them.

Sort keys are those of `hidet.schedule.routines.sort_key`: they differ in their positions at least, so that any way of
ordering them is stable.

*Tiles* are ordered by Batcher's bitonic network (Knuth, "The Art of Computer Programming", vol. 3, 5.3.4): a thread
compares two sort keys a step. Where both lie in the 64 sort keys of one warp, warps need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.schedules.exchange import WARP, barrier, shared, warp_barrier
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import If

SortKey = Sequence[Expr]

SPAN = 64
"""Sort keys that the threads of a warp compare: two each."""
MOST = 2048
"""Sort keys of the largest tile: 16 or 32 KiB of shared memory, two for each of a block's 1024 threads."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Sort keys of one row that lie in shared memory: `elements`, a power of two from SPAN on, from place `start` on.

    parts: an array for each part of a sort key. member: this thread's number among the elements / 2 that share the
    tile.
    """

    parts: tuple[Var, ...]
    elements: int
    start: Expr
    member: Expr

    def load(self, place: Expr) -> list[Expr]:
        """A sort key."""
        return [build.load(part, self.start + place) for part in self.parts]

    def store(self, k: IRBuilder, place: Expr, sort_key: SortKey) -> None:
        """Set a sort key."""
        k.store_each(self.parts, self.start + place, sort_key)


def tile_memory(types: Sequence[DType], elements: int) -> tuple[Var, ...]:
    """Shared memory for so many sort keys of a block."""
    return tuple(shared(f"sort_keys{n}", dtype, elements) for n, dtype in enumerate(types))


def is_less(a: SortKey, b: SortKey) -> Expr:
    """Whether sort key a comes before sort key b: by the first part, then by the second."""
    if len(a) == 1:
        return a[0] < b[0]
    return build.binary("lor", a[0] < b[0], build.logical_and(build.equal(a[0], b[0]), a[1] < b[1]))


def greatest(types: Sequence[DType]) -> list[Expr]:
    """What fills a tile behind its last sort key: no sort key comes after it."""
    return [build.const(dtype.max, dtype) for dtype in types]


def bitonic_sort(k: IRBuilder, tile: Tile, depth: Expr | None = None) -> None:
    """Order a tile that every warp of the block has filled; all threads of the block take part, and see the result.

    depth: the logarithm of how many sort keys are there, at least SPAN; None where the tile is full.
    """
    levels = build.index(tile.elements.bit_length() - 1) if depth is None else depth
    one = build.const(1, dtypes.i32)
    member = k.let("pair", build.cast(tile.member, dtypes.i32))
    k.emit(barrier())
    with k.for_range("level", levels) as level:
        reach = k.let("reach", build.cast(level, dtypes.i32))
        run = k.let("run", build.binary("shl", one, reach + 1))
        with k.while_(reach >= 0):
            inside = build.binary("and", member, build.binary("shl", one, reach) - 1)
            above = build.binary("shl", build.binary("shr", member, reach), reach + 1)
            low = k.let("low", build.binary("or", above, inside))
            is_there = build.cast(low, dtypes.i64) < build.binary("shl", build.index(1), levels)
            with nullcontext() if depth is None else k.if_(is_there):
                places = [build.cast(place, dtypes.i64) for place in (low, low + build.binary("shl", one, reach))]
                a, b = (k.let_each(name, tile.load(place)) for name, place in zip("ab", places, strict=True))
                is_down = build.binary("ne", build.binary("and", low, run), 0)
                with k.if_(build.binary("ne", is_less(b, a), is_down)):
                    tile.store(k, places[0], b)
                    tile.store(k, places[1], a)
            # The next step is one of half the reach, or the first of the next level.
            following = build.select(reach > 0, reach - 1, build.cast(level + 1, dtypes.i32))
            meets_others = build.maximum(reach, following) >= SPAN.bit_length() - 1
            k.emit(If(meets_others, barrier(), warp_barrier()) if tile.elements > SPAN else warp_barrier())
            k.assign(reach, reach - 1)
    k.emit(barrier())


def threads_of(tile_elements: int) -> int:
    """Threads of a block that orders tiles: whole warps, several tiles a block where they are small."""
    return max(tile_elements // 2, 4 * WARP)
