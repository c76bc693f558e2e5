"""Matrix products: `matmul`, `linear` and convolutions, whose left matrix is gathered from the image.

16-bit floats are multiplied on tensor cores by the tile program of core, and so is f32 where it may be rounded to tf32;
other f32, and f64, by a kernel without matrix units.

On tensor cores programs have two kernels: one for tensors whose addresses are multiples of 16 bytes, with copies of
16 bytes, and one for others, unless all are known to be. Which one runs is decided when it is called, because views may
start anywhere. Where sm_90a has both matrices' boxes copied by its copy engine, the first one is a kernel with roles,
for `wgmma`. Up to two rows are multiplied without matrix units, as fast as the other matrix is read.

A product with few tiles is split along k: blocks write their sums to scratch memory, and a second kernel adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.cuda.arch import capability_of
from hidet.cuda.schedules import few_rows, partial_sums, simt
from hidet.cuda.schedules.operands import find_product
from hidet.cuda.schedules.product import ALIGN, MatrixOperand, PatchOperand, Product, known_align, likely
from hidet.cuda.schedules.product_kernel import ProductKernel, own_places
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.cuda.schedules.tiling import (
    GROUP_TILES,
    PARTS,
    PLAIN_TILES,
    ROLE_TILES,
    TILES,
    UNALIGNED_TILES,
    Extents,
    Tiling,
    choose_tiling,
    close_tilings,
    resident_blocks,
    unaligned,
    with_bytes_along_k,
)
from hidet.cuda.target import CudaTarget, cuda_target
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import If, Launch, Stmt
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task
from hidet.tile.kernel import TileKernel
from hidet.tile.lower.kernel import lower_kernel
from hidet.tile.lower.pipeline import lower_pipeline
from hidet.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.tile.tensors import GTensor

if TYPE_CHECKING:
    from hidet.target import Target

_TOTALS = {dtypes.f16: dtypes.f32, dtypes.bf16: dtypes.f32, dtypes.f32: dtypes.f32, dtypes.f64: dtypes.f64}
"""The types of products, and those in which they are summed."""
_WIDE_BY_FOLD = 1 << 14
"""Results of f32 and f64 below which a warp an element keeps more of the device busy than tiles."""
_LEAST_COPY = 4
"""Bytes from which parts of a matrix are copied in the background, which large tiles need."""
_ROWS = 2
"""Rows that are few."""
_ROWS_DEPTH = 256
"""Elements along k from which a warp shares a row."""
_ROW_TILES = MatmulTiles(16, 32, 32, 2, (1, 4))
"""Stands for kernels of few rows; for tensors that are not aligned these are tiles."""


class MatmulRule:
    """Schedules products of floats with one result, whose rows and columns lie regularly."""

    def match(self, task: Task, target: Target) -> Match | None:
        """None for other types, for operands that are not matrices in memory, and for results that are no matrix."""
        left = task.anchor_inputs[0]
        if any(prologue is not None for prologue in task.prologues) or len(task.outputs) != 1 or left is None:
            return None
        dtype = left.type.dtype
        if dtype not in _TOTALS or task.anchor is None:
            return None
        factors = _factors(dtype, task.anchor.attrs["fp32_precision"])
        product = find_product(task, factors, _TOTALS[dtype])
        if product is None:
            return None
        is_small = likely(product.batch * product.m * product.n) < _WIDE_BY_FOLD
        if factors is None and is_small and task.op_name != "conv":
            return None
        return Match(task, product)

    def space(self, match: Match, target: Target) -> SearchSpace:
        """Tiles, of products on tensor cores, and parts that k is split into."""
        return SearchSpace({"tiles": _tiles(match.data, cuda_target(target)), "parts": PARTS})

    def default(self, match: Match, target: Target) -> Params:
        """What a model of the device's blocks finds fastest."""
        product, device = match.data, cuda_target(target)
        if _has_few_rows(product):
            return {"tiles": _ROW_TILES, "parts": 1}
        choices, has_roles = _tiles(product, device), _has_roles(product, device)
        tiling = choose_tiling(_extents(product), choices, device.multiprocessors, has_roles=has_roles)
        return {"tiles": tiling.tiles, "parts": tiling.parts}

    def rivals(self, match: Match, target: Target) -> Sequence[Params]:
        """Tiles that the model finds hardly slower, each with the best number of parts."""
        product, device = match.data, cuda_target(target)
        if _has_few_rows(product) or not _on_matrix_units(product):
            return ()
        choices, has_roles = _tiles(product, device), _has_roles(product, device)
        close = close_tilings(_extents(product), choices, device.multiprocessors, has_roles=has_roles)
        return [{"tiles": tiling.tiles, "parts": tiling.parts} for tiling in close]

    def code_of(self, params: Params) -> Hashable:
        """Tiles, and whether k is split."""
        return Tiling(params["tiles"], params["parts"]).code

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """The product, and the sum of its parts if k is split."""
        product: Product = match.data
        builder = ProgramBuilder(match.task)
        tiling = Tiling(params["tiles"], params["parts"])
        partial: Var | None = None
        if tiling.parts > 1:
            count = product.batch * product.m * product.n * tiling.parts
            partial = builder.scratch("partial", product.total.dtype, count)
        builder.run(_product(builder, match.task, product, tiling, partial, cuda_target(target)))
        if partial is not None:
            builder.run(_sum(builder, match.task, product, partial, tiling.parts))
        return builder.program()


