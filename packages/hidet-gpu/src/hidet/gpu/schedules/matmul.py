"""Products and convolutions without matrix units, by tiles of a block; few long sums are split along k."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hidet import dims, dtypes
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.gpu.schedules.cost import simt_seconds
from hidet.gpu.schedules.lanes import LINE_BYTES
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.operands import find_product
from hidet.gpu.schedules.product import MatrixOperand, PatchOperand, Product, likely
from hidet.gpu.schedules.product_launch import ProductLaunches
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.tiling import (
    SIMT_TILES,
    Copied,
    Extents,
    Tiling,
    fast_tilings,
    fastest_tiling,
    simt_cycles,
    simt_space,
    splits_of,
    steps_over,
)
from hidet.gpu.tile.lower.copy import LEAST_ASYNC
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.graph.graph import Node
from hidet.ir.expr import Binary, Load, Unary, Var
from hidet.ir.node import IRNode
from hidet.ir.scalar_ops import UNARY_OPS
from hidet.ir.visit import walk
from hidet.operators.matmul import sum_dtype
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, SharingRule
from hidet.schedule.space import Space
from hidet.schedule.task import Task
from hidet.target import gpu_target

TOTALS = {
    **dict.fromkeys((dtypes.f16, dtypes.bf16, dtypes.f8e4m3, dtypes.f8e5m2), dtypes.f32),
    dtypes.f32: dtypes.f32,
    dtypes.f64: dtypes.f64,
    dtypes.i8: dtypes.i32,
}
"""The types of factors, and those in which their products are summed."""
LONGEST_SUM = 512
"""Products of f32 that are summed one after the other. Libraries sum in blocks, and errors grow with what is summed
at a time: for 2880 products at a time they are 2.6 times those of torch on a processor."""
_PARTIAL_BYTES = 64 << 20
"""Of partial sums, for the sake of digits alone."""
_FUNCTION_INSTRUCTIONS, _QUOTIENT_INSTRUCTIONS, _LOAD_INSTRUCTIONS = 12, 6, 2
"""Of a function of the library, of a quotient, and of what is read and converted."""
_WIDE_BY_REDUCTION = 128
"""Results for each multiprocessor below which a warp an element keeps more of it busy than tiles."""


class SimtMatmulRule(SharingRule[Product, Tiling]):
    """Schedules products of floats with one result, whose rows and columns lie regularly."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Product] | None:
        """None for other types, for operands that are not matrices in memory, for results that are no matrix, and for
        small products, which are reductions."""
        left, target = task.anchor_inputs[0], gpu_target(ctx.target)
        if any(prologue is not None for prologue in task.prologues) or len(task.outputs) != 1 or left is None:
            return None
        if left.type.dtype not in TOTALS or task.anchor is None or not sums_usually(task.anchor):
            return None
        product = find_product(task, None, TOTALS[left.type.dtype])
        if product is None or (task.op_name != "conv" and is_small(product, per_device(_WIDE_BY_REDUCTION, target))):
            return None
        return Match(task, product)

    def space(self, match: Match[Product], ctx: CompileContext) -> Space[Tiling]:
        """Tiles, and numbers of splits of k."""
        return simt_space(extents_of(match.data), simt_tiles(match.data), splits_of(ctx))

    def default(self, match: Match[Product], ctx: CompileContext) -> Tiling:
        """What a model of the device's blocks finds fastest."""
        extents, target = extents_of(match.data), gpu_target(ctx.target)
        tiles, splits = simt_tiles(match.data), _exact_splits(match.data, ctx)
        return fastest_tiling(extents, tiles, lambda tiling: simt_cycles(extents, tiling, target), splits)

    def predict(self, match: Match[Product], params: Tiling, ctx: CompileContext) -> float | None:
        """By the model of the device's blocks."""
        constants, product = known_constants(ctx), match.data
        if constants is None:
            return None
        return simt_seconds(extents_of(product), params, gpu_target(ctx.target), constants, product.total.dtype)

    def rivals(self, match: Match[Product], ctx: CompileContext) -> Sequence[Tiling]:
        """Tiles that the model finds hardly slower, each with the best split-k."""
        extents, target = extents_of(match.data), gpu_target(ctx.target)
        tiles, splits = simt_tiles(match.data), _exact_splits(match.data, ctx)
        return fast_tilings(extents, tiles, lambda tiling: simt_cycles(extents, tiling, target), splits)

    def code_of(self, params: Tiling) -> Hashable:
        """Tiles, and whether k is split."""
        return params.code

    def build(self, match: Match[Product], params: Tiling, ctx: CompileContext) -> Program:
        """The product, and the sum of its splits (split-k)."""
        builder = ProgramBuilder(match.task)
        partial = scratch_of(builder, match.data, params.split_k)
        target = gpu_target(ctx.target)
        launches = ProductLaunches(builder, match.task, match.data, params, target, params.split_k, partial)
        builder.run(launches.multiply())
        if partial is not None:
            builder.run(launches.sum_splits(partial))
        return builder.program()


