"""How attention without matrix units is cut into blocks, and what may be chosen about that."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hidet import dims
from hidet.dims import Dim
from hidet.gpu.schedules.attention_simt import SIDE, SimtTiles
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.space import Constraint, Knob, Space
from hidet.target import GpuTarget

_SIMT_SHAPES = ((128, 8), (128, 16), (64, 16), (32, 16), (16, 16))
"""Rows of a block without tensor cores, and threads of each."""
_PRODUCTS = 128
"""That a multiprocessor computes a cycle without tensor cores."""
_LEAST_THREADS = 256
"""On a multiprocessor, to have something to do while others wait for what they read."""
_SIMT_KEYS = (64, 32, 16)
_SIMT_SUMS = 128
"""Registers that a thread without tensor cores has for scores and results."""
_SHARED_SUMS = 4
"""The part of a multiprocessor's registers, one in so many, that a block of two has for them."""
_KNOB_KEYS = (16, 32, 64)


@dataclass(frozen=True, slots=True)
class SimtRows:
    """Rows of a block without tensor cores, and how many threads share each."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows} by {self.columns} threads"


_SIMT_ROWS = (SimtRows(16, 16), SimtRows(32, 16), SimtRows(64, 16), SimtRows(128, 16), SimtRows(128, 8))


def simt_tiles(problem: AttentionProblem, target: GpuTarget) -> SimtTiles:
    """Tiles without tensor cores: of those that fit into a block the ones that the device is done with first."""
    depth, width, dtype = problem.depth, problem.width, problem.compute
    heads = likely_extent(dims.product(problem.leading)) * likely_extent(problem.group)

    def fits(tiles: SimtTiles) -> bool:
        if tiles.threads < _LEAST_THREADS and simt_blocks(problem, tiles, target) == 1:
            return False
        return has_simt_registers(problem, tiles) and tiles.nbytes(depth, width, dtype) <= target.block_shared_memory

    def time(tiles: SimtTiles) -> float:
        """Cycles a key, of all blocks: of products, and of reading their operands, 4 bytes a thread at a time, half of
        which runs beside products. Blocks of few threads run in pairs, and all blocks end evenly where they are causal.
        """
        each, warps = tiles.rows // SIDE, tiles.threads // target.warp_size
        columns, keys = tiles.padded(width) // tiles.columns, tiles.keys // tiles.columns
        read = warps * (depth * (each + keys) / tiles.keys + each + columns)
        multiplied = tiles.rows * (depth + tiles.padded(width)) / _PRODUCTS
        pair = max(_LEAST_THREADS // tiles.threads, 1)
        rounds = heads * -(-likely_extent(problem.queries) // tiles.rows) / (pair * target.multiprocessors)
        rounds = max(rounds, 1) if problem.is_causal else math.ceil(rounds)
        return pair * rounds * (multiplied + read / 2)

    fitting = [
        next(filter(fits, [SimtTiles(rows, keys, columns) for keys in _SIMT_KEYS]), None)
        for rows, columns in _SIMT_SHAPES
    ]
    return min([tiles for tiles in fitting if tiles is not None], key=time)


def has_simt_registers(problem: AttentionProblem, tiles: SimtTiles) -> bool:
    """Whether threads without tensor cores have registers for their scores and results."""
    return tiles.rows == SIDE or _simt_sums(problem, tiles) <= _SIMT_SUMS * tiles.threads


def simt_blocks(problem: AttentionProblem, tiles: SimtTiles, target: GpuTarget) -> int:
    """How many blocks without tensor cores share a multiprocessor, one of which computes while another waits."""
    fits = 2 * tiles.nbytes(problem.depth, problem.width, problem.compute) <= target.block_shared_memory
    return 2 if fits and _simt_sums(problem, tiles) <= target.multiprocessor_registers // _SHARED_SUMS else 1


def _simt_sums(problem: AttentionProblem, tiles: SimtTiles) -> int:
    """Registers of a block for scores, for entries of a mask on their way to them, for results, and for where windows
    of a thread's rows begin in packed sequences."""
    scores = tiles.keys if problem.mask is None else 2 * tiles.keys
    begins = SIDE * tiles.threads if problem.packed is not None and problem.window[0] is not None else 0
    return tiles.rows * (tiles.padded(problem.width) + scores) * problem.compute.nbytes // 4 + begins


def simt_space(problem: AttentionProblem, target: GpuTarget) -> Space[SimtTiles]:
    """Tiles of the kernel without matrix units."""
    limit = target.block_shared_memory
    return Space(
        (
            Knob("tile", _SIMT_ROWS, "rows of a block, and what shares each"),
            Knob("keys", _KNOB_KEYS, "keys of a step"),
        ),
        lambda tile, keys: SimtTiles(tile.rows, keys, tile.columns),
        (
            Constraint(
                f"shared memory holds the tiles: {limit} bytes",
                lambda t: t.nbytes(problem.depth, problem.width, problem.compute) <= limit,
            ),
            Constraint("threads have registers for scores and results", lambda t: has_simt_registers(problem, t)),
        ),
    )


def likely_extent(dim: Dim) -> int:
    """An extent, or what a symbol hints at."""
    return dim if isinstance(dim, int) else dims.hint_value(dim) or 1
