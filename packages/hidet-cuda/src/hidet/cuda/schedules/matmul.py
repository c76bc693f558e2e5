"""Matrix products: `matmul`, `linear` and convolutions, whose left matrix is gathered from the image.

16-bit floats are multiplied on tensor cores by the tile program of core, and so is f32 where it may be rounded to tf32;
other f32, and f64, by a kernel without matrix units.

On tensor cores programs have two kernels: one for tensors whose addresses are multiples of 16 bytes, with copies of
16 bytes, and one for others, unless all are known to be. Which one runs is decided when it is called, because views may
start anywhere. Where sm_90a has both matrices' boxes copied by TMA, the first one is a warp-specialized
kernel, for `wgmma`. Up to two rows are multiplied without matrix units, as fast as the other matrix is read.

A product with few tiles is split along k: blocks write their sums to scratch memory, and a second kernel adds them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hidet import dtypes
from hidet.context import CompileContext
from hidet.cuda.schedules.by_size import fastest_of_call, has_symbols, tilings_by_size
from hidet.cuda.schedules.cost_product import product_seconds
from hidet.cuda.schedules.product_launch import MatrixUnitLaunches
from hidet.cuda.schedules.product_space import product_space
from hidet.cuda.schedules.product_tiles import (
    GEMV_TILES,
    STACKED_ROWS,
    has_units_of,
    is_gemv,
    is_warp_specialized,
    tiles_of,
)
from hidet.cuda.schedules.tiling import choose_tiling, close_tilings
from hidet.dtypes import DType
from hidet.gpu.schedules.matmul import TOTALS, extents_of, is_small, scratch_of, sums_usually
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.operands import CONVOLUTIONS, find_product
from hidet.gpu.schedules.product import FACTORS_OF_8_BITS, MatrixOperand, Product
from hidet.gpu.schedules.product_launch import ProductLaunches
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.tiling import Tiling, splits_of
from hidet.graph.graph import Node
from hidet.schedule.device_constants import known_constants, published_constants
from hidet.schedule.rule import Match, Program, SharingRule
from hidet.schedule.space import Space
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

_WIDE_BY_REDUCTION = 128
"""Results of f32 and f64 for each multiprocessor below which a warp an element keeps more of it busy than tiles."""


class MatmulRule(SharingRule[Product, Tiling]):
    """Schedules products of floats with one result, whose rows and columns lie regularly."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Product] | None:
        """None for other types, for operands that are not matrices in memory, and for results that are no matrix."""
        left, target = task.anchor_inputs[0], gpu_target(ctx.target)
        if any(prologue is not None for prologue in task.prologues) or len(task.outputs) != 1 or left is None:
            return None
        dtype = left.type.dtype
        if dtype not in TOTALS or task.anchor is None or not sums_usually(task.anchor):
            return None
        factors = _factors(dtype, task.anchor, target) if ctx.option("cuda.matrix_units") else None
        product = find_product(task, factors, TOTALS[dtype])
        if product is None or not _has_usual_operands(product, target):
            return None
        if factors is dtypes.f16 and ctx.option("cuda.fp16_accumulation") and not is_gemv(product):
            product = find_product(task, factors, dtypes.f16)
            assert product is not None
        is_wide = not is_small(product, per_device(_WIDE_BY_REDUCTION, target))
        if factors is None and not is_wide and task.op_name not in CONVOLUTIONS:
            return None
        return Match(task, product)

    def space(self, match: Match[Product], ctx: CompileContext) -> Space[Tiling]:
        """Kernels, their tiles and stages, and numbers of splits of k."""
        return product_space(match.data, gpu_target(ctx.target), _splits(match.data, ctx), self._by_size(match, ctx))

    def default(self, match: Match[Product], ctx: CompileContext) -> Tiling:
        """What a model of the device's blocks finds fastest."""
        product, target = match.data, gpu_target(ctx.target)
        if is_gemv(product):
            return Tiling(GEMV_TILES, 1)
        several = self._by_size(match, ctx)
        if several is not None:
            return several
        choices, specialized = tiles_of(product, target), is_warp_specialized(product, target)
        return choose_tiling(
            extents_of(product), choices, target, is_warp_specialized=specialized, splits=_splits(match.data, ctx)
        )

    @staticmethod
    def _by_size(match: Match[Product], ctx: CompileContext) -> Tiling | None:
        """Several tilings, where sizes are known at a call alone."""
        product, is_of_images = match.data, match.task.op_name in CONVOLUTIONS
        if not product.uses_matrix_units or not has_symbols(product):
            return None
        target = gpu_target(ctx.target)
        choices = tiles_of(product, target)
        return tilings_by_size(product, choices, target, _splits(match.data, ctx), is_of_images=is_of_images)

    def predict(self, match: Match[Product], params: Tiling, ctx: CompileContext) -> float | None:
        """By the model of the device's blocks."""
        known, published = known_constants(ctx), published_constants(ctx)
        if known is None or published is None:
            return None
        return product_seconds(match.data, params, gpu_target(ctx.target), known, published)

    def rivals(self, match: Match[Product], ctx: CompileContext) -> Sequence[Tiling]:
        """Tiles that the model finds hardly slower, each with the best split-k."""
        product, target = match.data, gpu_target(ctx.target)
        if is_gemv(product) or not product.uses_matrix_units or has_symbols(product):
            return ()
        choices, specialized = tiles_of(product, target), is_warp_specialized(product, target)
        return close_tilings(
            extents_of(product), choices, target, is_warp_specialized=specialized, splits=_splits(match.data, ctx)
        )

    def code_of(self, params: Tiling) -> Hashable:
        """Tiles, and whether k is split."""
        return params.code

    def build(self, match: Match[Product], params: Tiling, ctx: CompileContext) -> Program:
        """The product, and the sum of its splits (split-k)."""
        product, builder, target = match.data, ProgramBuilder(match.task), gpu_target(ctx.target)
        if params.others:
            builder.run(fastest_of_call(builder, match.task, product, params, target))
            return builder.program()
        partial = scratch_of(builder, product, params.split_k)
        launches = ProductLaunches(builder, match.task, product, params, target, params.split_k, partial)
        on_units = MatrixUnitLaunches(launches)
        builder.run(on_units.multiply() if product.uses_matrix_units else launches.multiply())
        if partial is not None:
            builder.run(launches.sum_splits(partial))
        return builder.program()


