"""What a product or convolution takes by default: the usual register tile."""

from __future__ import annotations

from hidet.cpu.schedules.cost_gemm import Operands
from hidet.cpu.schedules.gemm_blocking import Extents
from hidet.cpu.schedules.gemm_choice import GemmParams, default_params
from hidet.cpu.schedules.gemm_tile import register_tile
from hidet.cpu.target import CpuTarget
from hidet.dtypes import DType


def choose_params(
    target: CpuTarget, dtype: DType, extents: Extents, operands: Operands, *, is_packed_on_the_way: bool
) -> GemmParams:
    """Good parameters for sums of type `dtype`."""
    tile = register_tile(target)
    return default_params(target, dtype, operands.column, extents, tile, is_packed_on_the_way=is_packed_on_the_way)
