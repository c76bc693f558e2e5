"""Register tiles: a few rows by a few vectors of accumulators, and the loop that multiplies into them.

Rows are given by addresses in a table, so that they may lie anywhere: rows of a matrix, pixels under one tap of a
convolution, a row of zeros for padding (the indirection buffer of Dukhan, "The Indirect Convolution Algorithm", 2019).
Columns come from packed panels (see `hidet.cpu.ops`). A step loads one element a row and one vector a column group:

    acc[i][j] += broadcast(row[i][k]) * panel[j][k]         24 multiply-adds for 10 loads in a 6 x 4 tile
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.common_intrinsics import PREFETCH, fma
from hidet.ir.expr import Bitcast, Const, Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.types import PointerType, VectorType
from hidet.schedule.shared_functions import share_functions
from hidet.schedule.space import Knob

if TYPE_CHECKING:
    from hidet.cpu.target import CpuTarget

TILE_ROWS = 6
# Fewer rows at the lower edge: 4 or 5 rows take the full tile, whose surplus rows repeat the last one.
EDGE_ROWS = (3, 1)


@dataclass(frozen=True, slots=True)
class TileShape:
    """A register tile: `rows` x `vectors` vectors of `lanes` elements of the accumulator type.

    has_masks: whether part of a vector is read and written as fast as a whole one.
    """

    rows: int
    vectors: int
    lanes: int
    dtype: DType
    has_masks: bool = False

    @property
    def columns(self) -> int:
        """Columns of a whole tile."""
        return self.vectors * self.lanes

    @property
    def vector(self) -> VectorType:
        """One accumulator."""
        return VectorType(self.dtype, self.lanes)


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Rows, and vectors of columns, whose sums are in registers."""

    rows: int
    vectors: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors} vectors"

    @property
    def registers(self) -> int:
        """Vector registers: sums, a vector of columns each, and an element of a row."""
        return self.rows * self.vectors + self.vectors + 1


def register_tile(target: CpuTarget) -> RegisterTile:
    """24 sums of 32 registers, or 12 of 16; the rest holds factors.

    Six rows leave enough of x86's 16 general registers for the addresses of rows and panels.
    """
    return RegisterTile(TILE_ROWS, 4 if target.cpu.vector_registers >= 32 else 2)


def tile_knob(target: CpuTarget) -> Knob:
    """Tiles of sums that vector registers hold."""
    fitting = [tile for tile in _TILES if tile.registers <= target.cpu.vector_registers]
    tiles = tuple(dict.fromkeys([register_tile(target), *fitting]))
    return Knob("tile", tiles, f"rows x vectors of sums in {target.cpu.vector_registers} registers")


