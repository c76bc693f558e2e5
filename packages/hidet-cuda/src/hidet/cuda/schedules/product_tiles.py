"""Which kernel suits a product: on matrix units or without, warp-specialized or not, as a GEMV; and its tiles."""

from __future__ import annotations

import math
from dataclasses import replace

from hidet import dims, dtypes
from hidet.cuda.schedules.tiling import (
    GROUP_TILES,
    NARROW_TILES,
    TILES,
    TRANSPOSED_TILES,
    UNALIGNED_TILES,
    WARP_SPECIALIZED_TILES,
    with_bytes_along_k,
)
from hidet.dtypes import DType
from hidet.gpu.schedules.matmul import epilogue_instructions, how_copied, simt_tiles
from hidet.gpu.schedules.product import ALIGN, FACTORS_OF_8_BITS, FLOATS_OF_8_BITS, MatrixOperand, PatchOperand, Product
from hidet.gpu.schedules.product_launch import is_unaligned
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.graph.graph import Node
from hidet.target import GpuTarget

_CORNER_BITS, _MOST_STEP = {1: 16, 2: 8, 3: 5}, 8
"""Of a corner of a map of columns of pixels, by the axes of space, and of what lies between its pixels."""
_MOST_PROMOTED = 80
"""Elements of the result that a thread sums twice, of a step and of all."""
_MOST_OF_TWO = 128
"""Sums that a thread has, of two right matrices."""
_FEW_WARPS = 8
"""Of blocks whose threads have more than 112 registers."""
_MOST_INSTRUCTIONS = 21
"""Of epilogues in threads that have no more: those of a sigmoid or tanh with a bias, times a matrix, would spill."""
_MOST_SUMS, _FEW_INSTRUCTIONS = 80, 1
"""Sums of a thread of three warp groups above which it has registers for so many instructions only: a bias or residual,
or an activation without constants."""
_BLOCK_STEP, _BLOCK_COLUMNS = 128, 128
"""Of blocks with scales: multiples of steps and columns of most tiles."""
_MOST_SCALED = 64
"""Rows of transposed tiles with scales, of which a thread has a fourth."""
STACKED_ROWS = 64
"""Matrices that stand below each other have a multiple of so many rows: there are tiles of so many, and fewer, of each
kind of kernel."""
GEMV_MAX_ROWS = 2
"""Rows of the left matrix up to which a product is a GEMV or skinny GEMM, computed without matrix units."""
GEMV_MIN_K = 256
"""Elements along k from which a warp shares a row of a GEMV."""
GEMV_TILES = MatmulTiles(16, 32, 32, 2, (1, 4))
"""Stands for GEMV kernels; for tensors that are not aligned these are tiles."""


def has_units_of(factors: DType, target: GpuTarget) -> bool:
    """Whether a device has matrix units for factors of a type."""
    return factors not in FLOATS_OF_8_BITS or target.has("f8")


def has_whole_blocks(node: Node) -> bool:
    """Whether blocks of a `block_scaled_matmul` are made of tiles."""
    factors, size, columns = node.values[0].tensor.dtype, node.attrs["size"], node.attrs["columns"]
    return factors in FLOATS_OF_8_BITS and size % _BLOCK_STEP == columns % _BLOCK_COLUMNS == 0


def tiles_of(product: Product, target: GpuTarget) -> tuple[MatmulTiles, ...]:
    """What a product may be cut into."""
    if not product.uses_matrix_units:
        return simt_tiles(product)
    if is_gemv(product):
        return (GEMV_TILES,)
    found = (for_product(tiles, product) for tiles in _table(product, target))
    return tuple(tiles for tiles in found if suits_operands(product, tiles))


def for_product(tiles: MatmulTiles, product: Product) -> MatmulTiles:
    """Tiles of a table, for a product's elements and for all of its right matrices."""
    return with_bytes_along_k(of_rights(tiles, product), product.a.tensor.type.dtype.nbytes)


