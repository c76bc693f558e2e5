"""What a product or convolution takes by default: what suits most of them, or what the cost model expects to be clearly
faster.

The model has published constants here: machines of one architecture make the same code. Columns that the usual register
tile fills, as those of most layers, keep it, so that layers share kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hidet import dims
from hidet.cpu.schedules.cost_gemm import Operands, gemm_seconds, item_count
from hidet.cpu.schedules.gemm_blocking import Extents
from hidet.cpu.schedules.gemm_choice import GemmParams, default_params
from hidet.cpu.schedules.gemm_tile import RegisterTile, register_tile, tile_knob, tile_shape
from hidet.cpu.schedules.gemv import can_be_gemv, is_skinny
from hidet.cpu.target import CpuTarget
from hidet.dtypes import DType

CLEARLY = 1.06
"""How much faster something unusual has to be: every further kernel is more code to compile."""
_WIDE, _ITEMS = 16, 32
"""Column groups of wide work items, and how many items there have to be left for threads."""


def choose_params(
    target: CpuTarget, dtype: DType, extents: Extents, operands: Operands, *, is_packed_on_the_way: bool
) -> GemmParams:
    """Good parameters for sums of type `dtype`."""
    usual, may_be_gemv = register_tile(target), can_be_gemv(extents)
    before = replace(extents, order=None)
    is_gemv = may_be_gemv and is_skinny(extents.rows) is not False
    shape, constants = tile_shape(target, dtype, usual), target.published_constants()

    def params_of(tile: RegisterTile, is_gemv: bool, is_on_the_way: bool = is_packed_on_the_way) -> GemmParams:
        known = extents if is_on_the_way == is_packed_on_the_way else before
        return default_params(target, dtype, operands.column, known, tile, is_on_the_way, is_gemv=is_gemv)

    # A program that also has a GEMV, for calls of few rows.
    has_both = is_gemv and is_skinny(extents.rows) is None

    def others() -> Iterator[GemmParams]:
        """What else may be good."""
        tiled = params_of(usual, is_gemv=has_both)
        if may_be_gemv and not has_both:
            yield tiled if is_gemv else params_of(usual, is_gemv=True)
        if is_packed_on_the_way and extents.taps == 1:
            yield params_of(usual, is_gemv=False, is_on_the_way=False)
        wide = replace(tiled, item=replace(tiled.item, groups=max(tiled.item.groups, _WIDE)))
        if tiled.item.groups < min(_WIDE, extents.groups(shape)) and item_count(extents, shape, wide.item) >= _ITEMS:
            yield wide
        if dims.divisibility(extents.columns) % shape.columns:
            for tile in tile_knob(target).values:
                if tile != usual and tile.vectors <= usual.vectors:
                    yield params_of(tile, is_gemv=has_both)

    def seconds(params: GemmParams) -> float:
        known = extents if params.is_packed_on_the_way == is_packed_on_the_way else before
        return gemm_seconds(known, operands, tile_shape(target, dtype, params.tile), params, constants, 1)

    chosen, rivals = params_of(usual, is_gemv), list(others())
    least = seconds(chosen) / CLEARLY if rivals else 0.0
    for params in rivals:
        expected = seconds(params)
        if expected < least:
            chosen, least = params, expected
    return chosen
