"""How kernels in tiles are lowered for a CUDA device: the one place that chooses.

    mma                 every warp multiplies by `mma.sync`; copies in the background, from sm_80 on
    wgmma               warp groups multiply; otherwise as "mma"; sm_90a
    warp-specialized    a warp group copies, others multiply and compute on what they have multiplied
    tma                 one thread has boxes brought by TMA, warp groups multiply; blocks stay and take tiles in turn

The first one from below that kernel and device are made for is taken where the caller does not choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hidet.cuda.schedules.tiling import resident_blocks
from hidet.cuda.tile.machine import WarpGroups, machine
from hidet.cuda.tile.pipeline import TILE_INDICES, fits_pipeline, lower_pipeline
from hidet.cuda.tile.warp_specialized import fits_warp_specialization, lower_warp_specialized
from hidet.errors import ScheduleError, suggestion
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.lower.uses import comes_before_ring
from hidet.gpu.tile.lowered import LoweredTiles
from hidet.gpu.tile.tensors import matrices_of
from hidet.gpu.tile.walk import all_stmts, sources_of
from hidet.ir import build
from hidet.ir.expr import Expr, Load, Var
from hidet.ir.visit import walk
from hidet.target import GpuTarget


@dataclass(frozen=True, slots=True)
class TileLowering:
    """One way to lower kernels. fits: whether it takes a kernel. needs: a feature of the device, None for none.
    takes: what it takes, for messages."""

    name: str
    takes: str
    needs: str | None
    fits: Callable[[TileKernel], bool]
    lower: Callable[[TileKernel, GpuTarget], LoweredTiles]


def lower_tiles(kernel: TileKernel, target: GpuTarget, lowering: str | None = None) -> LoweredTiles:
    """The kernel by the lowering of this name, None for the fastest that it and the device are made for.

    ScheduleError for an unknown name, and for a kernel or device that the lowering is not made for.
    """
    if lowering is None:
        fitting = (row for row in LOWERINGS if (row.needs is None or target.has(row.needs)) and row.fits(kernel))
        return next(fitting).lower(kernel, target)
    row = next((row for row in LOWERINGS if row.name == lowering), None)
    if row is None:
        names = [row.name for row in LOWERINGS]
        hint = suggestion(lowering, names) or f"choose one of {', '.join(names)}"
        raise ScheduleError(f"kernel {kernel.name} is to be lowered by {lowering!r}, which is none", hint=hint)
    if row.needs is not None and not target.has(row.needs):
        raise ScheduleError(
            f"kernel {kernel.name} is to be lowered by {lowering!r}, which needs {row.needs}",
            hint='build for "cuda:sm_90a", or let the target choose',
        )
    if not row.fits(kernel):
        raise ScheduleError(
            f"kernel {kernel.name} is to be lowered by {lowering!r}, which it has not the shape for",
            hint=f"{lowering!r} takes {row.takes}",
        )
    return row.lower(kernel, target)


def _products_of_warp_groups(kernel: TileKernel) -> list[bool]:
    """Of each product, whether warp groups multiply what threads copy."""
    groups = WarpGroups()
    return [groups.fits(stmt, kernel.warps) for stmt in all_stmts(kernel.body) if isinstance(stmt, t.Mma)]


def _is_of_warp_groups(kernel: TileKernel) -> bool:
    return any(_products_of_warp_groups(kernel))


def _is_pipeline(kernel: TileKernel) -> bool:
    """Besides what the lowering asks for: the host, which makes the tensor maps, knows where matrices lie."""
    return (
        len(kernel.grid) >= TILE_INDICES
        and fits_pipeline(kernel)
        and not any(
            isinstance(node, Load)
            for source in sources_of(kernel.body)
            for matrix in matrices_of(source)
            for part in (matrix.pointer, matrix.rows, matrix.columns, matrix.row_stride)
            for node in walk(part)
        )
    )


def _is_warp_specialized(kernel: TileKernel) -> bool:
    """Besides what the lowering asks for: threads that compute must not meet those that copy, as they would in loads
    elsewhere and in reductions between warps, what they store is staged at the end, and a stage is given back by a lane
    that knows that it is read, as it is after products of warp groups."""
    if not fits_warp_specialization(replace(kernel, grid=())) or not all(_products_of_warp_groups(kernel)):
        return False
    (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
    known = [*ring.loads, *(stmt for n, stmt in enumerate(kernel.body) if comes_before_ring(kernel.body[n + 1 :]))]
    for stmt in all_stmts(kernel.body):
        is_known = stmt in known if isinstance(stmt, t.Load) else stmt in kernel.body
        if isinstance(stmt, t.Load | t.Store | t.Ring) and not is_known:
            return False
        if isinstance(stmt, t.Reduce) and stmt.axis == 0:
            return False
    return True


def _lower_warp_specialized(kernel: TileKernel, target: GpuTarget) -> LoweredTiles:
    lowered = lower_warp_specialized(replace(kernel, grid=()))
    return LoweredTiles("warp-specialized", lowered.function, kernel.params, kernel.grid, lowered.threads)


def _lower_tma(kernel: TileKernel, target: GpuTarget) -> LoweredTiles:
    """As many blocks as the device holds at most."""
    pipeline = lower_pipeline(kernel, target)
    resident = resident_blocks(pipeline.shared_bytes, pipeline.threads, target)
    function = pipeline.function
    if resident > 1:
        # Else the assembler takes so many registers that fewer blocks fit, and the others start when those end.
        function = replace(function, attributes=(*function.attributes, ("min_blocks", resident)))
    tiles: Expr = build.index(1)
    for extent in kernel.grid:
        tiles = tiles * extent

    def maps(arguments: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        return tuple(described.argument(arguments) for described in pipeline.maps)

    grid = (build.minimum(tiles, target.multiprocessors * resident),)
    return LoweredTiles("tma", function, kernel.params, grid, pipeline.threads, maps, needs_elements=True)


def _lower_wgmma(kernel: TileKernel, target: GpuTarget) -> LoweredTiles:
    return _lower_plain("wgmma", kernel, target.has)


def _lower_mma(kernel: TileKernel, target: GpuTarget) -> LoweredTiles:
    return _lower_plain("mma", kernel, lambda feature: feature != "wgmma" and target.has(feature))


def _lower_plain(name: str, kernel: TileKernel, has: Callable[[str], bool]) -> LoweredTiles:
    if len(kernel.grid) < TILE_INDICES:
        function = lower_kernel(replace(kernel, grid=()), machine(has))
        return LoweredTiles(name, function, kernel.params, kernel.grid, kernel.threads)
    columns, rows, *others = kernel.grid
    return LoweredTiles(
        name, lower_kernel(kernel, machine(has)), kernel.params, (columns * rows, *others), kernel.threads
    )


LOWERINGS = (
    TileLowering(
        "tma",
        "kernels over a grid of tiles whose one pipeline holds nothing but loads of matrices in memory, in rows of "
        "16 bytes, and products by warps=(4 n, 1) of 64 n rows, with fills, fetches, maps and stores around it",
        "wgmma",
        _is_pipeline,
        _lower_tma,
    ),
    TileLowering(
        "warp-specialized",
        "kernels with one pipeline of loads of matrices in memory and products by warps=(8, 1) or (12, 1) of 64 rows a "
        "group of four warps, and no other loads behind its begin",
        "wgmma",
        _is_warp_specialized,
        _lower_warp_specialized,
    ),
    TileLowering(
        "wgmma",
        "kernels with a product by warps=(4 n, 1) of 64 n rows",
        "wgmma",
        _is_of_warp_groups,
        _lower_wgmma,
    ),
    TileLowering("mma", "every kernel", None, lambda kernel: True, _lower_mma),
)
"""From the fastest on."""