def tile_shape(target: CpuTarget, dtype: DType, tile: RegisterTile | None = None) -> TileShape:
    """The shape of a tile for accumulators of `dtype`; None is `register_tile`."""
    tile = register_tile(target) if tile is None else tile
    lanes = max(1, target.vector_bits // dtype.bits)
    return TileShape(tile.rows, tile.vectors, lanes, dtype, target.cpu.has("avx512bw"))


_AHEAD_BITS = 16
AHEAD_STEPS = 1 << _AHEAD_BITS
"""Steps in which a tile moves on by `ahead_rate` times what it fetches at once: a rate below one is a fraction."""


@dataclass(frozen=True, slots=True, eq=False)
class TileArguments:
    """What a tile function is called with, in order; also its parameters.

    table, table_stride: row addresses, entry tap * table_stride + i for row i; from the first tap to do.
    taps, first_step, steps: the part of the sum to add: `taps` taps, of each `steps` steps from `first_step`.
    step: distance in elements between steps in a row.
    panel, panel_stride: packed vectors of the first tap, elements between vectors of the same step.
    run: steps between taps in the panel.
    ahead, ahead_step, ahead_rate: what to fetch into the cache meanwhile, and how far that moves on: `ahead_step`
        elements, `ahead_rate` times in AHEAD_STEPS steps, of which it is no more than that.
    buffer: accumulators of the tile, row after row.
    continued: whether the buffer holds an earlier part of the sum, to be added to.
    """

    table: Expr
    table_stride: Expr
    taps: Expr
    first_step: Expr
    steps: Expr
    step: Expr
    panel: Expr
    panel_stride: Expr
    run: Expr
    ahead: Expr
    ahead_step: Expr
    ahead_rate: Expr
    buffer: Expr
    continued: Expr

    def listed(self) -> tuple[Expr, ...]:
        """All of them in order."""
        return tuple(getattr(self, field.name) for field in fields(self))


_TILES = (RegisterTile(4, 3), RegisterTile(12, 1), RegisterTile(8, 3), RegisterTile(12, 2), RegisterTile(4, 6))
"""Besides the usual one; of more rows than `EDGE_ROWS`."""

TileBody = Callable[[int, int], None]


def choose_tile(
    k: IRBuilder, shape: TileShape, rows: Expr, vectors: Expr, counts: Sequence[int], body: TileBody
) -> None:
    """`body(rows, vectors)` for the smallest tile that covers the `rows` that are left and exactly the `vectors`.

    counts: what `vectors` may be.
    """
    heights = (shape.rows, *EDGE_ROWS)

    def by_rows(count: int) -> None:
        with ExitStack() as fewer:
            for taller, shorter in pairwise(heights):
                with k.if_(rows > shorter):
                    body(taller, count)
                fewer.enter_context(k.else_())
            body(heights[-1], count)

    first, *others = counts
    with ExitStack() as fewer:
        for count in reversed(others):
            with k.if_(build.equal(vectors, count)):
                by_rows(count)
            fewer.enter_context(k.else_())
        by_rows(first)


def tile_functions(
    shape: TileShape,
    element: DType,
    step: Expr,
    unroll: int,
    counts: Sequence[int],
    panel: PointerType,
    ahead: PointerType,
) -> dict[tuple[int, int], Function]:
    """A function for every tile of `counts` vectors; see `TileArguments`.

    element: dtype of the rows. step: 1 where that is known. unroll: steps that a whole tile does at once; `steps` is a
    multiple of it. panel, ahead: types of the pointers to packed vectors and to what is fetched.
    """
    known_step = step.value if isinstance(step, Const) and isinstance(step.value, int) else None
    groups = {
        count: _tile_group(shape, count, element, known_step, unroll if count == shape.vectors else 1, panel, ahead)
        for count in counts
    }
    return {
        (rows, count): function
        for count, group in groups.items()
        for rows, function in zip((shape.rows, *EDGE_ROWS), group, strict=True)
    }


@functools.cache
def _tile_group(
    shape: TileShape,
    vectors: int,
    element: DType,
    known_step: int | None,
    unroll: int,
    panel: PointerType,
    ahead: PointerType,
) -> tuple[Function, ...]:
    """The functions for tiles of so many vectors, highest first; `unroll` is for the whole tile."""
    heights = (shape.rows, *EDGE_ROWS)
    return share_functions(
        [
            _tile_function(shape, rows, vectors, element, known_step, unroll if rows == shape.rows else 1, panel, ahead)
            for rows in heights
        ]
    )


def _tile_function(
    shape: TileShape,
    rows: int,
    vectors: int,
    element: DType,
    known_step: int | None,
    unroll: int,
    panel: PointerType,
    ahead: PointerType,
) -> Function:
    index = build.INDEX
    arguments = TileArguments(
        table=Var("table", PointerType(index, "local")),
        table_stride=Var("table_stride", index),
        taps=Var("taps", index),
        first_step=Var("first_step", index),
        steps=Var("steps", index),
        step=Var("stride", index),
        panel=Var("panel", panel),
        panel_stride=Var("panel_stride", index),
        run=Var("run", index),
        ahead=Var("ahead", ahead),
        ahead_step=Var("ahead_step", index),
        ahead_rate=Var("ahead_rate", index),
        buffer=Var("buffer", PointerType(shape.dtype, "local")),
        continued=Var("continued", dtypes.boolean),
    )
    stride = arguments.step if known_step is None else build.index(known_step)
    k = IRBuilder()
    _multiply(k, shape, rows, vectors, element, stride, unroll, arguments)
    k.return_(build.index(0))
    parameters = tuple(v for v in arguments.listed() if isinstance(v, Var))
    # Inlined, the loops of a dozen tiles would be optimised as one, in more than linear time.
    return Function(f"tile_{rows}x{vectors}", parameters, k.body, "device", result=index, attributes=APART)


def _multiply(
    k: IRBuilder,
    shape: TileShape,
    rows: int,
    vectors: int,
    element: DType,
    stride: Expr,
    unroll: int,
    arguments: TileArguments,
) -> None:
    zero = build.broadcast(build.const(0, shape.dtype), shape.lanes)
    accumulators = [k.let_each(f"acc{i}_", [zero] * vectors) for i in range(rows)]
    with k.for_range("tap", arguments.taps) as tap:
        entries = [build.load(arguments.table, tap * arguments.table_stride + i) for i in range(rows)]
        pointers = k.let_each("row", (Bitcast(entry, PointerType(element)) for entry in entries))
        panel = k.let("panel_tap", arguments.panel + tap * arguments.run * shape.lanes)
        done = k.let("done", tap * arguments.run - arguments.first_step)
        with k.for_range("step", arguments.steps, arguments.first_step, unroll) as step:
            for unrolled in range(unroll):
                at = step + unrolled
                times = build.binary("shr", (done + at) * arguments.ahead_rate, build.index(_AHEAD_BITS))
                k.run(call_intrinsic(PREFETCH, arguments.ahead + times * arguments.ahead_step))
                _multiply_step(k, shape, accumulators, pointers, stride, panel, arguments.panel_stride, at)
    places = [
        (acc, i * shape.columns + j * shape.lanes) for i, row in enumerate(accumulators) for j, acc in enumerate(row)
    ]
    with k.if_(arguments.continued):
        for acc, place in places:
            k.assign(acc, acc + build.load(arguments.buffer, place, lanes=shape.lanes))
    for acc, place in places:
        k.store(arguments.buffer, place, acc)


def _multiply_step(
    k: IRBuilder,
    shape: TileShape,
    accumulators: Sequence[Sequence[Var]],
    pointers: Sequence[Var],
    stride: Expr,
    panel: Expr,
    panel_stride: Expr,
    step: Expr,
) -> None:
    lanes = shape.lanes
    places = [step * lanes + panel_stride * j for j in range(len(accumulators[0]))]
    columns = k.let_each("b", (build.load(panel, place, lanes=lanes) for place in places))
    for row, pointer in zip(accumulators, pointers, strict=True):
        element = build.cast(build.load(pointer, step * stride), shape.dtype)
        factor = k.let("a", build.broadcast(element, lanes))
        k.assign_each(row, [multiply_add(factor, column, acc) for acc, column in zip(row, columns, strict=True)])


def multiply_add(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c, rounded once where the type is floating."""
    return fma(a, b, c) if c.dtype.is_float else a * b + c
