"""Kernels of a product whose sizes only a call tells: a few tilings, of which host code takes the fastest by the
model of `hidet.cuda.schedules.tiling`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hidet import dims
from hidet.cuda.schedules.product_launch import MatrixUnitLaunches
from hidet.cuda.schedules.product_tiles import GEMV_MAX_ROWS, GEMV_TILES, for_product, is_gemv
from hidet.cuda.schedules.tiling import (
    GROUP_TILES,
    NARROW_TILES,
    TILES,
    TRANSPOSED_TILES,
    UNALIGNED_TILES,
    WARP_SPECIALIZED_TILES,
    cycles_of_call,
)
from hidet.dims import Dim
from hidet.errors import ShapeError
from hidet.gpu.schedules.matmul import epilogue_instructions, how_copied, scratch_of
from hidet.gpu.schedules.operands import CONVOLUTIONS
from hidet.gpu.schedules.product import Product
from hidet.gpu.schedules.product_launch import ProductLaunches
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.tiling import FILL, SPLIT_K, CallExtents, Tiling
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Declare, If, Stmt
from hidet.schedule.task import Task
from hidet.target import GpuTarget

# Per table the few tilings of which, by the model, one is hardly slower than the best of all for layers of models with
# any number of rows: 0.6 % slower on average, 11 % at most. They are the same for all products, so that these share
# programs.
_SPECIALIZED = (
    *[Tiling(WARP_SPECIALIZED_TILES[number], 1, True) for number in (0, 1, 2, 4, 7, 6, 9, 10, 11, 14, 18)],
    *[Tiling(TRANSPOSED_TILES[number], 1, True) for number in (2, 16, 19, 21)],
    Tiling(WARP_SPECIALIZED_TILES[17], FILL, True),
    *[Tiling(TRANSPOSED_TILES[number], FILL, True) for number in (2, 15, 22)],
)
_NARROW = (*[Tiling(tiles, 1, True) for tiles in NARROW_TILES], Tiling(NARROW_TILES[3], FILL, True))
_GROUPS = (
    *[Tiling(GROUP_TILES[number]) for number in (0, 1, 3)],
    Tiling(TILES[7]),
    *[Tiling(GROUP_TILES[number], FILL) for number in (0, 2, 3)],
)
_PLAIN = (*[Tiling(TILES[number]) for number in (0, 2, 6)], Tiling(TILES[2], FILL))
_UNALIGNED = (*map(Tiling, UNALIGNED_TILES[:2]), Tiling(UNALIGNED_TILES[2], FILL))
_TABLES = (_SPECIALIZED, _NARROW, _GROUPS, _PLAIN, _UNALIGNED)
# Of two right matrices, whose sums are not split, and of which threads have registers for fewer rows.
_SPECIALIZED_OF_TWO = (
    *[Tiling(WARP_SPECIALIZED_TILES[number], 1, True) for number in (1, 2, 4, 6)],
    *[Tiling(TRANSPOSED_TILES[number], 1, True) for number in (2, 5, 9, 11, 13, 14)],
)
_TABLES_OF_TWO = (_SPECIALIZED_OF_TWO, tuple(Tiling(TILES[number]) for number in (2, 4, 7)))
_NEVER = 1 << 62
"""Cycles of what a call must not take."""


def has_symbols(product: Product) -> bool:
    """Whether some extent of a product is known at a call alone."""
    return any(not isinstance(extent, int) for extent in (product.batch, product.m, product.n, product.k))


def tilings_by_size(
    product: Product,
    choices: Sequence[MatmulTiles],
    target: GpuTarget,
    splits: Sequence[int] = SPLIT_K,
    *,
    is_of_images: bool = False,
) -> Tiling:
    """A tiling with others, so that one of them is close to the fastest one for any size.

    choices: tiles that suit the product's operands. splits: what split-k may be; all of `SPLIT_K` stand for as many as
    there are multiprocessors for. is_of_images: whether rows are pixels, which are many, or else sums are short:
    tilings for few rows would make programs larger, and different from each other.
    """
    most = dims.bounds(product.m)[1]
    of_kinds = _TABLES if product.twin is None else _TABLES_OF_TWO
    tables = ([replace(t, tiles=for_product(t.tiles, product)) for t in table] for table in of_kinds)
    table = max(tables, key=lambda table: sum(tiling.tiles in choices for tiling in table))
    found: list[Tiling] = []
    for tiling in table:
        own = tiling if tuple(splits) == SPLIT_K else replace(tiling, split_k=splits[0])
        is_far_larger = most is not None and own.tiles.m >= 2 * max(most, 32)
        count = _splits_of_call(product, own, target)
        is_for_few = is_of_images and own.split_k == FILL and own.tiles.is_transposed
        if own.tiles in choices and not is_far_larger and not is_for_few and count is not None:
            # Short sums, and those of many results, are never split.
            found.append(replace(own, split_k=1) if count == 1 else own)
    if all(tiling.split_k == FILL for tiling in found):
        # A call whose sum is too short to be split needs one as well.
        smallest = min((tiling for tiling in table if tiling.tiles in choices), key=lambda tiling: tiling.tiles.m)
        found.insert(0, replace(smallest, split_k=1))
    first, *others = dict.fromkeys(found)
    return replace(first, others=tuple(others))


def fastest_of_call(builder: ProgramBuilder, task: Task, product: Product, params: Tiling, target: GpuTarget) -> Stmt:
    """Launches of a product by each tiling of `params`, of which a call takes the fastest one by the model, and a GEMV
    for calls of few rows."""
    tilings = [replace(params, others=()), *params.others]
    batch, m, n, k = (builder.size(extent) for extent in (product.batch, product.m, product.n, product.k))
    nbytes, columns = product.a.tensor.type.dtype.nbytes, n * len(product.rights)
    extents = CallExtents(batch, m, columns, k, nbytes, epilogue_instructions(product), copied=how_copied(product))
    stmts: list[Stmt] = []
    times: list[Var] = []
    launches: list[Stmt] = []
    for number, tiling in enumerate(tilings):
        splits = _splits_of_call(product, tiling, target)
        assert splits is not None, "tilings whose splits are no size are not chosen"
        partial = scratch_of(builder, product, splits)
        made = ProductLaunches(builder, task, product, tiling, target, splits, partial)
        launch = MatrixUnitLaunches(made).multiply_usual()
        launches.append(launch if partial is None else build.seq([launch, made.sum_splits(partial)]))
        count = builder.size(splits) if tiling.is_split else build.index(1)
        time: Expr = cycles_of_call(extents, tiling, count, target)
        if tiling.split_k == FILL:
            time = build.select(count > 1, time, _NEVER)
        times.append(build.size_var(f"cycles{number}"))
        stmts.append(Declare(times[-1], time))
    fastest = launches[-1]
    for number in reversed(range(len(launches) - 1)):
        is_fastest = build.logical_and(*[times[number] <= other for other in times[number + 1 :]])
        fastest = If(is_fastest, launches[number], fastest)
    fastest = build.seq([*stmts, fastest])
    for rows in range(1, GEMV_MAX_ROWS + 1):
        few = replace(product, m=rows)
        # Images are not of one pixel.
        if task.op_name not in CONVOLUTIONS and dims.prove_equal(product.m, rows) is not False and is_gemv(few):
            made = ProductLaunches(builder, task, few, Tiling(GEMV_TILES), target, 1, None)
            fastest = If(build.equal(m, rows), MatrixUnitLaunches(made).multiply_usual(), fastest)
    any_call = MatrixUnitLaunches(ProductLaunches(builder, task, product, tilings[0], target, 1, None))
    condition = any_call.is_usual()
    return fastest if condition is None else If(condition, fastest, any_call.multiply_any())


def _splits_of_call(product: Product, tiling: Tiling, target: GpuTarget) -> Dim | None:
    """How many splits of k a tiling has; for `FILL` as a size, None where that is no expression of bounded length."""
    if tiling.split_k != FILL:
        return tiling.split_k
    tiles = tiling.tiles
    try:
        blocks = product.batch * dims.ceildiv(product.m, tiles.m) * dims.ceildiv(product.n, tiles.n)
        room = dims.floordiv(target.multiprocessors, dims.maximum(blocks, 1))
        longest = dims.floordiv(dims.ceildiv(product.k, tiles.k), 2)
        return dims.maximum(dims.minimum(dims.minimum(room, longest), SPLIT_K[-1]), 1)
    except ShapeError:
        return None
