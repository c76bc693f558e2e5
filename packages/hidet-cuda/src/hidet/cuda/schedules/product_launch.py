"""The kernels of a matrix product on matrix units, and their launches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.schedules.product_tiles import GEMV_TILES, of_rights
from hidet.cuda.schedules.tiling import resident_blocks, saves_power, shares_copies, unaligned
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.pipeline import CLUSTER, can_share_copies, lower_pipeline
from hidet.cuda.tile.stages import MOVED_REGISTERS
from hidet.gpu.schedules.exchange import thread_in_block
from hidet.gpu.schedules.matmul import extents_of
from hidet.gpu.schedules.product import ALIGN, MatrixOperand, PatchOperand
from hidet.gpu.schedules.product_kernel import ProductKernel
from hidet.gpu.schedules.product_launch import Multiplication, Premises, ProductLaunches, is_unaligned
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.matmul import MatmulTiles, StepScales, matmul_kernel
from hidet.gpu.weights import with_weights
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.ir.func import Function
from hidet.ir.stmt import Evaluate, If, Launch, Stmt
from hidet.ir.types import element_dtype


@dataclass(frozen=True, slots=True, eq=False)
class MatrixUnitLaunches:
    """Makes the kernels of a product, and launches of them by the program's entry. launches: what they share with those
    without matrix units."""

    launches: ProductLaunches

    def multiply(self) -> Stmt:
        """The launch of one kernel for aligned tensors of a usual size, or of one for others."""
        fast, condition = self.multiply_usual(), self.is_usual()
        return fast if condition is None else If(condition, fast, self.multiply_any())

    def multiply_usual(self) -> Stmt:
        """The launch of a kernel for aligned tensors of a usual size."""
        tiles = self.launches.tiling.tiles
        if tiles == GEMV_TILES:
            return self.launches.multiply_gemv(self._usual)
        return self._multiply(tiles, self._usual, self.launches.tiling.is_warp_specialized)

    def is_usual(self) -> Expr | None:
        """Whether the kernel of `multiply_usual` may run; None where it always may."""
        launches, product = self.launches, self.launches.product
        known = launches.holds(self._usual)
        conditions = [] if known is None else [known]
        if launches.tiling.is_warp_specialized:
            # There is no tensor map of a matrix or an image without elements, which filters may see around it.
            images = [operand for operand in (product.a, product.b) if isinstance(operand, PatchOperand)]
            space = [axis.extent for image in images for axis in image.axes]
            mapped = [size for size in (product.k, *space) if not dims.prove_le(1, size)]
            conditions += [launches.builder.size(size) > 0 for size in mapped]
        return build.logical_and(*conditions) if conditions else None

    def multiply_any(self) -> Stmt:
        """The launch of a kernel for tensors that start anywhere and have any size."""
        launches, product, tiles = self.launches, self.launches.product, self.launches.tiling.tiles
        if not is_unaligned(product):
            tiles = of_rights(unaligned(tiles, product.a.tensor.type.dtype.nbytes), product)
        return self._multiply(tiles, launches.always(), False)

    @property
    def _usual(self) -> Premises:
        """What kernels for usual calls rely on."""
        product = self.launches.product
        return replace(Premises.least(product), is_small=True) if is_unaligned(product) else Premises.best(product)

    def _multiply(self, tiles: MatmulTiles, premises: Premises, is_warp_specialized: bool) -> Launch:
        """A kernel that multiplies tile by tile, and its launch."""
        launches, builder = self.launches, self.launches.builder
        name, kernel, shares = builder.name(), launches.kernel(), self._shares_copies(tiles)
        tiles = replace(tiles, n=tiles.n // len(launches.product.rights))
        what = launches.multiplication(kernel, tiles, premises, fetches=True)
        tiled = self._tile_kernel(name, what, tiles, kernel.step_scales(tiles.k))
        tiled = replace(tiled, params=kernel.scope.params)
        builder.record(tiled)
        if is_warp_specialized:
            return self._launch_warp_specialized(kernel, tiled, tiles, what, shares)
        function = lower_kernel(tiled, machine(launches.target.has), shifts_rows=True)
        return launches.launch_tiles(kernel, what, tiles, kernel.narrow(function), tiled.threads)

    def _shares_copies(self, tiles: MatmulTiles) -> bool:
        """Whether pairs of blocks of the warp-specialized kernel share copies."""
        product, extents = self.launches.product, extents_of(self.launches.product)
        # The thread that copies pixels has no registers for more.
        are_matrices = all(isinstance(operand, MatrixOperand) for operand in (product.a, product.b))
        has_rows = isinstance(product.m, int) and are_matrices
        return shares_copies(extents, tiles) or (has_rows and saves_power(extents, tiles))

    def _tile_kernel(
        self, name: str, what: Multiplication, tiles: MatmulTiles, scales: StepScales | None
    ) -> TileKernel:
        """The kernel for matrix units."""
        product = self.launches.product
        return matmul_kernel(
            name,
            (),
            what.a,
            what.b,
            what.c,
            tiles,
            twin=what.twin,
            a_is_transposed=product.a.is_transposed,
            b_is_transposed=product.b.is_transposed,
            epilogue=what.epilogue,
            accumulator=product.total.dtype,
            factors=product.factors,
            epilogue_operands=what.epilogue_operands,
            batch=what.batch,
            steps=what.steps,
            is_promoted=product.is_promoted,
            step_scales=scales,
        )

    def _with_prefetches(self, function: Function, kernel: ProductKernel, columns: Expr) -> Function:
        """A kernel whose first block brings the weights that all rows of the result read, as a bias, into the
        second-level cache: they are asked for when a tile is multiplied, and nothing is left to do meanwhile."""
        product, (block,) = self.launches.product, function.grid_vars
        vectors = () if is_unaligned(product) else kernel.repeated_weights
        if not vectors:
            return function
        prefetches = []
        for vector in vectors:
            size = build.cast(columns * element_dtype(vector.type).nbytes // ALIGN * ALIGN, dtypes.i32)
            prefetches.append(Evaluate(intrinsic_call("cuda.bulk_prefetch", vector, size)))
        is_first = build.logical_and(build.equal(block, 0), build.equal(thread_in_block(), 0), columns >= ALIGN)
        body = build.seq([If(is_first, build.seq(prefetches)), function.body])
        return with_weights(replace(function, body=body), vectors)

    def _launch_warp_specialized(
        self, kernel: ProductKernel, tiled: TileKernel, tiles: MatmulTiles, what: Multiplication, shares: bool
    ) -> Launch:
        """A persistent, warp-specialized kernel and its launch: as many blocks as the device holds at most. tiles: of
        each right matrix. shares: whether pairs of blocks share copies where they can."""
        product, builder = self.launches.product, self.launches.builder
        cluster = CLUSTER if shares and can_share_copies(tiled) else 1
        pipeline = lower_pipeline(tiled, self.launches.target, shares_copies=cluster > 1, weights=kernel.weights)
        function = kernel.narrow(self._with_prefetches(pipeline.function, kernel, what.c.columns))
        # Warps that move registers between each other have all of a multiprocessor.
        is_alone = MOVED_REGISTERS in function.attributes
        resident = 1 if is_alone else resident_blocks(pipeline.shared_bytes, pipeline.threads, self.launches.target)
        if resident > 1:
            # Else the assembler takes so many registers that fewer blocks fit, and the others start when those end.
            function = replace(function, attributes=(*function.attributes, ("min_blocks", resident)))
        count = dims.ceildiv(product.m, tiles.m * cluster) * dims.ceildiv(product.n, tiles.n) * what.outer
        most = self.launches.target.multiprocessors * resident // cluster
        grid = (build.minimum(builder.size(count), most) * cluster,)
        pointers, sizes = self.launches.pointers(kernel), kernel.scope.arguments
        maps = [described.argument for described in pipeline.maps]
        launch = builder.launch(function, pointers, sizes, grid, pipeline.threads, maps)
        return replace(launch, cluster=(build.index(cluster),)) if cluster > 1 else launch
