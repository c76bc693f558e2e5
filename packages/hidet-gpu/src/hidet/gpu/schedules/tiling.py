"""Tiles for a product, and its split-k: a model of how long the blocks of a device take, here without matrix units."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from hidet.errors import OptionError
from hidet.gpu.schedules.amounts import Amount, ratio
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.schedule.space import Constraint, Knob, Space

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.ir.expr import Expr
    from hidet.target import GpuTarget

SIMT_TILES = (
    MatmulTiles(128, 128, 8, 2, (4, 2)),
    MatmulTiles(128, 64, 8, 2, (4, 1)),
    MatmulTiles(64, 64, 8, 2, (2, 1)),
)
"""Without matrix units; k is the number of elements whatever their type."""
SPLIT_K = (1, 2, 3, 4, 6, 8, 12, 16)
"""Choices of split-k: into how many splits, each summed by blocks of its own, k is cut."""
FILL = 0
"""Stands for as many splits as there are multiprocessors for, which only a call tells."""

# What the model measured, on an H100; clock cycles of one multiprocessor.
_PLAIN_PRODUCTS, _WARP_PRODUCTS = 100, 24
"""Multiplications of f32 a cycle without matrix units, at most, and those of a warp."""
_PLAIN_STEP = 800
"""A step without matrix units of one block alone, which waits for memory."""
_PLAIN_WARPS = 16
"""Those that a multiprocessor has registers for."""
START = 2200
"""Until a block has its first tiles, and from its last product to the end of the kernel."""
_SUM = 2500
"""A kernel that adds the partial sums of split-k."""
_SUM_BYTES = 2000
"""Bytes a cycle that partial sums are written and read with, by the whole device."""
_CLOSE = 1.05
"""Times the fastest one's that the model cannot tell from it."""


Copied = Literal["parts", "shifted", "elements"]
"""How threads copy operands to shared memory: in parts of 4 bytes and more, as the lines that hold rows, which are
shifted then (`hidet.gpu.tile.lower.shifted`), or element by element."""


@dataclass(frozen=True, slots=True)
class Extents:
    """A product of `batch` matrices [m, k] x [k, n] of elements of `nbytes`; likely numbers where sizes are symbols.

    epilogue: instructions for an element of the result beyond those that store it. is_between_lines: whether rows of an
    operand begin within lines of the cache, so that parts of them as long as a line are in two. copied: where threads
    do that, the slower way of both operands.
    """

    batch: int
    m: int
    n: int
    k: int
    nbytes: int
    epilogue: int = 0
    is_between_lines: bool = False
    copied: Copied = "parts"


@dataclass(frozen=True, slots=True, eq=False)
class CallExtents:
    """The extents of a product in host code, i64, which a call tells. Its other facts are those of `Extents`."""

    batch: Expr
    m: Expr
    n: Expr
    k: Expr
    nbytes: int
    epilogue: int = 0
    is_between_lines: bool = False
    copied: Copied = "parts"


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles, and the number of splits of k (split-k), each summed by blocks of its own.

    is_warp_specialized: whether some warps copy and others multiply, on devices for which there are such kernels.
    others: what the program has besides, and takes where the model finds it faster for the sizes of a call.
    """

    tiles: MatmulTiles
    split_k: int = 1
    is_warp_specialized: bool = False
    others: tuple[Tiling, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether k is cut into splits."""
        return self.split_k != 1

    @property
    def code(self) -> Hashable:
        """What kernels depend on: how many splits there are is a number that they are called with."""
        return self.tiles, self.is_split, self.is_warp_specialized, tuple([other.code for other in self.others])


def splits_of(ctx: CompileContext) -> tuple[int, ...]:
    """What split-k may be, by option `gpu.split_k`. OptionError for a negative number."""
    given = cast(int, ctx.option("gpu.split_k"))
    if given < 0:
        raise OptionError(f"option gpu.split_k is a number of splits, or 0 to have it chosen, got {given}")
    return (given,) if given else SPLIT_K


def split_knob(splits: Sequence[int]) -> Knob:
    """Split-k in a space: one of `splits`, or none."""
    return Knob("split_k", tuple(dict.fromkeys((*splits, 1))), "parts of k that blocks of their own sum")


