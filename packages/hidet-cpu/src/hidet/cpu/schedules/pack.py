"""Kernels that copy an operand into the order in which `gemm` reads it: packed panels, and contiguous rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hidet import dims
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.transpose_tile import square_function
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, Evaluate, For, If, Stmt, Store
from hidet.schedule.lowering import KernelScope

Axis = tuple[Dim, Dim]
"""An extent and a stride in elements."""

Order = Literal["steps", "taps", "columns", "any"]
"""What lies next to each other in the right operand of a product: steps of a tap, taps of all steps, or columns."""

# Elements that one work item copies, a few microseconds.
_ITEM_ELEMENTS = 16384


def decode(number: Expr, extents: Sequence[Expr | None]) -> list[Expr]:
    """Digits of `number` in `extents`, outermost first; the first extent bounds nothing and may be None."""
    digits: list[Expr] = []
    for position in range(len(extents) - 1, 0, -1):
        extent = extents[position]
        assert extent is not None
        digits.append(build.binary("rem", number, extent))
        number = build.binary("truncdiv", number, extent)
    return [number, *reversed(digits)] if extents else []


def launch_pack_panels(
    builder: ProgramBuilder,
    source: Var,
    target: Var,
    batch: Sequence[Axis],
    columns: Axis,
    taps: Sequence[Axis],
    run: Axis,
    lanes: int,
) -> None:
    """target[*batch][n // lanes][*taps][k][n % lanes] = source[*batch, n, *taps, k], zeros where n is no column.

    Axes are (extent, stride in the source). Elements are converted to the target's dtype.
    """
    scope = KernelScope()
    read, written = scope.pointer("source", source.dtype), scope.pointer("panels", target.dtype)
    problem, panel = build.size_var("problem"), build.size_var("panel")
    count, depth = parameter(scope, columns[0], "columns"), parameter(scope, run[0], "steps")
    tap_count = parameter(scope, dims.product([extent for extent, _ in taps]), "taps")
    column_stride, step_stride = scope.size(columns[1], "stride"), scope.size(run[1], "stride")
    panels = build.binary("truncdiv", count + (lanes - 1), build.index(lanes))
    tap, step, lane, rest = (build.size_var(name) for name in ("tap", "step", "lane", "rest"))
    here, start, first = build.size_var("here"), build.size_var("start"), build.size_var("first")
    element = build.cast(build.load(read, start + lane * column_stride + step * step_stride), target.dtype)
    row = first + step * lanes
    copied = For(lane, build.index(0), here, Store(written, (row + lane,), element), kind="vectorize")
    zero = build.const(0, target.dtype)
    padded = For(rest, here, build.index(lanes) - here, Store(written, (row + rest,), zero))
    begin = axes_offset(scope, problem, batch) + panel * (column_stride * lanes)
    copies: Stmt = For(step, build.index(0), depth, build.seq([copied, padded]))
    if run[1] == 1 and columns[1] != 1 and dims.prove_le(lanes, run[0]) is not False:
        square = square_function(lanes, source.dtype, target.dtype)
        builder.add((square,))
        # The last square is moved back to end with the panel.
        at = build.minimum(step, depth - lanes)
        there = build.address(written, first + at * lanes)
        arguments = (build.address(read, start + at), column_stride, there, build.index(lanes))
        turn = Evaluate(build.call(square.name, *arguments, type=build.INDEX))
        squares = For(step, build.index(0), depth, turn, step=lanes)
        copies = If(build.logical_and(build.equal(here, lanes), depth >= lanes), squares, copies)
    one_tap: list[Stmt] = [
        Declare(start, begin + axes_offset(scope, tap, taps)),
        Declare(first, ((problem * panels + panel) * tap_count + tap) * (depth * lanes)),
        copies,
    ]
    body: list[Stmt] = [
        Declare(here, build.minimum(build.index(lanes), count - panel * lanes)),
        For(tap, build.index(0), tap_count, build.seq(one_tap)),
    ]
    function = Function("pack", scope.params, build.seq(body), kind="kernel", grid_vars=(problem, panel))
    grid = (dims.product([extent for extent, _ in batch]), dims.ceildiv(columns[0], lanes))
    elements = dims.product([extent for extent, _ in taps]) * run[0] * lanes
    builder.launch(function, (source, target), scope, grid, dims.maximum(1, elements))


def launch_copy_rows(builder: ProgramBuilder, source: Var, target: Var, rows: Sequence[Axis], steps: Axis) -> None:
    """target[*rows][k] = source[*rows, k], converted to the target's dtype; extents and strides as above."""
    scope = KernelScope()
    read, written = scope.pointer("source", source.dtype), scope.pointer("rows", target.dtype)
    item = build.size_var("item")
    count = dims.product([extent for extent, _ in rows])
    all_rows, depth = parameter(scope, count, "rows"), parameter(scope, steps[0], "steps")
    stride = scope.size(steps[1], "stride")
    block = dims.maximum(1, dims.floordiv(_ITEM_ELEMENTS, dims.maximum(1, steps[0])))
    block_rows = parameter(scope, block, "block")
    row, step = build.size_var("row"), build.size_var("step")
    start = Var("start", build.INDEX)
    element = build.cast(build.load(read, start + step * stride), target.dtype)
    inner = For(step, build.index(0), depth, Store(written, (row * depth + step,), element), kind="vectorize")
    body = For(
        row,
        item * block_rows,
        build.minimum(block_rows, all_rows - item * block_rows),
        build.seq([Declare(start, axes_offset(scope, row, rows)), inner]),
    )
    function = Function("copy_rows", scope.params, body, kind="kernel", grid_vars=(item,))
    builder.launch(function, (source, target), scope, (dims.ceildiv(count, block),), _ITEM_ELEMENTS // 4)


def axes_offset(scope: KernelScope, number: Expr, axes: Sequence[Axis]) -> Expr:
    """Offset of element `number`, counted through `axes` (extent, stride)."""
    extents = [scope.size(extent, "extent") if position else None for position, (extent, _) in enumerate(axes)]
    strides = [scope.size(stride, "stride") for _, stride in axes]
    return build.flatten(decode(number, extents), strides)