def _extents(product: Product) -> Extents:
    batch, m, n, k = (likely(dim) for dim in (product.batch, product.m, product.n, product.k))
    return Extents(batch, m, n, k, product.a.tensor.type.dtype.nbytes)


def _factors(dtype: DType, fp32_precision: str) -> DType | None:
    """The type in which matrix units multiply elements of `dtype`; None where they would lose digits that count."""
    if dtype in (dtypes.f16, dtypes.bf16):
        return dtype
    return dtypes.tf32 if dtype is dtypes.f32 and fp32_precision == "tf32" else None


def _on_matrix_units(product: Product) -> bool:
    return product.factors is not None


def _tiles(product: Product, target: CudaTarget) -> tuple[MatmulTiles, ...]:
    """What a product may be cut into."""
    if not _on_matrix_units(product):
        # Parts of f64 that few threads bring take more registers than there are.
        return PLAIN_TILES if product.total.dtype.nbytes == 4 else PLAIN_TILES[:2]
    if _has_few_rows(product):
        return (_ROW_TILES,)
    nbytes = product.a.tensor.type.dtype.nbytes
    return tuple(with_bytes_along_k(tiles, nbytes) for tiles in _table(product, target))


def _table(product: Product, target: CudaTarget) -> tuple[MatmulTiles, ...]:
    """The tiles for matrix units that suit a product's operands."""
    if _is_unaligned(product):
        return UNALIGNED_TILES
    if not _has_roles(product, target):
        is_copied = min(product.a.align, product.b.align) >= _LEAST_COPY
        has_groups = target.has_roles and is_copied and product.factors is not dtypes.tf32
        return (*GROUP_TILES, *TILES) if has_groups else TILES
    # Columns side by side are swizzled over 128 bytes, or all of them over 64.
    return tuple(tiles for tiles in ROLE_TILES if product.b.is_transposed or tiles.n % 64 == 0 or tiles.n == 32)


def _has_roles(product: Product, target: CudaTarget) -> bool:
    """Whether a product's kernel has roles: its matrices' boxes are copied by the copy engine."""
    if not target.has_roles or not _on_matrix_units(product) or _has_few_rows(product):
        return False
    if product.factors is dtypes.tf32 and (product.a.is_transposed or not product.b.is_transposed):
        # Warp groups multiply elements of 4 bytes with k as the fast axis alone.
        return False
    return all(
        isinstance(operand, MatrixOperand) and operand.align == ALIGN and _has_apart_rows(operand)
        for operand in (product.a, product.b)
    )


def _has_apart_rows(operand: MatrixOperand) -> bool:
    """Whether rows of a matrix are known not to overlap, as those of an expanded tensor or of windows do."""
    return operand.rows == 1 or dims.prove_le(operand.columns, operand.row_stride) is True


def _has_whole_rows(operand: MatrixOperand | PatchOperand, align: int) -> bool:
    """Whether rows are whole parts of 16 bytes, if they start at multiples of `align`."""
    if not isinstance(operand, MatrixOperand) or align != ALIGN:
        return False
    return known_align(operand.tensor.type.dtype.nbytes, operand.columns) == ALIGN


def _is_unaligned(product: Product) -> bool:
    """Whether rows of both operands are known to start at no multiples of more than an element."""
    return max(product.a.align, product.b.align) <= product.a.tensor.type.dtype.nbytes


def _has_few_rows(product: Product) -> bool:
    """Whether a product is that of few rows of whole parts of 16 bytes with rows along k."""
    a, b, m, k = product.a, product.b, product.m, product.k
    if not isinstance(a, MatrixOperand) or not isinstance(b, MatrixOperand) or not _on_matrix_units(product):
        return False
    per_part = ALIGN // b.tensor.type.dtype.nbytes
    if not isinstance(m, int) or not isinstance(k, int) or m > _ROWS or k < _ROWS_DEPTH or k % per_part:
        return False
    return not a.is_transposed and b.is_transposed and a.align == b.align == ALIGN


