"""What a product or convolution takes by default: the usual register tile or, where columns are no whole number of
these, one that the cost model expects to be clearly faster.

The model has published constants here: machines of one architecture make the same code. Columns that the usual tile
fills, as those of most layers, keep it, so that layers share kernels.
"""

from __future__ import annotations

from hidet import dims
from hidet.cpu.schedules.cost_gemm import Operands, gemm_seconds
from hidet.cpu.schedules.gemm_blocking import Extents
from hidet.cpu.schedules.gemm_choice import GemmParams, default_params
from hidet.cpu.schedules.gemm_tile import RegisterTile, register_tile, tile_knob, tile_shape
from hidet.cpu.target import CpuTarget
from hidet.dtypes import DType

_CLEARLY = 1.06
"""How much faster another tile has to be: every further one is more code to compile."""


def choose_params(
    target: CpuTarget, dtype: DType, extents: Extents, operands: Operands, *, is_packed_on_the_way: bool
) -> GemmParams:
    """Good parameters for sums of type `dtype`."""
    usual = register_tile(target)

    def params_of(tile: RegisterTile) -> GemmParams:
        return default_params(target, dtype, operands.column, extents, tile, is_packed_on_the_way=is_packed_on_the_way)

    chosen = params_of(usual)
    if chosen.is_gemv or dims.divisibility(extents.columns) % tile_shape(target, dtype, usual).columns == 0:
        return chosen
    constants = target.published_constants()

    def seconds(params: GemmParams) -> float:
        return gemm_seconds(extents, operands, tile_shape(target, dtype, params.tile), params, constants, 1)

    least = seconds(chosen) / _CLEARLY
    for tile in tile_knob(target).values:
        if tile == usual or tile.vectors > usual.vectors:
            continue
        params = params_of(tile)
        expected = seconds(params)
        if expected < least:
            chosen, least = params, expected
    return chosen