def has_steps(extents: Extents) -> Constraint[Tiling]:
    """What holds of tilings whose splits have something to sum."""
    return Constraint(
        "each split of k has two steps at least",
        lambda t: t.split_k == 1 or steps_over(extents.k, t.tiles.k) >= 2 * t.split_k,
    )


def simt_space(extents: Extents, tiles: tuple[MatmulTiles, ...], splits: Sequence[int] = SPLIT_K) -> Space[Tiling]:
    """What may be chosen about a product without matrix units that any of `tiles` may cut."""
    tile_knob = Knob("tile", tiles, "results of a block, and steps along k")
    return Space((tile_knob, split_knob(splits)), Tiling, (has_steps(extents),))


def fastest_tiling(
    extents: Extents,
    choices: Sequence[MatmulTiles],
    cycles: Callable[[Tiling], float | tuple[float, int, int]],
    splits: Sequence[int] = SPLIT_K,
) -> Tiling:
    """The fastest one by a model, with tiles out of `choices`, and of `splits` what k is long enough for. cycles: by
    the model, perhaps with numbers that decide between tilings that are equally fast; else the first is taken."""
    return min(_tilings(extents, choices, splits), key=cycles)


def fast_tilings(
    extents: Extents, choices: Sequence[MatmulTiles], cycles: Callable[[Tiling], float], splits: Sequence[int] = SPLIT_K
) -> list[Tiling]:
    """Those that take hardly longer than the fastest one by a model, the best one for each kernel, fastest first."""
    best: dict[Hashable, tuple[float, Tiling]] = {}
    for tiling in _tilings(extents, choices, splits):
        time = cycles(tiling)
        known = best.get(tiling.code)
        if known is None or time < known[0]:
            best[tiling.code] = time, tiling
    fastest = min(time for time, _ in best.values())
    close = [pair for pair in best.values() if pair[0] <= _CLOSE * fastest]
    return [tiling for _, tiling in sorted(close, key=lambda pair: pair[0])]


def _tilings(extents: Extents, choices: Sequence[MatmulTiles], splits: Sequence[int]) -> Iterator[Tiling]:
    """What may be chosen: tiles that are not far larger than the result, and splits of at least two steps, or one."""
    lowest: dict[bool, int] = {}
    for tiles in choices:
        lowest[tiles.is_transposed] = min(tiles.m, lowest.get(tiles.is_transposed, tiles.m))
    for tiles in choices:
        if tiles.m >= 2 * extents.m and tiles.m > lowest[tiles.is_transposed]:
            continue
        steps = steps_over(extents.k, tiles.k)
        for split_k in [split for split in splits if split == 1 or steps >= 2 * split] or [1]:
            yield Tiling(tiles, split_k)


def simt_cycles(extents: Extents, tiling: Tiling, target: GpuTarget, speed: float = 1.0) -> float:
    """How long a product without matrix units takes by the model. speed: multiplications of a multiprocessor beside
    those of the H100 of the model, cycle by cycle."""
    tiles, split_k = tiling.tiles, tiling.split_k
    blocks = extents.batch * steps_over(extents.m, tiles.m) * steps_over(extents.n, tiles.n) * split_k
    steps = steps_over(steps_over(extents.k, tiles.k), split_k)
    own = max(1, steps_over(blocks, target.multiprocessors))
    added = cast(float, sum_cycles(extents, split_k)) if split_k > 1 else 0
    return START + _tile_cycles(tiles, steps, own, extents.nbytes, speed) + added


def _tile_cycles(tiles: MatmulTiles, steps: int, own: int, nbytes: int, speed: float) -> float:
    """How long a multiprocessor takes for `own` tiles without matrix units."""
    warps = tiles.warps[0] * tiles.warps[1]
    resident = min(own, max(1, _PLAIN_WARPS * 4 // nbytes // warps))
    rate = speed * min(_PLAIN_PRODUCTS, _WARP_PRODUCTS * warps * resident)
    step = max(tiles.m * tiles.n * tiles.k * nbytes / 4 / rate, _PLAIN_STEP / resident)
    return own * steps * step + steps_over(own, resident) * START


def sum_cycles(extents: Extents | CallExtents, splits: Amount) -> Amount:
    """How long adding partial sums takes, of more than one split."""
    return _SUM + ratio(2 * 4 * splits * extents.batch * extents.m * extents.n, _SUM_BYTES)


def steps_over(extent: int, step: int) -> int:
    """How many steps cover an extent."""
    return -(-extent // step)