def _splits(product: Product, ctx: CompileContext) -> Sequence[int]:
    """What split-k may be: sums by two right matrices are not split."""
    return splits_of(ctx) if product.twin is None else (1,)


def _has_usual_operands(product: Product, target: GpuTarget) -> bool:
    """Whether operands of 8 bits lie along k, as matrix units take them, blocks with scales are whole tiles, and so are
    matrices below each other."""
    if product.twin is not None and not product.uses_matrix_units:
        return False
    if isinstance(product.b, MatrixOperand) and product.b.below:
        return product.uses_matrix_units and product.b.is_cut_by(STACKED_ROWS)
    if product.scales is not None and (not product.uses_matrix_units or not tiles_of(product, target)):
        return False
    return product.factors not in FACTORS_OF_8_BITS or (product.is_along_k and product.is_aligned)


def _factors(dtype: DType, anchor: Node, target: GpuTarget) -> DType | None:
    """The type in which matrix units multiply elements of `dtype`; None where they would lose digits that count, and
    for 8-bit floats that they do not have."""
    if dtype in dtypes.FLOATS_OF_16_BITS:
        return dtype
    if dtype in FACTORS_OF_8_BITS:
        return dtype if has_units_of(dtype, target) else None
    return dtypes.tf32 if dtype is dtypes.f32 and anchor.attrs.get("fp32_precision") == "tf32" else None