def _product(
    builder: ProgramBuilder,
    task: Task,
    product: Product,
    tiling: Tiling,
    partial: Var | None,
    target: CudaTarget,
) -> Stmt:
    """The launch of one kernel for aligned tensors, or of one for others."""
    least = _Aligns.least(product)
    align = _Aligns(product.a.align, product.b.align, product.result_align, True)
    unaligned_tiling = tiling
    if _on_matrix_units(product):
        unaligned_tiling = replace(tiling, tiles=unaligned(tiling.tiles, product.a.tensor.type.dtype.nbytes))
    elif not any(map(_has_whole_rows, (product.a, product.b), (align.a, align.b))):
        return _launch(builder, task, product, tiling, partial, least, target)
    if _is_unaligned(product):
        return _launch(builder, task, product, tiling, partial, least, target)
    if tiling.tiles is _ROW_TILES:
        fast = _launch_few_rows(builder, task, product, align)
    else:
        fast = _launch(builder, task, product, tiling, partial, align, target)
    copied = (product.a.tensor.operand, product.b.tensor.operand, *own_places(task, product), task.epilogues[0].result)
    aligned = builder.are_aligned(copied)
    conditions = [] if aligned is None else [aligned]
    if _has_roles(product, target) and dims.prove_le(1, product.k) is not True:
        # There is no tensor map of a matrix without elements.
        conditions.append(builder.size(product.k) > 0)
    if not conditions:
        return fast
    slow = _launch(builder, task, product, unaligned_tiling, partial, least, target)
    return If(build.logical_and(*conditions), fast, slow)


@dataclass(frozen=True, slots=True)
class _Aligns:
    """Bytes that rows of the operands and of the result start at multiples of. are_known: whether those of all tensors
    start at multiples of 16 as far as their strides let them."""

    a: int
    b: int
    result: int
    are_known: bool

    @staticmethod
    def least(product: Product) -> _Aligns:
        """Those of elements."""
        nbytes = product.a.tensor.type.dtype.nbytes
        return _Aligns(nbytes, nbytes, product.result.dtype.nbytes, False)