def of_rights(tiles: MatmulTiles, product: Product) -> MatmulTiles:
    """Tiles whose columns are those of all right matrices, from tiles of one: with as many stages as shared memory then
    has room for."""
    count = len(product.rights)
    if count == 1:
        return tiles
    stages = max(2, round(tiles.stages * (tiles.m + tiles.n) / (tiles.m + count * tiles.n)))
    return replace(tiles, n=count * tiles.n, stages=stages)


def suits_operands(product: Product, tiles: MatmulTiles) -> bool:
    """Whether each tile has scales of its own, where there are any, and multiplies with one of the matrices that stand
    below each other on the right."""
    is_in_one = not isinstance(product.b, MatrixOperand) or product.b.is_cut_by(tiles.n)
    has_registers = product.twin is None or (tiles.per_thread <= _MOST_OF_TWO and max(tiles.warps) <= _FEW_WARPS)
    return is_in_one and has_registers and _has_own_scales(product, tiles)


def _has_own_scales(product: Product, tiles: MatmulTiles) -> bool:
    """Whether each step of tiles is of one block with scales along k and along columns, with registers for those of
    rows, or there are none."""
    scales = product.scales
    if scales is None:
        return True
    is_one_block = scales.size % tiles.k == scales.columns % tiles.n == 0
    return is_one_block and (not tiles.is_transposed or tiles.m <= _MOST_SCALED)


def _table(product: Product, target: GpuTarget) -> tuple[MatmulTiles, ...]:
    """The tiles for matrix units that suit a product's operands best."""
    return specialized_tiles(product) if is_warp_specialized(product, target) else shared_tiles(product, target)


def shared_tiles(product: Product, target: GpuTarget) -> tuple[MatmulTiles, ...]:
    """For kernels all of whose threads copy and multiply: elements of 2 bytes."""
    if copies_elements(product):
        return UNALIGNED_TILES
    is_copied = how_copied(product) == "parts"
    has_groups = target.has("wgmma") and is_copied and product.factors is not dtypes.tf32
    return (*GROUP_TILES, *TILES) if has_groups else TILES


def copies_elements(product: Product) -> bool:
    """Whether both operands are copied element by element, as what filters see of images of odd channels."""
    return is_unaligned(product) and how_copied(product) == "elements"


def specialized_tiles(product: Product) -> tuple[MatmulTiles, ...]:
    """For warp-specialized kernels: elements of 2 bytes."""
    # Channels that a step copies of pixels are of one tap of the filter.
    nbytes = product.a.tensor.type.dtype.nbytes
    patches = [operand for operand in (product.a, product.b) if isinstance(operand, PatchOperand)]
    most = math.gcd(*(dims.divisibility(operand.channels) for operand in patches))
    if most * nbytes // 2 % WARP_SPECIALIZED_TILES[0].k:
        return NARROW_TILES
    # Rows or columns side by side are swizzled over 128 bytes, or all of them over 64.
    found = (
        *(tiles for tiles in WARP_SPECIALIZED_TILES if product.b.is_transposed or tiles.n % 64 == 0 or tiles.n == 32),
        *(tiles for tiles in TRANSPOSED_TILES if not product.a.is_transposed or tiles.m % 64 == 0 or tiles.m == 32),
    )
    if product.is_promoted:
        # Sums of a step take as many registers as those of all.
        found = tuple(tiles for tiles in found if tiles.per_thread <= _MOST_PROMOTED)
    instructions = epilogue_instructions(product)
    if product.is_promoted or product.factors in FACTORS_OF_8_BITS or instructions > _MOST_INSTRUCTIONS:
        # Scales and long epilogues take registers, of which threads of many warps have few.
        found = tuple(tiles for tiles in found if max(tiles.warps) <= _FEW_WARPS)
    elif instructions > _FEW_INSTRUCTIONS:
        found = tuple(tiles for tiles in found if max(tiles.warps) <= _FEW_WARPS or tiles.per_thread <= _MOST_SUMS)
    if product.factors is dtypes.i8:
        # Columns that `wgmma` multiplies integers with (PTX ISA, "wgmma.mma_async").
        found = tuple(tiles for tiles in found if tiles.upright.n % 16 == 0 or tiles.upright.n <= 32)
    return tuple(tiles for tiles in found if most % with_bytes_along_k(tiles, nbytes).k == 0)


