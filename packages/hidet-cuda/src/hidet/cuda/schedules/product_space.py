"""What may be chosen about a product on matrix units: the kernel, its tiles, its stages, and split-k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from hidet.cuda.schedules.product_tiles import (
    GEMV_TILES,
    can_be_warp_specialized,
    copies_elements,
    for_product,
    is_gemv,
    shared_tiles,
    specialized_tiles,
    suits_operands,
)
from hidet.cuda.schedules.tiling import copied_bytes, warp_specialized_bytes
from hidet.gpu.schedules.matmul import extents_of, how_copied, simt_tiles
from hidet.gpu.schedules.product import Product
from hidet.gpu.schedules.tiling import SPLIT_K, Tiling, has_steps, simt_space, split_knob
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.schedule.space import Constraint, Knob, Space
from hidet.target import GpuTarget

_STAGES = (2, 3, 4, 6, 8, 12, 16)
_BOX_BYTES = 1024
"""Boxes that TMA swizzles begin at multiples of this."""


_Kernel = Literal["by size", "gemv", "warp-specialized", "plain"]


@dataclass(frozen=True, slots=True)
class KernelTile:
    """Tiles of a kind of kernel, with any number of stages."""

    kernel: _Kernel
    tiles: MatmulTiles

    def __str__(self) -> str:
        if self.kernel in ("by size", "gemv"):
            return self.kernel
        tiles, (down, across) = self.tiles, self.tiles.warps
        order = " transposed" if tiles.is_transposed else ""
        by = "TMA" if self.kernel == "warp-specialized" else f"{down}x{across} warps"
        return f"{tiles.m}x{tiles.n}x{tiles.k}{order} by {by}"


def product_space(
    product: Product, target: GpuTarget, splits: Sequence[int] = SPLIT_K, by_size: Tiling | None = None
) -> Space[Tiling]:
    """Of a product that `MatmulRule` takes. splits: what split-k may be. by_size: several tilings, of which each call
    takes the fastest one; None for a product whose sizes are known."""
    if not product.uses_matrix_units:
        return simt_space(extents_of(product), simt_tiles(product), splits)
    several = [] if by_size is None else [KernelTile("by size", by_size.tiles)]
    tiles = (*several, *_kernel_tiles(product, target))
    # Elements that pass through registers on their way are in one stage while another is multiplied.
    stages = (2,) if copies_elements(product) else _STAGES
    limit = target.block_shared_memory
    return Space(
        (
            Knob("tile", tiles, "kernel, results of a block x steps along k"),
            Knob("stages", stages, "tiles of the operands in shared memory"),
            split_knob(splits),
        ),
        partial(_tiling, by_size),
        (
            Constraint(f"shared memory holds the stages: {limit} bytes", lambda t: _shared_bytes(product, t) <= limit),
            has_steps(extents_of(product)),
            *([_GEMV] if is_gemv(product) else []),
            Constraint("tilings by size have stages and splits of their own", lambda t: not t.others or t == by_size),
        ),
    )


def _tiling(by_size: Tiling | None, tile: KernelTile, stages: int, split_k: int) -> Tiling:
    others = by_size.others if tile.kernel == "by size" and by_size is not None else ()
    is_specialized = by_size.is_warp_specialized if others and by_size else tile.kernel == "warp-specialized"
    return Tiling(replace(tile.tiles, stages=stages), split_k, is_specialized, others)


def _kernel_tiles(product: Product, target: GpuTarget) -> list[KernelTile]:
    found = [KernelTile("gemv", GEMV_TILES)] if is_gemv(product) else []
    tables: dict[_Kernel, tuple[MatmulTiles, ...]] = {"plain": shared_tiles(product, target)}
    if can_be_warp_specialized(product, target):
        tables = {"warp-specialized": specialized_tiles(product), **tables}
    for kernel, tiles in tables.items():
        wide = (replace(for_product(each, product), stages=0) for each in tiles)
        found += [KernelTile(kernel, each) for each in wide if suits_operands(product, each)]
    return list(dict.fromkeys(found))


_GEMV = Constraint[Tiling](
    "a GEMV has no stages and is not split", lambda t: not _is_gemv(t) or t == Tiling(GEMV_TILES)
)


def _is_gemv(tiling: Tiling) -> bool:
    return replace(tiling.tiles, stages=GEMV_TILES.stages) == GEMV_TILES


def _shared_bytes(product: Product, tiling: Tiling) -> int:
    """What a block needs of shared memory."""
    tiles, nbytes = tiling.tiles, product.a.tensor.type.dtype.nbytes
    if tiling.is_warp_specialized:
        return warp_specialized_bytes(replace(tiles, k=tiles.k * nbytes // 2)) + _BOX_BYTES
    return copied_bytes(replace(tiles, k=tiles.k * nbytes // 2), how_copied(product))