def sums_usually(anchor: Node) -> bool:
    """Whether products of an anchor are summed in the type of `TOTALS`."""
    x = anchor.inputs[0]
    assert x is not None
    return sum_dtype(x.tensor.dtype, anchor.attrs.get("dtype")) is TOTALS[x.tensor.dtype]


def simt_tiles(product: Product) -> tuple[MatmulTiles, ...]:
    """What a product without matrix units may be cut into."""
    # Parts of f64 that few threads bring take more registers than there are.
    return SIMT_TILES if product.total.dtype.nbytes == 4 else SIMT_TILES[:2]


def _exact_splits(product: Product, ctx: CompileContext) -> tuple[int, ...]:
    """What split-k may be, so that sums of f32 are no longer than LONGEST_SUM, as far as there are so many splits."""
    splits = splits_of(ctx)
    if ctx.option("gpu.split_k") or product.total.dtype.nbytes > 4:
        return splits
    nbytes = 4 * likely(product.batch * product.m * product.n)
    least = min(steps_over(likely(product.k), LONGEST_SUM), max(1, _PARTIAL_BYTES // max(nbytes, 1)))
    return tuple(split for split in splits if split >= least) or splits[-1:]


def is_small(product: Product, results: int) -> bool:
    """Whether a product has fewer results than so many."""
    return likely(product.batch * product.m * product.n) < results


def extents_of(product: Product) -> Extents:
    """What models know of a product: two right matrices count as one of as many columns as both."""
    batch, m, n, k = (likely(dim) for dim in (product.batch, product.m, product.n, product.k))
    n *= len(product.rights)
    nbytes, operands = product.a.tensor.type.dtype.nbytes, (product.a, product.b)
    is_between_lines = any(map(_is_between_lines, operands))
    return Extents(batch, m, n, k, nbytes, epilogue_instructions(product), is_between_lines, how_copied(product))


def how_copied(product: Product) -> Copied:
    """How threads that copy in the background copy a product's operands."""
    unaligned = [operand for operand in (product.a, product.b) if operand.align < LEAST_ASYNC]
    if product.a.tensor.type.dtype.nbytes >= LEAST_ASYNC or not unaligned:
        return "parts"
    return "shifted" if all(isinstance(operand, MatrixOperand) for operand in unaligned) else "elements"


def _is_between_lines(operand: MatrixOperand | PatchOperand) -> bool:
    """Whether rows of a matrix are known to begin within lines of the cache."""
    if not isinstance(operand, MatrixOperand) or operand.rows == 1 or not isinstance(operand.row_stride, int):
        return False
    return operand.row_stride * operand.tensor.type.dtype.nbytes % LINE_BYTES != 0


def epilogue_instructions(product: Product) -> int:
    """About how many instructions make an element of the result of a sum."""
    return sum(map(_instructions, dict.fromkeys(walk(product.value))))


def _instructions(node: IRNode) -> int:
    if isinstance(node, Unary):
        return _FUNCTION_INSTRUCTIONS if UNARY_OPS[node.op].is_costly else 1
    if isinstance(node, Binary):
        return _QUOTIENT_INSTRUCTIONS if node.op == "div" else int(node.dtype.is_float)
    return _LOAD_INSTRUCTIONS if isinstance(node, Load) else 0


def scratch_of(builder: ProgramBuilder, product: Product, splits: Dim) -> Var | None:
    """Memory for partial sums of so many splits; None where k is not split. A call without splits needs none."""
    if splits == 1:
        return None
    sums = product.batch * product.m * product.n * splits
    return builder.scratch("partial", product.total.dtype, sums * dims.minimum(splits - 1, 1))