def _launch(
    builder: ProgramBuilder,
    task: Task,
    product: Product,
    tiling: Tiling,
    partial: Var | None,
    align: _Aligns,
    target: CudaTarget,
) -> Launch:
    """A kernel that multiplies, and its launch. partial: where sums of parts go instead of the task's output."""
    tiles, name = tiling.tiles, builder.name()
    kernel = ProductKernel(task, product, multiplies=True, finishes=partial is None, parts=tiling.parts)
    scope = kernel.scope
    a, b = kernel.source(product.a, align.a), kernel.source(product.b, align.b)
    output = builder.pointers[task.epilogues[0].result] if partial is None else partial
    steps: tuple[Expr, Expr] | None = None
    beside: dict[Operand, GTensor] = {}
    epilogue: Callable[..., Expr]
    if partial is None:
        c = kernel.result(align.result)
        if _on_matrix_units(product):
            beside = kernel.beside(c, is_aligned=align.are_known)
        epilogue = kernel.finish(c, tuple(beside), is_inside=False)
    else:
        c = kernel.sums(known_align(partial.dtype.nbytes, product.n))
        epilogue = kernel.unfinished
        count = dims.ceildiv(product.k, tiles.k)
        each, last = scope.size(dims.ceildiv(count, tiling.parts), "each"), scope.size(count, "steps")
        first = kernel.part * each
        steps = (first, build.maximum(build.minimum(last - first, each), 0))
    outer = product.batch * tiling.parts
    batch = None if outer == 1 else (kernel.outer, scope.size(outer, "outer"))
    turned_a, turned_b = product.a.is_transposed, product.b.is_transposed
    if _on_matrix_units(product):
        tiled = matmul_kernel(
            name,
            (),
            a,
            b,
            c,
            tiles,
            a_is_transposed=turned_a,
            b_is_transposed=turned_b,
            epilogue=epilogue,
            factors=product.factors,
            beside=tuple(beside.values()),
            batch=batch,
            steps=steps,
        )
        tiled = replace(tiled, params=scope.params)
        if min(align.a, align.b) == ALIGN and _has_roles(product, target):
            count = dims.ceildiv(product.m, tiles.m) * dims.ceildiv(product.n, tiles.n) * outer
            return _launch_roles(builder, tiled, kernel, count, output, target)
        function, threads = lower_kernel(tiled, capability_of(target.architecture)), tiled.threads
    else:
        function = simt.simt_kernel(
            name,
            (),
            a,
            b,
            c,
            tiles,
            a_is_transposed=turned_a,
            b_is_transposed=turned_b,
            epilogue=epilogue,
            accumulator=product.total.dtype,
            are_whole=(_has_whole_rows(product.a, align.a), _has_whole_rows(product.b, align.b)),
            batch=None if batch is None else batch[0],
            steps=steps,
        )
        threads = 32 * tiles.warps[0] * tiles.warps[1]
    columns, rows = ((builder.size(n) + (tile - 1)) // tile for n, tile in ((product.n, tiles.n), (product.m, tiles.m)))
    grid = (columns * rows, *(() if batch is None else (builder.size(outer),)))
    pointers = [*(builder.pointers[operand] for operand in kernel.operands), output]
    return builder.launch(replace(function, params=scope.params), pointers, scope.arguments, grid, threads)


def _launch_few_rows(builder: ProgramBuilder, task: Task, product: Product, align: _Aligns) -> Launch:
    """A kernel for the few rows of a product, and its launch."""
    assert isinstance(product.m, int)
    name, kernel = builder.name(), ProductKernel(task, product, multiplies=True, finishes=True)
    a, b = kernel.source(product.a, align.a), kernel.source(product.b, align.b)
    assert isinstance(a, GTensor) and isinstance(b, GTensor)
    c = kernel.result(align.result)
    is_batch = product.batch != 1
    function = few_rows.few_rows_kernel(
        name,
        (),
        a,
        b,
        c,
        product.m,
        epilogue=kernel.finish(c, is_inside=True),
        accumulator=product.total.dtype,
        batch=kernel.outer if is_batch else None,
    )
    blocks = builder.size(dims.ceildiv(product.n, few_rows.COLUMNS))
    grid = (blocks, *((builder.size(product.batch),) if is_batch else ()))
    pointers = [*(builder.pointers[operand] for operand in kernel.operands), builder.pointers[task.epilogues[0].result]]
    function = replace(function, params=kernel.scope.params)
    return builder.launch(function, pointers, kernel.scope.arguments, grid, few_rows.THREADS)


def _launch_roles(
    builder: ProgramBuilder,
    tiled: TileKernel,
    kernel: ProductKernel,
    count: Dim,
    output: Expr,
    target: CudaTarget,
) -> Launch:
    """A kernel with roles that computes `count` tiles, and its launch: as many blocks as the device holds at most."""
    pipeline = lower_pipeline(tiled)
    resident = resident_blocks(pipeline.shared_bytes, pipeline.threads)
    function = pipeline.function
    if resident > 1:
        # Else the assembler takes so many registers that fewer blocks fit, and the others start when those end.
        function = replace(function, attributes=(*function.attributes, ("min_blocks", resident)))
    grid = (build.minimum(builder.size(count), target.multiprocessors * resident),)
    pointers = [*(builder.pointers[operand] for operand in kernel.operands), output]
    return builder.launch(function, pointers, kernel.scope.arguments, grid, pipeline.threads, pipeline.maps)


def _sum(builder: ProgramBuilder, task: Task, product: Product, partial: Var, parts: int) -> Launch:
    """The kernel that adds parts, and its launch."""
    kernel = ProductKernel(task, product, multiplies=False, finishes=True)
    scope = kernel.scope
    given = scope.pointer("partial", partial.dtype)
    c = kernel.result(product.result.dtype.nbytes)
    count = scope.size(parts, "parts")
    lanes = ALIGN // partial.dtype.nbytes if known_align(partial.dtype.nbytes, product.n) == ALIGN else 1
    is_batch = product.batch != 1
    function = partial_sums.partial_sums_kernel(
        builder.name(),
        scope.params,
        build.binary("add", given, kernel.outer * (count * c.rows * c.columns)) if is_batch else given,
        count,
        c,
        lanes,
        epilogue=kernel.finish(c, is_inside=True),
    )
    items = builder.size(dims.ceildiv(dims.ceildiv(product.m * product.n, lanes), partial_sums.THREADS))
    grid_vars = (*function.grid_vars, *((kernel.outer,) if is_batch else ()))
    function = replace(function, params=scope.params, grid_vars=grid_vars)
    pointers = [builder.pointers[operand] for operand in kernel.operands]
    target = builder.pointers[task.epilogues[0].result]
    grid = (items, *((builder.size(product.batch),) if is_batch else ()))
    return builder.launch(function, [*pointers, target, partial], scope.arguments, grid, partial_sums.THREADS)
