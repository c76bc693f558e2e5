"""Products of few rows with packed weights (weight-only quantisation): the codes are read once, as they lie.

Elements of 4 and 8 bits with a scale, and maybe a zero, for so many neighbours along k, up to one of a column. Of other
weights, and for more rows, the weight is dequantised to memory before it is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.context import CompileContext
from hidet.cuda.schedules.packed_gemv import (
    MAX_ROWS,
    PART,
    PackedSource,
    PackedTiling,
    chunk_of,
    packed_gemv_kernel,
    parts_before_last,
)
from hidet.gpu.schedules.operands import find_product, rows_of
from hidet.gpu.schedules.packed_operand import PackedOperand, accesses_in, find_packed, reads_codes
from hidet.gpu.schedules.product import ALIGN, SMALL, MatrixOperand, Product, known_align, likely
from hidet.gpu.schedules.product_kernel import ProductKernel
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.tile.tensors import GTensor
from hidet.gpu.weights import with_weights
from hidet.graph.graph import Node, Value
from hidet.ir.stmt import If, Launch
from hidet.schedule.rule import ChoosingRule, Match, Program
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import gpu_target

_WEIGHT = 1
_WARPS = (2, 4, 8, 16)
_TILES = (1, 2)
_AHEAD = (2, 4, 8)
_USUAL_WARPS = 8
_MOST_SHARED = 96 * 1024
"""Bytes of shared memory of a block, two of which fit on a multiprocessor."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedProduct:
    """A product whose right operand is packed. product: the same with a matrix in its place."""

    product: Product
    operand: PackedOperand


class PackedProductRule(ChoosingRule[PackedProduct, PackedTiling]):
    """Schedules products of at most eight rows of f16 or bf16 with a weight that is computed from packed codes."""

    def computed_operands(self, anchor: Node, producer: Mapping[Value, Node], ctx: CompileContext) -> frozenset[int]:
        """The weight, where it is computed from what may be codes and there are few rows."""
        x, nothing = rows_of(anchor), frozenset[int]()
        weight = anchor.inputs[_WEIGHT]
        if (
            x is None
            or weight is None
            or x.tensor.dtype not in dtypes.FLOATS_OF_16_BITS
            or not ctx.option("cuda.matrix_units")
        ):
            return nothing
        rows = dims.product(x.tensor.shape[:-1])
        if not isinstance(rows, int) or not 0 < rows <= MAX_ROWS:
            return nothing
        return frozenset((_WEIGHT,)) if reads_codes(weight, producer) else nothing

    def match(self, task: Task, ctx: CompileContext) -> Match[PackedProduct] | None:
        """None for weights that are not packed codes or whose rows are no whole parts of 16 bytes, for rows of x that
        are not, for symbolic sizes of x, and for results that are no matrix."""
        x = task.anchor_inputs[0]
        others = [prologue for number, prologue in enumerate(task.prologues) if number != _WEIGHT]
        if x is None or any(prologue is not None for prologue in others) or len(task.outputs) != 1:
            return None
        if x.type.dtype not in dtypes.FLOATS_OF_16_BITS or not ctx.option("cuda.matrix_units"):
            return None
        operand = find_packed(task, _WEIGHT)
        if operand is None or operand.row_bytes % PART or operand.group < PART * operand.per_byte or operand.k > SMALL:
            return None
        if operand.code.is_float and not gpu_target(ctx.target).has("f8"):
            return None
        product = find_product(task, x.type.dtype, dtypes.f32, operand.tensor)
        return None if product is None or not _is_skinny(product) else Match(task, PackedProduct(product, operand))

    def space(self, match: Match[PackedProduct], ctx: CompileContext) -> Space[PackedTiling]:
        """Warps that share k, columns of a block, and what is read ahead."""
        return Space(
            (
                Knob("warps", _WARPS, "warps of a block, which share k"),
                Knob("tiles", _TILES, "16 columns each, of a block"),
                Knob("ahead", _AHEAD, "parts of 16 bytes of a column that a lane copies ahead"),
            ),
            PackedTiling,
            (Constraint("what blocks copy ahead fits into shared memory", _fits_shared),),
        )

    def default(self, match: Match[PackedProduct], ctx: CompileContext) -> PackedTiling:
        """As many warps as have something to read, and blocks for all multiprocessors.

        Two parts ahead keep memory busy: four take 8 to 18 % longer on an H100, although more is on its way.
        """
        product, operand = match.data.product, match.data.operand
        chunks = dims.ceildiv(operand.k, chunk_of(operand))
        assert isinstance(chunks, int)
        warps = max(warps for warps in _WARPS if warps <= max(min(chunks, _USUAL_WARPS), _WARPS[0]))
        wide = PackedTiling(warps, 2, _AHEAD[0])
        is_wide = likely(product.n) // wide.columns >= gpu_target(ctx.target).multiprocessors
        return wide if is_wide else PackedTiling(warps, 1, _AHEAD[0])

    def build(self, match: Match[PackedProduct], params: PackedTiling, ctx: CompileContext) -> Program:
        """One kernel, or one of two where a call says how tensors are aligned."""
        builder, found = ProgramBuilder(match.task), match.data
        product, codes = found.product, found.operand.codes
        assert isinstance(product.a, MatrixOperand)
        aligned = builder.are_aligned((product.a.tensor.operand, codes.operand))
        fast = _launch(builder, match.task, found, params, is_aligned=True)
        if aligned is None:
            builder.run(fast)
        else:
            builder.run(If(aligned, fast, _launch(builder, match.task, found, params, is_aligned=False)))
        return builder.program()


def _fits_shared(tiling: PackedTiling) -> bool:
    return tiling.shared_bytes <= _MOST_SHARED


def _is_skinny(product: Product) -> bool:
    """Whether a product has few rows, which are whole parts of 16 bytes."""
    a, m, k = product.a, product.m, product.k
    if not isinstance(a, MatrixOperand) or a.is_transposed or product.batch != 1 or a.align != ALIGN:
        return False
    return isinstance(m, int) and 0 < m <= MAX_ROWS and known_align(a.tensor.type.dtype.nbytes, k) == ALIGN


def _launch(
    builder: ProgramBuilder, task: Task, found: PackedProduct, tiling: PackedTiling, *, is_aligned: bool
) -> Launch:
    product, operand = found.product, found.operand
    read = [operand.codes.operand, *(access.operand for value in operand.values for access in accesses_in(value))]
    name = builder.name()
    kernel = ProductKernel(task, product, multiplies=True, finishes=True, computed_from=read)
    scope = kernel.scope
    a = kernel.source(product.a, ALIGN, is_small=True)
    assert isinstance(a, GTensor) and isinstance(product.m, int)
    c = kernel.result(product.result_align)
    source = PackedSource(
        operand,
        kernel.pointer(operand.codes.operand),
        scope.size(operand.row_bytes, "row_bytes"),
        scope.argument(operand.k, "k"),
        scope.size(parts_before_last(operand, tiling), "parts"),
        kernel.lowering(dict.fromkeys(read[1:])),
        is_aligned,
    )
    epilogue = kernel.finish(c, is_inside=True)
    function = packed_gemv_kernel(name, a, source, c, product.m, tiling, epilogue=epilogue, weights=kernel.weights)
    grid = (builder.size(dims.ceildiv(product.n, tiling.columns)),)
    function = with_weights(replace(function, params=scope.params), kernel.weights)
    pointers = [builder.pointers[each] for each in (*kernel.operands, task.epilogues[0].result)]
    return builder.launch(function, pointers, scope.arguments, grid, tiling.threads)
