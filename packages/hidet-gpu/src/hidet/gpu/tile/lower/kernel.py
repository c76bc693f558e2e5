"""A kernel in tiles as a function of the thread IR: all threads of a block do the same."""

from __future__ import annotations

from hidet import dtypes
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import WARP, TileKernel
from hidet.gpu.tile.lower.fragment import Threads, block_threads
from hidet.gpu.tile.lower.machine import Machine
from hidet.gpu.tile.lower.order import tile_indices
from hidet.gpu.tile.lower.statements import TileLowering
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function


def lower_kernel(kernel: TileKernel, machine: Machine, *, shifts_rows: bool = False) -> Function:
    """The kernel for blocks of `kernel.threads` threads of a device. Where `kernel.grid` is known, its first index
    counts all tiles of a matrix, columns times rows of them.

    A ring's loads run ahead in groups of background copies, one a stage; a barrier of the block in each iteration makes
    a stage visible, and tells that the one before it may be overwritten. ScheduleError for what the device lacks.
    shifts_rows: whether rings copy rows that begin anywhere as they lie, with more shared memory, and shift them
    (`hidet.gpu.tile.lower.shifted`); else element by element.
    """
    lowering = TileLowering(kernel, block_threads(kernel.warps), machine, shifts_rows=shifts_rows)
    grid_vars, order = _block_order(kernel)
    standing, values = (
        [s.Declare(*pair) for pair in pairs] for pairs in (_standing(lowering.threads), kernel.index_values)
    )
    tiles = [s.Declare(var) for var in lowering.buffers()]
    body = build.seq([*standing, *order, *values, *tiles, lowering.stmts(kernel.body)])
    attributes = (("block", (kernel.threads, 1, 1)),)
    return Function(kernel.name, kernel.params, body, "kernel", grid_vars, None, attributes)


def _block_order(kernel: TileKernel) -> tuple[tuple[Var, ...], list[s.Stmt]]:
    """The kernel's indices as they are launched, all tiles of a matrix along the first one, because only that one may
    be large; and statements that make those of its tile from them."""
    if not kernel.grid:
        return kernel.grid_vars, []
    tile = build.size_var("tile")
    return (tile, *kernel.grid_vars[2:]), tile_indices(kernel.grid_vars[:2], kernel.grid[:2], tile)


def _standing(threads: Threads) -> list[tuple[Var, Expr]]:
    """Where a thread stands; warps are numbered along the columns first."""
    thread = build.cast(intrinsic_call("gpu.thread_idx.x"), dtypes.i64)
    warp = threads.thread // WARP
    return [
        (threads.thread, thread),
        (threads.lane, threads.thread % WARP),
        (threads.warp_row, warp // threads.warps[1]),
        (threads.warp_column, warp % threads.warps[1]),
    ]
