"""Register tiles: a few rows by a few vectors of accumulators, and the loop that multiplies into them.

Rows are given by addresses in a table, so that they may lie anywhere: rows of a matrix, pixels under one tap of a
convolution, a row of zeros for padding (the indirection buffer of Dukhan, "The Indirect Convolution Algorithm", 2019).
Columns come from packed panels (see `hidet.cpu.ops`). A step loads one element a row and one vector a column group:

    acc[i][j] += broadcast(row[i][k]) * panel[j][k]         24 multiply-adds for 10 loads in a 6 x 4 tile
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.common_intrinsics import PREFETCH, fma
from hidet.ir.expr import Bitcast, Const, Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Return, Stmt, Store
from hidet.ir.types import PointerType, VectorType
from hidet.schedule.shared_functions import share_functions

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


def tile_shape(target: CpuTarget, dtype: DType) -> TileShape:
    """The tile for accumulators of `dtype`: 24 accumulators of 32 registers, or 12 of 16; the rest holds factors.

    Six rows leave enough of x86's 16 general registers for the addresses of rows and panels.
    """
    lanes = max(1, target.vector_bits // dtype.bits)
    vectors = 4 if target.cpu.vector_registers >= 32 else 2
    return TileShape(TILE_ROWS, vectors, lanes, dtype, target.cpu.has("avx512bw"))


@dataclass(frozen=True, slots=True, eq=False)
class TileArguments:
    """What a tile function is called with, in order; also its parameters.

    table, table_stride: row addresses, entry tap * table_stride + i for row i; from the first tap to do.
    taps, first_step, steps: the part of the sum to add: `taps` taps, of each `steps` steps from `first_step`.
    step: distance in elements between steps in a row.
    panel, panel_stride: packed vectors of the first tap, elements between vectors of the same step.
    run: steps between taps in the panel.
    ahead, ahead_step: what to fetch into the cache meanwhile, and how far that moves on at each step.
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
    buffer: Expr
    continued: Expr

    def listed(self) -> tuple[Expr, ...]:
        """All of them in order."""
        return tuple(getattr(self, field.name) for field in fields(self))


TileBody = Callable[[int, int], Stmt]


def choose_tile(shape: TileShape, rows: Expr, vectors: Expr, counts: Sequence[int], body: TileBody) -> Stmt:
    """`body(rows, vectors)` for the smallest tile that covers the `rows` that are left and exactly the `vectors`.

    counts: what `vectors` may be.
    """
    heights = (shape.rows, *EDGE_ROWS)

    def by_rows(count: int) -> Stmt:
        stmt = body(heights[-1], count)
        for taller, shorter in reversed(list(pairwise(heights))):
            stmt = If(rows > shorter, body(taller, count), stmt)
        return stmt

    stmt = by_rows(counts[0])
    for count in counts[1:]:
        stmt = If(build.equal(vectors, count), by_rows(count), stmt)
    return stmt


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
        buffer=Var("buffer", PointerType(shape.dtype, "local")),
        continued=Var("continued", dtypes.boolean),
    )
    stride = arguments.step if known_step is None else build.index(known_step)
    body = build.seq([*_multiply(shape, rows, vectors, element, stride, unroll, arguments), Return(build.index(0))])
    parameters = tuple(v for v in arguments.listed() if isinstance(v, Var))
    # Inlined, the loops of a dozen tiles would be optimised as one, in more than linear time.
    return Function(
        f"tile_{rows}x{vectors}",
        parameters,
        body,
        "device",
        result=index,
        attributes=APART,
    )


def _multiply(
    shape: TileShape, rows: int, vectors: int, element: DType, stride: Expr, unroll: int, arguments: TileArguments
) -> list[Stmt]:
    accumulators = [[Var(f"acc{i}_{j}", shape.vector) for j in range(vectors)] for i in range(rows)]
    places = [[build.index(i * shape.columns + j * shape.lanes) for j in range(vectors)] for i in range(rows)]
    zero = build.broadcast(build.const(0, shape.dtype), shape.lanes)
    flat = [(acc, place) for i in range(rows) for acc, place in zip(accumulators[i], places[i], strict=True)]
    earlier = [Assign(acc, acc + build.load(arguments.buffer, place, lanes=shape.lanes)) for acc, place in flat]
    stmts: list[Stmt] = [Declare(acc, zero) for acc, _ in flat]

    tap, step = build.size_var("tap"), build.size_var("step")
    pointers = [Var(f"row{i}", PointerType(element)) for i in range(rows)]
    panel, ahead = Var("panel_tap", arguments.panel.type), Var("ahead_tap", arguments.ahead.type)
    taps: list[Stmt] = [
        Declare(pointer, Bitcast(build.load(arguments.table, tap * arguments.table_stride + i), pointer.type))
        for i, pointer in enumerate(pointers)
    ]
    taps.append(Declare(panel, arguments.panel + tap * arguments.run * shape.lanes))
    taps.append(Declare(ahead, arguments.ahead + tap * arguments.run * arguments.ahead_step))
    steps: list[Stmt] = []
    for unrolled in range(unroll):
        k = step + unrolled
        steps.append(Evaluate(call_intrinsic(PREFETCH, ahead + k * arguments.ahead_step)))
        steps += _multiply_step(shape, accumulators, pointers, stride, panel, arguments.panel_stride, k)
    taps.append(For(step, arguments.first_step, arguments.steps, build.seq(steps), step=unroll))
    stmts.append(For(tap, build.index(0), arguments.taps, build.seq(taps)))
    stmts.append(If(arguments.continued, build.seq(earlier)))
    return [*stmts, *(Store(arguments.buffer, (place,), acc) for acc, place in flat)]


def _multiply_step(
    shape: TileShape,
    accumulators: list[list[Var]],
    pointers: list[Var],
    stride: Expr,
    panel: Expr,
    panel_stride: Expr,
    k: Expr,
) -> list[Stmt]:
    stmts: list[Stmt] = []
    columns = [Var(f"b{j}", shape.vector) for j in range(len(accumulators[0]))]
    for j, column in enumerate(columns):
        stmts.append(Declare(column, build.load(panel, k * shape.lanes + panel_stride * j, lanes=shape.lanes)))
    for row, pointer in zip(accumulators, pointers, strict=True):
        factor = Var("a", shape.vector)
        element = build.cast(build.load(pointer, k * stride), shape.dtype)
        stmts.append(Declare(factor, build.broadcast(element, shape.lanes)))
        stmts += [Assign(acc, multiply_add(factor, column, acc)) for acc, column in zip(row, columns, strict=True)]
    return stmts


def multiply_add(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c, rounded once where the type is floating."""
    return fma(a, b, c) if c.dtype.is_float else a * b + c
