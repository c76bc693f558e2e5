"""The product of two matrices, with operators fused before and after it.

A block computes one tile of the result, or its sum over a part of k. Its operands come through a ring of shared tiles;
what follows the product is mapped over the result in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.tile.kernel import WARP, TileKernel
from hidet.gpu.tile.statements import Load, TileStmt, fetch, fill, load, map, mma, ring, store
from hidet.gpu.tile.tensors import GTensor, RTile, Source, STile
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var

# Elements of the result a thread up to which there are registers for epilogue operands, and in blocks of at least
# _MANY_WARPS, which share a multiprocessor with few others, for rows.
_OPERAND_ELEMENTS, _OPERAND_ROW_ELEMENTS, _MANY_WARPS = 48, 128, 8


@dataclass(frozen=True, slots=True)
class StepScales:
    """What products of a step along k are multiplied with: of_row(number of the step, row) times of_columns(number of
    the step, first column of a tile). Numbers and rows may lie behind the last ones."""

    of_row: Callable[[Expr, Expr], Expr]
    of_columns: Callable[[Expr, Expr], Expr]


@dataclass(frozen=True, slots=True)
class MatmulTiles:
    """How much a block computes: [m, n] of the result in steps of k, `stages` of them in shared memory, by
    warps[0] x warps[1] warps. is_transposed: whether columns of the result are the rows of what matrix units multiply,
    which few rows, or any number of them, fill better."""

    m: int = 128
    n: int = 128
    k: int = 32
    stages: int = 3
    warps: tuple[int, int] = (2, 2)
    is_transposed: bool = False

    def __str__(self) -> str:
        shape = f"{self.m}x{self.n}x{self.k}{' transposed' if self.is_transposed else ''}"
        return f"{shape} in {self.stages} stages by {self.warps[0]}x{self.warps[1]} warps"

    @property
    def upright(self) -> MatmulTiles:
        """The tiles, or those of the transposed product, as matrix units see them."""
        if not self.is_transposed:
            return self
        return MatmulTiles(self.n, self.m, self.k, self.stages, self.warps[::-1])

    @property
    def per_thread(self) -> int:
        """Elements of the result that a thread has."""
        return self.m * self.n // (WARP * self.warps[0] * self.warps[1])

    def leaves_registers(self, operand: RTile) -> bool:
        """Whether threads have registers for a tile of an epilogue operand during the products."""
        upright, has_many = operand.upright, self.warps[0] * self.warps[1] >= _MANY_WARPS
        if upright.columns == 1:
            return True
        if upright.rows == 1:
            return self.per_thread <= (_OPERAND_ROW_ELEMENTS if has_many else _OPERAND_ELEMENTS)
        return not self.is_transposed and self.per_thread <= _OPERAND_ELEMENTS


def matmul_kernel(
    name: str,
    params: tuple[Var, ...],
    a: Source,
    b: Source,
    c: GTensor,
    tiles: MatmulTiles,
    *,
    twin: Source | None = None,
    a_is_transposed: bool = False,
    b_is_transposed: bool = False,
    epilogue: Callable[..., Expr] | None = None,
    epilogue_operands: Sequence[GTensor] = (),
    accumulator: DType = dtypes.f32,
    factors: DType | None = None,
    batch: tuple[Var, Expr] | None = None,
    steps: tuple[Expr, Expr] | None = None,
    is_promoted: bool = False,
    step_scales: StepScales | None = None,
) -> TileKernel:
    """c = epilogue(a b). a is [m, k], or [k, m] transposed; b [k, n], or [n, k] transposed.

    twin: a matrix like b, whose product with a the epilogue gets as well, behind the first one; None for none.
    epilogue(value, row, column, *others) gives an element of c from the sum, of type `accumulator`, its place, and the
    elements there of the matrices `epilogue_operands`; None converts. Those are like c, or a row for all where their
    row stride is the constant 0, and a column for all where they have 1. They are fetched before the products where
    there are registers, else a part at a time.
    batch: a third index of blocks, which the matrices' pointers may mention, and its extent. The grid has ceil(n /
    tiles.n) x ceil(m / tiles.m) tiles for each.

    factors: the type in which elements are multiplied; None is that of the matrices, tf32 for those of f32.

    steps: (first, number of) steps of tiles.k along k whose products are summed, i64; None sums all. is_promoted: the
    products of each step are summed apart, and then added to the others without matrix units, times `step_scales`.
    """
    block_column, block_row = build.size_var("block_column"), build.size_var("block_row")
    row, column = build.size_var("first_row"), build.size_var("first_column")
    tile_a = _tile("tile_a", factors or a.dtype, tiles.m, tiles.k, a_is_transposed)
    rights = (b,) if twin is None else (b, twin)
    tiles_b = [
        _tile(name, factors or right.dtype, tiles.k, tiles.n, b_is_transposed)
        for name, right in zip(("tile_b", "tile_twin"), rights, strict=False)
    ]
    total = RTile("total", accumulator, tiles.m, tiles.n, tiles.is_transposed)
    totals = [total] if twin is None else [total, replace(total, name="total_twin")]
    part = RTile("part", accumulator, tiles.m, tiles.n, tiles.is_transposed) if is_promoted else total
    # Of the products of a step; and those of the next one, on their way while it is multiplied.
    scale = RTile("scale", accumulator, tiles.m, 1, tiles.is_transposed)
    coming = replace(scale, name="scale_of_row"), RTile("scale_of_columns", accumulator, 1, 1, tiles.is_transposed)
    result = RTile("result", c.dtype, tiles.m, tiles.n, tiles.is_transposed)
    depth = a.rows if a_is_transposed else a.columns
    first, count = steps or (build.index(0), (depth + (tiles.k - 1)) // tiles.k)

    def loads(step: Expr) -> list[Load]:
        at = (first + step) * tiles.k
        return [
            load(tile_a, a, *((at, row) if a_is_transposed else (row, at))),
            *[
                load(tile, right, *((column, at) if b_is_transposed else (at, column)))
                for tile, right in zip(tiles_b, rights, strict=True)
            ],
        ]

    def multiplied(step: Expr) -> list[TileStmt]:
        product, *others = [
            mma(sums, tile_a, tile_b, a_is_transposed=a_is_transposed, b_is_transposed=b_is_transposed)
            for sums, tile_b in zip((part, *totals[1:]), tiles_b, strict=True)
        ]
        if part is total:
            return [product, *others]
        if step_scales is None:
            return [fill(part, 0), product, map(total, [total, part], lambda sum_, new, row, column: sum_ + new)]
        return [
            map(scale, [*coming], lambda of_row, of_columns, row, column: of_row * of_columns),
            *asked(first + step + 1),
            fill(part, 0),
            product,
            map(total, [total, part, scale], lambda sum_, new, factor, row, column: sum_ + new * factor),
        ]

    def asked(step: Expr) -> list[TileStmt]:
        """Read the scales of a step."""
        if step_scales is None:
            return []
        of_row, of_columns = step_scales.of_row, step_scales.of_columns
        return [
            map(coming[0], [], lambda inner, _: of_row(step, row + inner)),
            map(coming[1], [], lambda *_: of_columns(step, column)),
        ]

    others = [
        RTile(
            f"epilogue_operand{number}",
            source.dtype,
            1 if _is_const(source.row_stride, 0) else tiles.m,
            1 if _is_const(source.columns, 1) else tiles.n,
            tiles.is_transposed,
        )
        for number, source in enumerate(epilogue_operands)
    ]
    origin = block_row * tiles.m, block_column * tiles.n
    fetches = [
        fetch(tile, source, origin[0], origin[1] if tile.columns > 1 else 0)
        for tile, source in zip(others, epilogue_operands, strict=True)
    ]
    # They arrive during the products, unless what a matrix brings has to wait.
    early, late = (fetches, []) if all(tiles.leaves_registers(tile) for tile in others) else ([], fetches)

    def finish(value: Expr, *rest: Expr) -> Expr:
        if epilogue is None:
            return build.cast(value, c.dtype)
        *elements, inner_row, inner_column = rest
        sums = (value, *elements[: len(totals) - 1])
        return epilogue(*sums, row + inner_row, column + inner_column, *elements[len(totals) - 1 :])

    grid = ((c.columns + (tiles.n - 1)) // tiles.n, (c.rows + (tiles.m - 1)) // tiles.m)
    return TileKernel(
        name,
        params,
        (block_column, block_row, *(() if batch is None else batch[:1])),
        tiles.warps,
        (
            *[fill(sums, 0) for sums in totals],
            *early,
            *asked(first),
            ring(count, tiles.stages, loads, multiplied),
            *late,
            map(result, [*totals, *others], finish),
            store(c, result, *origin),
        ),
        ((row, block_row * tiles.m), (column, block_column * tiles.n)),
        (*grid, *(() if batch is None else batch[1:])),
    )


def _tile(name: str, dtype: DType, rows: int, columns: int, transposed: bool) -> STile:
    return STile(name, dtype, *((columns, rows) if transposed else (rows, columns)))


def _is_const(size: Expr, value: int) -> bool:
    """Whether a size is known to be so much."""
    return isinstance(size, Const) and size.value == value