def is_warp_specialized(product: Product, target: GpuTarget) -> bool:
    """Whether a warp-specialized kernel suits a product best."""
    return can_be_warp_specialized(product, target) and not is_gemv(product)


def can_be_warp_specialized(product: Product, target: GpuTarget) -> bool:
    """Whether a product's kernel may be warp-specialized: TMA copies boxes of its matrices, or columns of pixels."""
    if not target.has("wgmma") or not product.uses_matrix_units:
        return False
    if product.factors in (dtypes.tf32, *FACTORS_OF_8_BITS) and not product.is_along_k:
        # Warp groups multiply elements of 4 bytes and of one with k as the fast axis alone.
        return False
    return all(_is_copied(operand) for operand in (product.a, product.b))


def _is_copied(operand: MatrixOperand | PatchOperand) -> bool:
    """Whether TMA copies tiles of an operand."""
    if isinstance(operand, MatrixOperand):
        return operand.align == ALIGN and _has_apart_rows(operand)
    return operand.pixel_align == ALIGN and _has_pixel_columns(operand)


def _has_pixel_columns(operand: PatchOperand) -> bool:
    """Whether what a filter sees of images is copied as columns of pixels (PTX ISA, "Im2col mode"): the channels of a
    step are of one tap, and where lines of pixels begin and end fits what a tensor map has for that."""
    bits = _CORNER_BITS.get(len(operand.axes))
    per_step = NARROW_TILES[0].k * 2 // operand.tensor.type.dtype.nbytes
    is_apart = operand.is_of_one_image or all(stride == 0 for stride in operand.batch_strides)
    if bits is None or not is_apart:
        return False
    if dims.divisibility(operand.channels) % per_step:
        return False
    limit = 1 << bits - 1
    for axis in operand.axes:
        if not isinstance(axis.taps, int) or not 1 <= axis.step <= _MOST_STEP:
            return False
        reach = axis.spread * (axis.taps - 1)
        # Lines end at most a step before the padding lets them.
        corners = (-axis.before, axis.after - reach, axis.after - reach - axis.step + 1)
        if reach >= 2 * limit or not all(-limit <= corner < limit for corner in corners):
            return False
    # Pixels may overlap, as windows of a line do; those of an expanded tensor are all one.
    return all(
        dims.prove_le(1, stride) is True for stride in (operand.image_stride, *(axis.stride for axis in operand.axes))
    )


def _has_apart_rows(operand: MatrixOperand) -> bool:
    """Whether rows of a matrix are known not to overlap, as those of an expanded tensor or of windows do."""
    return operand.rows == 1 or dims.prove_le(operand.columns, operand.row_stride) is True


def is_gemv(product: Product) -> bool:
    """Whether a product is a GEMV or skinny GEMM, of rows of whole parts of 16 bytes with rows along k."""
    a, b, m, k = product.a, product.b, product.m, product.k
    if not isinstance(a, MatrixOperand) or not isinstance(b, MatrixOperand) or not product.uses_matrix_units:
        return False
    per_part = ALIGN // b.tensor.type.dtype.nbytes
    if product.factors in FACTORS_OF_8_BITS:
        return False
    if not isinstance(m, int) or not isinstance(k, int) or m > GEMV_MAX_ROWS or k < GEMV_MIN_K or k % per_part:
        return False
    return product.is_along_k and product.is_aligned
