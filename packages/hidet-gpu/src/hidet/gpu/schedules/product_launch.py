"""The kernels of a matrix product without matrix units, and their launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.gpu.schedules import gemv, simt, split_k
from hidet.gpu.schedules.items import word_for
from hidet.gpu.schedules.product import ALIGN, SMALL, MatrixOperand, PatchOperand, Product, known_align
from hidet.gpu.schedules.product_kernel import ProductKernel, own_places
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.tiling import Tiling
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.gpu.tile.tensors import Gathered, GTensor, Stacked
from hidet.gpu.weights import with_weights
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch, Stmt
from hidet.schedule.task import Task
from hidet.target import GpuTarget


@dataclass(frozen=True, slots=True)
class Premises:
    """What a kernel relies on: bytes that rows of the operands and of the result start at multiples of.

    are_known: whether those of all tensors start at multiples of 16 as far as their strides let them. is_small: whether
    `Product.unproven_sizes` are at most SMALL.
    """

    a: int
    b: int
    result: int
    are_known: bool
    is_small: bool

    @staticmethod
    def best(product: Product) -> Premises:
        """What strides let tensors have, and numbers in 32 bits."""
        return Premises(product.a.align, product.b.align, product.result_align, True, True)

    @staticmethod
    def least(product: Product) -> Premises:
        """What holds of every call, wherever tensors start."""
        nbytes = product.a.tensor.type.dtype.nbytes
        return Premises(nbytes, nbytes, product.result.dtype.nbytes, False, not product.unproven_sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Multiplication:
    """What one kernel multiplies and stores, in terms of its parameters.

    epilogue_operands: matrices like `c`, or rows, columns or single elements, that `epilogue` reads at the place of the
    element. batch: the index that counts matrices, and its extent in the kernel; outer: that extent where the kernel is
    launched. steps: those along k, (first, number of); None for all.
    """

    a: GTensor | Gathered | Stacked
    b: GTensor | Gathered | Stacked
    twin: GTensor | Gathered | Stacked | None
    c: GTensor
    epilogue: Callable[..., Expr]
    epilogue_operands: tuple[GTensor, ...]
    batch: tuple[Var, Expr] | None
    outer: Dim
    steps: tuple[Expr, Expr] | None


@dataclass(frozen=True, slots=True, eq=False)
class ProductLaunches:
    """Makes the kernels of a product, and launches of them by the program's entry.

    splits: of k, each summed by blocks of its own. partial: where the partial sums of split-k go; None where the whole
    sum goes into the task's output.
    """

    builder: ProgramBuilder
    task: Task
    product: Product
    tiling: Tiling
    target: GpuTarget
    splits: Dim
    partial: Var | None

    def multiply(self) -> Stmt:
        """The launch of one kernel for aligned tensors, or of one for others."""
        product, tiles, best = self.product, self.tiling.tiles, Premises.best(self.product)
        gains = any(map(has_whole_rows, (product.a, product.b), (best.a, best.b)))
        if is_unaligned(product) or not gains:
            best = replace(Premises.least(product), is_small=True)
        fast, condition = self.multiply_tiles(tiles, best), self.holds(best)
        return fast if condition is None else If(condition, fast, self.multiply_tiles(tiles, self.always()))

    def holds(self, premises: Premises) -> Expr | None:
        """Whether a kernel that relies on `premises` may run; None where it always may."""
        aligned = self._are_aligned() if premises.are_known else None
        small = [self.builder.size(size) <= SMALL for size in self.product.unproven_sizes] if premises.is_small else []
        conditions = [*([] if aligned is None else [aligned]), *small]
        return build.logical_and(*conditions) if conditions else None

    def always(self) -> Premises:
        """What holds of every call of the program."""
        least = Premises.least(self.product)
        return replace(Premises.best(self.product), is_small=least.is_small) if self._are_aligned() is None else least

    def _are_aligned(self) -> Expr | None:
        """Whether tensors start at multiples of 16 bytes; None where they always do."""
        product = self.product
        operands = [tensor.operand for side in (product.a, *product.rights) for tensor in side.tensors]
        others = [operand for operand, own in own_places(self.task, product).items() if own.has_columns]
        return self.builder.are_aligned((*operands, *others, self._output))

    @property
    def _output(self) -> Operand:
        """The task's output."""
        return self.task.epilogues[0].result

    def kernel(self) -> ProductKernel:
        """A kernel that multiplies."""
        return ProductKernel(
            self.task, self.product, multiplies=True, finishes=self.partial is None, splits=self.splits
        )

    def multiply_tiles(self, tiles: MatmulTiles, premises: Premises) -> Launch:
        """A kernel that multiplies tile by tile, and its launch."""
        product, name, kernel = self.product, self.builder.name(), self.kernel()
        what = self.multiplication(kernel, tiles, premises)
        are_whole = has_whole_rows(product.a, premises.a), has_whole_rows(product.b, premises.b)
        function = self._simt_kernel(name, what, tiles, are_whole)
        return self.launch_tiles(kernel, what, tiles, function, simt.threads_of(tiles))

    def multiplication(
        self, kernel: ProductKernel, tiles: MatmulTiles, premises: Premises, *, fetches: bool = False
    ) -> Multiplication:
        """What a kernel multiplies and stores. fetches: whether it reads operands of the epilogue as matrices."""
        product, scope, partial = self.product, kernel.scope, self.partial
        a = kernel.source(product.a, premises.a, is_small=premises.is_small)
        b = kernel.source(product.b, premises.b, is_small=premises.is_small)
        twin = kernel.twin(premises.b, is_small=premises.is_small)
        epilogue_operands: dict[Operand, GTensor] = {}
        steps: tuple[Expr, Expr] | None = None
        epilogue: Callable[..., Expr] = kernel.unfinished
        if partial is None:
            c = kernel.result(premises.result)
            if fetches:
                epilogue_operands = kernel.epilogue_operands(c, is_aligned=premises.are_known)
            epilogue = kernel.finish(c, tuple(epilogue_operands), is_inside=False)
        else:
            c = kernel.sums(known_align(partial.dtype.nbytes, product.n))
            steps = self._steps_of_split(kernel, tiles)
        outer = product.batch * self.splits
        batch = None if outer == 1 else (kernel.outer, scope.size(outer, "outer"))
        return Multiplication(a, b, twin, c, epilogue, tuple(epilogue_operands.values()), batch, outer, steps)

    def _steps_of_split(self, kernel: ProductKernel, tiles: MatmulTiles) -> tuple[Expr, Expr]:
        """The first step along k of a block's split, and how many it has."""
        count = dims.ceildiv(self.product.k, tiles.k)
        each = kernel.scope.size(dims.ceildiv(count, self.splits), "each")
        last = kernel.scope.size(count, "steps")
        first = kernel.split * each
        return first, build.maximum(build.minimum(last - first, each), 0)

    def _simt_kernel(
        self, name: str, what: Multiplication, tiles: MatmulTiles, are_whole: tuple[bool, bool]
    ) -> Function:
        """The kernel without matrix units. are_whole: whether rows of the operands are whole parts of 16 bytes."""
        product = self.product
        assert not isinstance(what.a, Stacked) and not isinstance(what.b, Stacked) and what.twin is None
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

    def launch_tiles(
        self, kernel: ProductKernel, what: Multiplication, tiles: MatmulTiles, function: Function, threads: int
    ) -> Launch:
        """The launch of a block of `threads` threads for each tile."""
        product, builder = self.product, self.builder
        columns = (builder.size(product.n) + (tiles.n - 1)) // tiles.n
        rows = (builder.size(product.m) + (tiles.m - 1)) // tiles.m
        grid = (columns * rows, *(() if what.batch is None else (builder.size(what.outer),)))
        function = replace(function, params=kernel.scope.params)
        return builder.launch(function, self.pointers(kernel), kernel.scope.arguments, grid, threads)

    def multiply_gemv(self, premises: Premises) -> Launch:
        """A GEMV kernel, and its launch."""
        product, builder = self.product, self.builder
        assert isinstance(product.m, int)
        name, kernel = builder.name(), ProductKernel(self.task, product, multiplies=True, finishes=True)
        a = kernel.source(product.a, premises.a, is_small=premises.is_small)
        b = kernel.source(product.b, premises.b, is_small=premises.is_small)
        twin = kernel.twin(premises.b, is_small=premises.is_small)
        assert (
            isinstance(a, GTensor) and isinstance(b, GTensor | Stacked) and (twin is None or isinstance(twin, GTensor))
        )
        c = kernel.result(premises.result)
        is_batch = product.batch != 1
        # Layers whose number of rows a call tells share one program, whatever the length of their sums.
        is_shared = not isinstance(dims.product(self.task.outputs[0].type.shape), int)
        function = gemv.gemv_kernel(
            name,
            (),
            a,
            b,
            c,
            product.m,
            epilogue=kernel.finish(c, is_inside=True),
            accumulator=product.total.dtype,
            has_short_step=is_shared or dims.divisibility(product.k) % gemv.step_of(a.dtype) != 0,
            weights=kernel.weights,
            batch=kernel.outer if is_batch else None,
            twin=twin,
        )
        blocks = builder.size(dims.ceildiv(product.n, gemv.columns_of(len(product.rights))))
        grid = (blocks, *((builder.size(product.batch),) if is_batch else ()))
        function = with_weights(replace(function, params=kernel.scope.params), kernel.weights)
        return builder.launch(function, self.pointers(kernel), kernel.scope.arguments, grid, gemv.THREADS)

    def sum_splits(self, partial: Var) -> Launch:
        """The kernel that adds the partial sums of split-k, and its launch."""
        product, builder = self.product, self.builder
        kernel = ProductKernel(self.task, product, multiplies=False, finishes=True)
        scope = kernel.scope
        given = scope.pointer("partial", partial.dtype)
        c = kernel.result(product.result.dtype.nbytes)
        count = scope.size(self.splits, "splits")
        lanes = ALIGN // partial.dtype.nbytes if known_align(partial.dtype.nbytes, product.n) == ALIGN else 1
        is_batch = product.batch != 1
        threads = dims.ceildiv(product.m * product.n, lanes)
        function = split_k.split_k_sum_kernel(
            builder.name(),
            scope.params,
            build.binary("add", given, kernel.outer * (count * c.rows * c.columns)) if is_batch else given,
            count,
            c,
            lanes,
            word=word_for(threads),
            epilogue=kernel.finish(c, is_inside=True),
            weights=kernel.weights,
        )
        items = builder.size(dims.ceildiv(threads, split_k.THREADS))
        grid_vars = (*function.grid_vars, *((kernel.outer,) if is_batch else ()))
        function = with_weights(replace(function, params=scope.params, grid_vars=grid_vars), kernel.weights)
        pointers = [builder.pointers[operand] for operand in (*kernel.operands, self._output)]
        grid = (items, *((builder.size(product.batch),) if is_batch else ()))
        return builder.launch(function, [*pointers, partial], scope.arguments, grid, split_k.THREADS)

    def pointers(self, kernel: ProductKernel) -> list[Expr]:
        """What a kernel that multiplies reads, and where it writes."""
        output = self.builder.pointers[self._output] if self.partial is None else self.partial
        return [*(self.builder.pointers[operand] for operand in kernel.operands), output]


def has_whole_rows(operand: MatrixOperand | PatchOperand, align: int) -> bool:
    """Whether rows are whole parts of 16 bytes, if they start at multiples of `align`."""
    if not isinstance(operand, MatrixOperand) or align != ALIGN:
        return False
    return known_align(operand.tensor.type.dtype.nbytes, operand.columns) == ALIGN


def is_unaligned(product: Product) -> bool:
    """Whether rows of both operands are known to start at no multiples of more than an element."""
    return max(product.a.align, product.b.align) <= product.a.tensor.type.dtype.nbytes
