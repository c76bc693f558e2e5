"""Kernels that copy an operand into the order in which `gemm` reads it: packed panels, and contiguous rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

from hidet import dims
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.transpose_tile import square_function
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
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
    begin = axes_offset(scope, problem, batch) + panel * (column_stride * lanes)
    k, step = IRBuilder(), build.size_var("step")
    here = k.let("here", build.minimum(build.index(lanes), count - panel * lanes))
    with k.for_range("tap", tap_count) as tap, ExitStack() as otherwise:
        start = k.let("start", begin + axes_offset(scope, tap, taps))
        first = k.let("first", ((problem * panels + panel) * tap_count + tap) * (depth * lanes))
        if run[1] == 1 and columns[1] != 1 and dims.prove_le(lanes, run[0]) is not False:
            square = square_function(lanes, source.dtype, target.dtype)
            builder.add((square,))
            is_whole = build.logical_and(build.equal(here, lanes), depth >= lanes)
            with k.if_(is_whole), k.loop(step, depth, step=lanes):
                # The last square is moved back to end with the panel.
                at = build.minimum(step, depth - lanes)
                there = build.address(written, first + at * lanes)
                arguments = (build.address(read, start + at), column_stride, there, build.index(lanes))
                k.run(build.call(square.name, *arguments, type=build.INDEX))
            otherwise.enter_context(k.else_())
        with k.loop(step, depth):
            row = first + step * lanes
            with k.for_range("lane", here, kind="vectorize") as lane:
                element = build.load(read, start + lane * column_stride + step * step_stride)
                k.store(written, row + lane, build.cast(element, target.dtype))
            with k.for_range("rest", build.index(lanes) - here, start=here) as rest:
                k.store(written, row + rest, build.const(0, target.dtype))
    function = Function("pack", scope.params, k.body, kind="kernel", grid_vars=(problem, panel))
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
    begin = item * block_rows
    k = IRBuilder()
    with k.for_range("row", build.minimum(block_rows, all_rows - begin), start=begin) as row:
        start = k.let("start", axes_offset(scope, row, rows))
        with k.for_range("step", depth, kind="vectorize") as step:
            k.store(written, row * depth + step, build.cast(build.load(read, start + step * stride), target.dtype))
    function = Function("copy_rows", scope.params, k.body, kind="kernel", grid_vars=(item,))
    builder.launch(function, (source, target), scope, (dims.ceildiv(count, block),), _ITEM_ELEMENTS // 4)


def axes_offset(scope: KernelScope, number: Expr, axes: Sequence[Axis]) -> Expr:
    """Offset of element `number`, counted through `axes` (extent, stride)."""
    extents = [scope.size(extent, "extent") if position else None for position, (extent, _) in enumerate(axes)]
    strides = [scope.size(stride, "stride") for _, stride in axes]
    return build.flatten(decode(number, extents), strides)
