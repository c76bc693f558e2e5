"""Long rows of few results, folded by many blocks: parts of rows first, then what was made of the parts.

Both steps are row programs. Parts are folded in the order in which they lie in the row, so results are reproducible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cuda.schedules.row_layout import RowLayout
from hidet.dims import Dim
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.visit import substitute
from hidet.schedule.cost import extent_estimate
from hidet.schedule.rows import RowOutput, RowProgram

_BLOCKS = 4096
"""Blocks that keep the device busy: of 128 threads, some thirty for each of 132 multiprocessors."""
_LEAST = 2048
"""Elements of a part, or rows of neighbours side by side, from which on a block is worth its launch."""
_LEAST_SIDE = 64
_STEP = 64


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """The two steps, and the tensor between them."""

    parts: RowProgram
    whole: RowProgram
    between: Operand


def split_rows(layout: RowLayout) -> SplitRows | None:
    """The row program in two steps; None where one keeps the device as busy, or where elements are written."""
    program = layout.program
    if len(program.statistics) != 1 or not all(output.per_row for output in program.outputs):
        return None
    count = _parts(layout)
    if count < 2:
        return None
    longest = max(range(len(layout.inner)), key=lambda n: extent_estimate(layout.inner_extents[n]))
    axis, extent = layout.inner[longest], layout.inner_extents[longest]
    chunk: Dim = dims.ceildiv(dims.ceildiv(extent, min(count, max(1, extent_estimate(extent)))), _STEP) * _STEP
    parts = dims.ceildiv(extent, chunk)
    if extent_estimate(parts) < 2:
        return None
    return _steps(layout, axis, extent, chunk, parts)


def _parts(layout: RowLayout) -> int:
    """Into how many parts a row is worth cutting."""
    items, elements = extent_estimate(layout.items), extent_estimate(layout.program.row_elements)
    if layout.is_side_by_side:
        return min(elements // _LEAST_SIDE, _BLOCKS // max(1, -(-items // 32)))
    return min(elements // _LEAST, _BLOCKS // max(1, items))


def _steps(layout: RowLayout, axis: Var, extent: Dim, chunk: Dim, parts: Dim) -> SplitRows:
    program, (statistic,) = layout.program, layout.program.statistics
    dtype = statistic.total.dtype
    outer, shape = layout.outer, (parts, *layout.outer_extents)
    between = Operand("parts", dtype, shape)

    part, inside = build.size_var("part"), build.size_var("inside")
    place = part * build.index(chunk) + inside
    is_there = place < build.index(extent)
    identity = statistic.combiner.identity([dtype])[0]

    def within(value: Expr, otherwise: Expr) -> Expr:
        moved = substitute(value, {axis: place})
        return moved if dims.prove_equal(parts * chunk, extent) is True else build.select(is_there, moved, otherwise)

    folded = replace(
        statistic,
        variable=Var("part_total", dtype),
        value=within(statistic.value, identity),
        finish=statistic.total,
    )
    first = replace(
        program,
        outer=(part, *outer),
        outer_extents=shape,
        inner=tuple(inside if other is axis else other for other in layout.inner),
        inner_extents=_with(layout.inner_extents, layout.inner, axis, chunk),
        element=within(program.element, build.const(0, program.dtype)),
        statistics=(folded,),
        outputs=(RowOutput(between, contiguous_strides(shape), (part, *outer), folded.variable, True),),
    )
    held, number = Var("element", dtype), build.size_var("number")
    count: dict[Var, Expr] = {program.count: build.index(program.row_elements)}
    second = replace(
        program,
        outer=outer,
        outer_extents=layout.outer_extents,
        inner=(number,),
        inner_extents=(parts,),
        element=between[(number, *outer)],
        held=held,
        statistics=(replace(statistic, value=held, finish=substitute(statistic.finish, count)),),
        outputs=tuple(replace(output, value=substitute(output.value, count)) for output in program.outputs),
    )
    return SplitRows(first, second, between)


def _with(extents: Sequence[Dim], axes: Sequence[Var], axis: Var, extent: Dim) -> tuple[Dim, ...]:
    return tuple(extent if other is axis else old for other, old in zip(axes, extents, strict=True))
