"""Tiles for a product, and its split-k: a model of how long the blocks of a device take.

Tables are written for elements of 2 bytes. Wider ones have as many bytes along k (`with_bytes_along_k`), which take
matrix units as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from hidet.cuda.arch import fitting_blocks
from hidet.gpu.schedules.amounts import Amount, ceil_ratio, largest, ratio, smallest
from hidet.gpu.schedules.tiling import (
    FILL,
    SIMT_TILES,
    SPLIT_K,
    START,
    CallExtents,
    Copied,
    Extents,
    Tiling,
    fast_tilings,
    fastest_tiling,
    simt_cycles,
    steps_over,
    sum_cycles,
)
from hidet.gpu.tile.lower.parts import TRANSPOSED_BYTES
from hidet.gpu.tile.lower.shifted import lines_bytes
from hidet.gpu.tile.templates.matmul import MatmulTiles

if TYPE_CHECKING:
    from hidet.ir.expr import Expr
    from hidet.target import GpuTarget

TILES = (
    MatmulTiles(128, 128, 32, 4, (2, 4)),
    MatmulTiles(128, 64, 32, 4, (4, 2)),
    MatmulTiles(64, 64, 64, 3, (2, 2)),
    MatmulTiles(64, 32, 64, 4, (2, 2)),
    MatmulTiles(32, 64, 64, 4, (1, 4)),
    MatmulTiles(32, 32, 64, 4, (1, 4)),
    MatmulTiles(16, 64, 64, 4, (1, 4)),
    MatmulTiles(16, 32, 128, 3, (1, 4)),
)
"""For `mma.sync`, by falling size."""


def _tiles(m: int, n: int, stages: int, k: int = 64) -> MatmulTiles:
    return MatmulTiles(m, n, k, stages, (m // 16, 1))


WARP_SPECIALIZED_TILES = (
    _tiles(128, 256, 4),
    _tiles(128, 128, 6),
    _tiles(128, 96, 6),
    _tiles(64, 256, 4),
    _tiles(64, 128, 8),
    _tiles(64, 128, 4),
    _tiles(64, 64, 12),
    _tiles(64, 64, 6),
    _tiles(64, 32, 16),
    _tiles(64, 32, 8),
    _tiles(128, 192, 5),
    _tiles(128, 160, 5),
    _tiles(128, 32, 4),
    _tiles(128, 240, 4),
    _tiles(128, 224, 4),
    _tiles(128, 144, 6),
    _tiles(128, 80, 7),
    _tiles(64, 80, 10),
    _tiles(192, 192, 4),
    _tiles(192, 160, 4),
)
"""For warp-specialized kernels (`hidet.cuda.tile.pipeline`): many stages for a block alone, few for two at once.
64 along k is a row of 128 bytes, the widest swizzle."""


def _transposed(m: int, n: int, stages: int, k: int = 64) -> MatmulTiles:
    return MatmulTiles(m, n, k, stages, (1, n // 16), is_transposed=True)


TRANSPOSED_TILES = (
    _transposed(16, 64, 16),
    _transposed(16, 64, 8),
    _transposed(16, 64, 8, 128),
    _transposed(16, 128, 10),
    _transposed(16, 128, 5),
    _transposed(32, 64, 16),
    _transposed(32, 64, 8),
    _transposed(32, 128, 9),
    _transposed(32, 128, 5),
    _transposed(48, 128, 8),
    _transposed(64, 64, 6),
    _transposed(64, 128, 8),
    _transposed(80, 128, 7),
    _transposed(96, 128, 6),
    _transposed(112, 128, 6),
    _transposed(144, 128, 5),
    _transposed(160, 128, 5),
    _transposed(176, 128, 5),
    _transposed(200, 128, 4),
    _transposed(208, 128, 4),
    _transposed(224, 128, 4),
    _transposed(240, 128, 4),
    _transposed(112, 256, 4),
)
"""For warp-specialized kernels whose matrix units multiply transposed: rows of the result come in any multiple of 8."""
NARROW_TILES = (
    _tiles(128, 128, 12, 32),
    _tiles(128, 32, 8, 32),
    _tiles(64, 128, 8, 32),
    _tiles(64, 64, 12, 32),
    _tiles(64, 32, 16, 32),
    _transposed(128, 64, 7, 32),
)
"""For those of pixels whose channels are a multiple of 32 alone: rows of 64 bytes."""
GROUP_TILES = (
    MatmulTiles(128, 128, 64, 4, (8, 1)),
    MatmulTiles(128, 64, 64, 4, (8, 1)),
    MatmulTiles(64, 128, 64, 4, (4, 1)),
    MatmulTiles(64, 64, 64, 4, (4, 1)),
)
"""For products of warp groups whose operands all threads copy, on sm_90a."""
UNALIGNED_TILES = (
    MatmulTiles(128, 128, 32, 2, (2, 4)),
    MatmulTiles(64, 64, 32, 2, (2, 4)),
    MatmulTiles(32, 32, 32, 2, (1, 4)),
)
"""For elements that are copied one by one, which pass through registers."""

# Tiles of these kernels, whatever their number of stages.
_GROUPS = frozenset((tiles.m, tiles.n, tiles.k, tiles.warps) for tiles in GROUP_TILES)


def with_bytes_along_k(tiles: MatmulTiles, nbytes: int) -> MatmulTiles:
    """Tiles of a table for elements of `nbytes` bytes."""
    return replace(tiles, k=tiles.k * 2 // nbytes)


# What the model measured, on an H100, and for warp-specialized kernels on an H200; clock cycles of one multiprocessor.
_PRODUCTS = 600
"""Multiplications a cycle in a tile that is large enough."""
_BYTES = 40
"""Bytes a cycle from the second-level cache."""
_GROUP_PRODUCTS = 1000
"""Multiplications a cycle by warp groups that copy themselves."""
_STEP = 450
"""A step of one block alone: a barrier, and products that wait for each other."""
_DELAY = 1300
"""From the start of a copy until its bytes are there; as many steps as there are stages share it."""
_SHIFTED_BYTES, _SHIFTED_STEP = 8, 800
"""Bytes a cycle of rows that are shifted, and a step of one block alone."""
_SINGLE_BYTES, _SINGLE_STEP = 10, 2700
"""Bytes a cycle that are copied one element at a time, and a step of that: its reads are waited for."""
_COPIES = {
    "parts": (_BYTES, _STEP),
    "shifted": (_SHIFTED_BYTES, _SHIFTED_STEP),
    "elements": (_SINGLE_BYTES, _SINGLE_STEP),
}
"""Bytes a cycle, and a step of one block alone, by how operands are copied."""
_COPY = 4500
"""A kernel that copies."""
_SPECIALIZED_PRODUCTS = 2300
"""Multiplications a cycle by warp groups in tiles of many columns."""
_LEFT_COLUMNS = 4
"""Columns that a step multiplies in the time that it takes for the left operand, whatever their number."""
_SPECIALIZED_BYTES = 7100
"""Bytes a cycle from the second-level cache by TMA, by the whole device."""
_BETWEEN_LINES = 1.6
"""How many times as long that takes for rows that begin within lines of the cache."""
_SPECIALIZED_STEP, _SPECIALIZED_DELAY = 240, 1770
"""A step of one block alone: products that wait for each other; and from the start of a copy until its bytes are there,
which as many steps as there are stages share."""
_SHARED_STEPS, _MANY_ROWS = 8, 7
"""Steps of a tile, and an odd number of rows of tiles, from which on blocks share copies."""
_LARGE_TILE = 128 * 256
"""Results of the largest tiles."""
_GROUPS_STEP = 400
"""A step of blocks of two warp groups, which wait for the same stages."""
_SPECIALIZED_READ, _BLOCK_READ = 2100, 27
"""Bytes a cycle from memory by TMA, by the whole device, and by one multiprocessor from its start on, which has so many
on their way (8 x 14336 times 14336 x 4096 on an H200: 42 us by 64 blocks, 34 by 128 with the sum of their splits)."""
_MEMORY_BYTES = 1300
"""Bytes a cycle from memory by the whole device, by threads."""
_SPECIALIZED_START, _SPECIALIZED_END = 5350, 270
"""Until a block has its first tiles and the device has stored its last ones; and between two tiles."""
_STORE, _NARROW_STORE, _STAGED_COLUMNS, _INSTRUCTIONS = 28, 36, 32, 128
"""What storing an element of a result takes beside instructions of its epilogue, more where fewer columns are staged at
a time, and those that a multiprocessor issues in a cycle, counted by elements. Stores of all blocks come at once, and
memory takes them no faster."""
_SPECIALIZED_THREADS, _GROUP_WARPS, _GROUP_COLUMNS = 160, 4, 64
_THREAD_REGISTERS = 64
"""Registers of a thread that is resident beside as many as a multiprocessor holds."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a device is beside the H100 of the model, cycle by cycle: its matrix units, its second-level cache and
    its memory."""

    products: float = 1.0
    cache: float = 1.0
    memory: float = 1.0


H100 = Speed()


def choose_tiling(
    extents: Extents,
    choices: Sequence[MatmulTiles],
    target: GpuTarget,
    *,
    is_warp_specialized: bool = False,
    splits: Sequence[int] = SPLIT_K,
) -> Tiling:
    """The fastest one by the model, with tiles out of `choices`. is_warp_specialized: what kernels they are for.
    splits: what split-k may be."""

    def time(tiling: Tiling) -> tuple[float, int, int]:
        return cycles(extents, tiling, target, is_warp_specialized), *_waste(tiling.tiles)

    fastest = fastest_tiling(extents, choices, time, splits)
    return replace(fastest, is_warp_specialized=is_warp_specialized)


def _waste(tiles: MatmulTiles) -> tuple[int, int]:
    """What decides between tiles that the model finds equally fast, as with few blocks: smaller ones multiply less that
    nobody asked for, and blocks with fewer stages begin sooner. Without matrix units larger ones multiply faster."""
    return (0, 0) if tiles in SIMT_TILES else (tiles.m * tiles.n, tiles.stages)


def close_tilings(
    extents: Extents,
    choices: Sequence[MatmulTiles],
    target: GpuTarget,
    *,
    is_warp_specialized: bool = False,
    splits: Sequence[int] = SPLIT_K,
) -> list[Tiling]:
    """Those that take hardly longer than the fastest one by the model, the best one for each kernel, fastest first."""
    fast = fast_tilings(extents, choices, lambda tiling: cycles(extents, tiling, target, is_warp_specialized), splits)
    return [replace(tiling, is_warp_specialized=is_warp_specialized) for tiling in fast]


def cycles(
    extents: Extents, tiling: Tiling, target: GpuTarget, is_warp_specialized: bool, speed: Speed = H100
) -> float:
    """How long a product takes by the model. `Tiling` of tables, and those of any other number of stages."""
    if tiling.tiles in SIMT_TILES:
        return simt_cycles(extents, tiling, target)
    splits = splits_to_fill(extents, tiling, target) if tiling.split_k == FILL else tiling.split_k
    return cast(float, _cycles(extents, tiling, splits, target, is_warp_specialized, speed))


def cycles_of_call(extents: CallExtents, tiling: Tiling, splits: Amount, target: GpuTarget) -> Expr:
    """How long a product on matrix units takes by the model, in host code. splits: how many a split tiling has."""
    return cast("Expr", _cycles(extents, tiling, splits, target, tiling.is_warp_specialized, H100))


def splits_to_fill(extents: Extents, tiling: Tiling, target: GpuTarget) -> int:
    """As many splits as there are multiprocessors for: those of `FILL`."""
    tiles = tiling.tiles
    blocks = extents.batch * steps_over(extents.m, tiles.m) * steps_over(extents.n, tiles.n)
    room = target.multiprocessors // max(blocks, 1)
    return max(1, min(room, SPLIT_K[-1], steps_over(extents.k, tiles.k) // 2))


def _cycles(
    extents: Extents | CallExtents,
    tiling: Tiling,
    splits: Amount,
    target: GpuTarget,
    is_warp_specialized: bool,
    speed: Speed,
) -> Amount:
    nbytes = extents.nbytes
    as_halves = tiling.tiles if nbytes == 2 else replace(tiling.tiles, k=tiling.tiles.k * nbytes // 2)
    tiles = as_halves.upright
    rows, columns = ceil_ratio(extents.m, tiling.tiles.m), ceil_ratio(extents.n, tiling.tiles.n)
    blocks = extents.batch * rows * columns * splits
    steps = ceil_ratio(ceil_ratio(extents.k, tiling.tiles.k), splits)
    own = largest(1, ceil_ratio(blocks, target.multiprocessors))
    added = sum_cycles(extents, splits) if tiling.is_split else 0
    if is_warp_specialized:
        at_once = smallest(blocks, target.multiprocessors)
        read_bytes = nbytes * extents.batch * (extents.m + extents.n) * extents.k
        read = largest(
            ratio(read_bytes, _SPECIALIZED_READ * speed.memory),
            ceil_ratio(read_bytes, at_once * int(_BLOCK_READ * speed.memory)) - _SPECIALIZED_START,
        )
        columns = tiles.n // 2 if shares_copies(extents, tiling.tiles) else tiles.n
        loaded = int((tiles.m + columns) * tiles.k * 2 * (_BETWEEN_LINES if extents.is_between_lines else 1))
        store = _NARROW_STORE if tiling.tiles.is_transposed or tiles.n % _STAGED_COLUMNS else _STORE
        finish = tiles.m * tiles.n * (store + extents.epilogue) // _INSTRUCTIONS
        room = resident_blocks(warp_specialized_bytes(as_halves), _SPECIALIZED_THREADS, target)
        computed = _warp_specialized_cycles(tiles, steps, own, at_once, loaded, finish, room, speed)
        # Half of whichever is shorter, reading or multiplying, is hidden.
        overlapped = largest(computed, read) + ratio(smallest(computed, read), 2)
        return _SPECIALIZED_START + overlapped + added
    resident = smallest(own, _resident(tiles, extents.copied, target))
    kind = (tiles.m, tiles.n, tiles.k, tiles.warps)
    bytes_a_cycle, step_alone = _COPIES[extents.copied]
    least = max(step_alone, _DELAY / tiles.stages)
    moved = (tiles.m + tiles.n) * tiles.k * 2 / (bytes_a_cycle * speed.cache)
    products = _GROUP_PRODUCTS if kind in _GROUPS else _PRODUCTS
    step = max(tiles.m * tiles.n * tiles.k / (products * speed.products), moved) * resident
    return START + ceil_ratio(own, resident) * (steps * largest(step, least) + START) + added


def _warp_specialized_cycles(
    tiles: MatmulTiles,
    steps: Amount,
    own: Amount,
    at_once: Amount,
    loaded: int,
    finish: int,
    room: int,
    speed: Speed,
) -> Amount:
    """How long a multiprocessor takes for `own` tiles by a warp-specialized kernel. at_once: multiprocessors that work.
    loaded: bytes that the second-level cache moves for a step. finish: cycles for the results of a tile.
    room: blocks that a multiprocessor has room for."""
    resident = smallest(own, room)
    alone = max(_SPECIALIZED_STEP, _SPECIALIZED_DELAY / tiles.stages)
    multiplied = tiles.m * (tiles.n + _LEFT_COLUMNS) * tiles.k / (_SPECIALIZED_PRODUCTS * speed.products)
    together = _GROUPS_STEP if tiles.warps[0] > _GROUP_WARPS else 0
    step = largest(
        ratio(alone, resident),
        ratio(at_once * loaded, _SPECIALIZED_BYTES * speed.cache),
        ratio(max(multiplied, together), 1),
    )
    return own * (steps * step + finish) + ceil_ratio(own, resident) * _SPECIALIZED_END


def shares_copies(extents: Extents | CallExtents, tiles: MatmulTiles) -> bool:
    """Whether pairs of blocks of a warp-specialized kernel share copies of the right matrix: of rows that begin within
    lines, of which the second-level cache moves twice as many. Else it keeps up, and blocks better wait for nobody.
    Of an odd number of rows of tiles the last pair has one below the matrix, which counts where they are few."""
    if not isinstance(extents, Extents) or not extents.is_between_lines or tiles.warps[0] <= _GROUP_WARPS:
        return False
    rows = steps_over(extents.m, tiles.m)
    is_paired = rows % 2 == 0 or rows >= _MANY_ROWS
    return is_paired and steps_over(extents.k, tiles.k) >= _SHARED_STEPS


def saves_power(extents: Extents, tiles: MatmulTiles) -> bool:
    """Whether pairs of blocks of a warp-specialized kernel share copies though the second-level cache keeps up: a
    device that multiplies at the power it may draw is about 1 % faster for what it need not move. Those are large
    tiles, of which none lies below the matrix."""
    is_paired = steps_over(extents.m, tiles.m) % 2 == 0
    return tiles.m * tiles.n >= _LARGE_TILE and is_paired and steps_over(extents.k, tiles.k) >= _SHARED_STEPS


def streaming_cycles(extents: Extents, speed: Speed) -> float:
    """How long it takes by the model to read the operands once, which is all that a GEMV waits for."""
    return START + extents.nbytes * extents.batch * (extents.n + extents.m) * extents.k / (_MEMORY_BYTES * speed.memory)


def copy_cycles(nbytes: int) -> float:
    """How long a kernel takes that copies as many bytes."""
    return _COPY + 2 * nbytes / _MEMORY_BYTES


def warp_specialized_bytes(tiles: MatmulTiles) -> int:
    """Shared memory of a warp-specialized kernel: the ring, and what results are staged in."""
    staged = TRANSPOSED_BYTES * tiles.n // _GROUP_COLUMNS if tiles.is_transposed else tiles.m * 128
    return (tiles.m + tiles.n) * tiles.k * 2 * tiles.stages + staged


def resident_blocks(shared_bytes: int, threads: int, target: GpuTarget) -> int:
    """Warp-specialized blocks that a multiprocessor runs at once."""
    return max(1, min(fitting_blocks(shared_bytes, target), target.multiprocessor_threads // threads))


def copied_bytes(tiles: MatmulTiles, copied: Copied) -> int:
    """Shared memory of a kernel all of whose threads copy, of elements of 2 bytes, wherever their rows lie along."""
    tile = (tiles.m + tiles.n) * tiles.k * 2
    if copied != "shifted":
        return tile * tiles.stages
    rows = max(tiles.m, tiles.k) + max(tiles.n, tiles.k)
    return tile * (tiles.stages + 1) + lines_bytes(rows, 0) * tiles.stages


def _resident(tiles: MatmulTiles, copied: Copied, target: GpuTarget) -> int:
    """Blocks that a multiprocessor runs at once."""
    shared = copied_bytes(tiles, copied)
    threads = target.warp_size * tiles.warps[0] * tiles.warps[1]
    return max(1, min(fitting_blocks(shared, target), target.multiprocessor_registers // _THREAD_REGISTERS // threads))


def unaligned(tiles: MatmulTiles, nbytes: int) -> MatmulTiles:
    """Tiles of a kernel beside one for aligned tensors: small, because it is compiled for calls that are rare."""
    small = with_bytes_along_k(UNALIGNED_TILES[-1], nbytes)
    return replace(small, m=min(tiles.m, small.m))
