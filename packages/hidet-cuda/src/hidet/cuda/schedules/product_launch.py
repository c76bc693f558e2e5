"""The kernels of a matrix product and their launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cuda.schedules.product_tiles import GEMV_TILES, has_whole_rows, is_unaligned, is_warp_specialized
from hidet.cuda.schedules.tiling import Tiling, resident_blocks, unaligned
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.pipeline import lower_pipeline
from hidet.dims import Dim
from hidet.gpu.schedules import gemv, simt, split_k
from hidet.gpu.schedules.product import ALIGN, Product, known_align
from hidet.gpu.schedules.product_kernel import ProductKernel, own_places
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.tensors import Gathered, GTensor
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch, Stmt
from hidet.schedule.task import Task
from hidet.target import GpuTarget


@dataclass(frozen=True, slots=True)
class _Aligns:
    """Bytes that rows of the operands and of the result start at multiples of. are_known: whether those of all tensors
    start at multiples of 16 as far as their strides let them."""

    a: int
    b: int
    result: int
    are_known: bool

    @staticmethod
    def known(product: Product) -> _Aligns:
        """Those that strides let tensors have."""
        return _Aligns(product.a.align, product.b.align, product.result_align, True)

    @staticmethod
    def least(product: Product) -> _Aligns:
        """Those of elements."""
        nbytes = product.a.tensor.type.dtype.nbytes
        return _Aligns(nbytes, nbytes, product.result.dtype.nbytes, False)


@dataclass(frozen=True, slots=True, eq=False)
class _Multiplication:
    """What one kernel multiplies and stores, in terms of its parameters.

    epilogue_operands: matrices like `c`, or rows, that `epilogue` reads at the place of the element. batch: the index
    that counts matrices, and its extent in the kernel; outer: that extent where the kernel is launched. steps: those
    along k, (first, number of); None for all.
    """

    a: GTensor | Gathered
    b: GTensor | Gathered
    c: GTensor
    epilogue: Callable[..., Expr]
    epilogue_operands: tuple[GTensor, ...]
    batch: tuple[Var, Expr] | None
    outer: Dim
    steps: tuple[Expr, Expr] | None


@dataclass(frozen=True, slots=True, eq=False)
class ProductLaunches:
    """Makes the kernels of a product, and launches of them by the program's entry.

    partial: where the partial sums of split-k go; None where the whole sum goes into the task's output.
    """

    builder: ProgramBuilder
    task: Task
    product: Product
    tiling: Tiling
    target: GpuTarget
    partial: Var | None

    def multiply(self) -> Stmt:
        """The launch of one kernel for aligned tensors, or of one for others."""
        product, tiles = self.product, self.tiling.tiles
        least, align = _Aligns.least(product), _Aligns.known(product)
        gains = product.uses_matrix_units or any(map(has_whole_rows, (product.a, product.b), (align.a, align.b)))
        if is_unaligned(product) or not gains:
            return self._multiply(tiles, least)
        fast = self._multiply_gemv(align) if tiles is GEMV_TILES else self._multiply(tiles, align)
        condition = self._are_aligned()
        if condition is None:
            return fast
        if product.uses_matrix_units:
            tiles = unaligned(tiles, product.a.tensor.type.dtype.nbytes)
        return If(condition, fast, self._multiply(tiles, least))

    def _are_aligned(self) -> Expr | None:
        """Whether the kernel for aligned tensors may run; None where it always may."""
        product = self.product
        operands = (product.a.tensor.operand, product.b.tensor.operand)
        aligned = self.builder.are_aligned((*operands, *own_places(self.task, product), self._output))
        conditions = [] if aligned is None else [aligned]
        if is_warp_specialized(product, self.target) and dims.prove_le(1, product.k) is not True:
            # There is no tensor map of a matrix without elements.
            conditions.append(self.builder.size(product.k) > 0)
        return build.logical_and(*conditions) if conditions else None

    @property
    def _output(self) -> Operand:
        """The task's output."""
        return self.task.epilogues[0].result

    def _multiply(self, tiles: MatmulTiles, align: _Aligns) -> Launch:
        """A kernel that multiplies tile by tile, and its launch."""
        product, builder = self.product, self.builder
        name = builder.name()
        kernel = ProductKernel(
            self.task, product, multiplies=True, finishes=self.partial is None, split_k=self.tiling.split_k
        )
        what = self._multiplication(kernel, tiles, align)
        if not product.uses_matrix_units:
            are_whole = has_whole_rows(product.a, align.a), has_whole_rows(product.b, align.b)
            return self._launch_tiles(kernel, what, tiles, self._simt_kernel(name, what, tiles, are_whole))
        tiled = replace(self._tile_kernel(name, what, tiles), params=kernel.scope.params)
        builder.record(tiled)
        if min(align.a, align.b) == ALIGN and is_warp_specialized(product, self.target):
            count = dims.ceildiv(product.m, tiles.m) * dims.ceildiv(product.n, tiles.n) * what.outer
            return self._launch_warp_specialized(kernel, tiled, count)
        function = lower_kernel(tiled, machine(self.target.has))
        return self._launch_tiles(kernel, what, tiles, function)

    def _multiplication(self, kernel: ProductKernel, tiles: MatmulTiles, align: _Aligns) -> _Multiplication:
        product, scope, partial = self.product, kernel.scope, self.partial
        a, b = kernel.source(product.a, align.a), kernel.source(product.b, align.b)
        epilogue_operands: dict[Operand, GTensor] = {}
        steps: tuple[Expr, Expr] | None = None
        epilogue: Callable[..., Expr] = kernel.unfinished
        if partial is None:
            c = kernel.result(align.result)
            if product.uses_matrix_units:
                epilogue_operands = kernel.epilogue_operands(c, is_aligned=align.are_known)
            epilogue = kernel.finish(c, tuple(epilogue_operands), is_inside=False)
        else:
            c = kernel.sums(known_align(partial.dtype.nbytes, product.n))
            steps = self._steps_of_split(kernel, tiles)
        outer = product.batch * self.tiling.split_k
        batch = None if outer == 1 else (kernel.outer, scope.size(outer, "outer"))
        return _Multiplication(a, b, c, epilogue, tuple(epilogue_operands.values()), batch, outer, steps)

    def _steps_of_split(self, kernel: ProductKernel, tiles: MatmulTiles) -> tuple[Expr, Expr]:
        """The first step along k of a block's split, and how many it has."""
        count = dims.ceildiv(self.product.k, tiles.k)
        each = kernel.scope.size(dims.ceildiv(count, self.tiling.split_k), "each")
        last = kernel.scope.size(count, "steps")
        first = kernel.split * each
        return first, build.maximum(build.minimum(last - first, each), 0)

    def _tile_kernel(self, name: str, what: _Multiplication, tiles: MatmulTiles) -> TileKernel:
        """The kernel for matrix units."""
        product = self.product
        return matmul_kernel(
            name,
            (),
            what.a,
            what.b,
            what.c,
            tiles,
            a_is_transposed=product.a.is_transposed,
            b_is_transposed=product.b.is_transposed,
            epilogue=what.epilogue,
            factors=product.factors,
            epilogue_operands=what.epilogue_operands,
            batch=what.batch,
            steps=what.steps,
        )

    def _simt_kernel(
        self, name: str, what: _Multiplication, tiles: MatmulTiles, are_whole: tuple[bool, bool]
    ) -> Function:
        """The kernel without matrix units. are_whole: whether rows of the operands are whole parts of 16 bytes."""
        product = self.product
        return simt.simt_kernel(
            name,
            (),
            what.a,
            what.b,
            what.c,
            tiles,
            a_is_transposed=product.a.is_transposed,
            b_is_transposed=product.b.is_transposed,
            epilogue=what.epilogue,
            accumulator=product.total.dtype,
            registers=self.target.multiprocessor_registers,
            are_whole=are_whole,
            batch=None if what.batch is None else what.batch[0],
            steps=what.steps,
        )

    def _launch_tiles(
        self, kernel: ProductKernel, what: _Multiplication, tiles: MatmulTiles, function: Function
    ) -> Launch:
        """The launch of a block for each tile."""
        product, builder = self.product, self.builder
        columns = (builder.size(product.n) + (tiles.n - 1)) // tiles.n
        rows = (builder.size(product.m) + (tiles.m - 1)) // tiles.m
        grid = (columns * rows, *(() if what.batch is None else (builder.size(what.outer),)))
        function = replace(function, params=kernel.scope.params)
        threads = self.target.warp_size * tiles.warps[0] * tiles.warps[1]
        return builder.launch(function, self._pointers(kernel), kernel.scope.arguments, grid, threads)

    def _launch_warp_specialized(self, kernel: ProductKernel, tiled: TileKernel, count: Dim) -> Launch:
        """A persistent, warp-specialized kernel that computes `count` tiles, and its launch: as many blocks as the
        device holds at most."""
        pipeline = lower_pipeline(tiled)
        resident = resident_blocks(pipeline.shared_bytes, pipeline.threads, self.target)
        function = pipeline.function
        if resident > 1:
            # Else the assembler takes so many registers that fewer blocks fit, and the others start when those end.
            function = replace(function, attributes=(*function.attributes, ("min_blocks", resident)))
        grid = (build.minimum(self.builder.size(count), self.target.multiprocessors * resident),)
        pointers, sizes = self._pointers(kernel), kernel.scope.arguments
        maps = [described.argument for described in pipeline.maps]
        return self.builder.launch(function, pointers, sizes, grid, pipeline.threads, maps)

    def _multiply_gemv(self, align: _Aligns) -> Launch:
        """A GEMV kernel, and its launch."""
        product, builder = self.product, self.builder
        assert isinstance(product.m, int)
        name, kernel = builder.name(), ProductKernel(self.task, product, multiplies=True, finishes=True)
        a, b = kernel.source(product.a, align.a), kernel.source(product.b, align.b)
        assert isinstance(a, GTensor) and isinstance(b, GTensor)
        c = kernel.result(align.result)
        is_batch = product.batch != 1
        function = gemv.gemv_kernel(
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
        blocks = builder.size(dims.ceildiv(product.n, gemv.COLUMNS))
        grid = (blocks, *((builder.size(product.batch),) if is_batch else ()))
        function = replace(function, params=kernel.scope.params)
        return builder.launch(function, self._pointers(kernel), kernel.scope.arguments, grid, gemv.THREADS)

    def sum_splits(self, partial: Var) -> Launch:
        """The kernel that adds the partial sums of split-k, and its launch."""
        product, builder = self.product, self.builder
        kernel = ProductKernel(self.task, product, multiplies=False, finishes=True)
        scope = kernel.scope
        given = scope.pointer("partial", partial.dtype)
        c = kernel.result(product.result.dtype.nbytes)
        count = scope.size(self.tiling.split_k, "splits")
        lanes = ALIGN // partial.dtype.nbytes if known_align(partial.dtype.nbytes, product.n) == ALIGN else 1
        is_batch = product.batch != 1
        function = split_k.split_k_sum_kernel(
            builder.name(),
            scope.params,
            build.binary("add", given, kernel.outer * (count * c.rows * c.columns)) if is_batch else given,
            count,
            c,
            lanes,
            epilogue=kernel.finish(c, is_inside=True),
        )
        items = builder.size(dims.ceildiv(dims.ceildiv(product.m * product.n, lanes), split_k.THREADS))
        grid_vars = (*function.grid_vars, *((kernel.outer,) if is_batch else ()))
        function = replace(function, params=scope.params, grid_vars=grid_vars)
        pointers = [builder.pointers[operand] for operand in (*kernel.operands, self._output)]
        grid = (items, *((builder.size(product.batch),) if is_batch else ()))
        return builder.launch(function, [*pointers, partial], scope.arguments, grid, split_k.THREADS)

    def _pointers(self, kernel: ProductKernel) -> list[Expr]:
        """What a kernel that multiplies reads, and where it writes."""
        output = self.builder.pointers[self._output] if self.partial is None else self.partial
        return [*(self.builder.pointers[operand] for operand in kernel.operands), output]
