"""Attention without matrix units as a launch: for any strides, masks, numbers of queries and types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from hidet import dims, dtypes
from hidet.errors import ScheduleError
from hidet.gpu.schedules.attention_heads import COPY_BYTES, HeadScope, alignment, numbered
from hidet.gpu.schedules.attention_rest import rest_launch
from hidet.gpu.schedules.attention_simt import Rows, SimtTiles, simt_attention
from hidet.gpu.schedules.attention_tiles import simt_blocks
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.tile.lower.machine import BackgroundCopies
from hidet.gpu.tile.tensors import Computed, GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch, Stmt
from hidet.schedule.attention_problem import AttentionProblem, attention_problem
from hidet.schedule.task import Task
from hidet.target import GpuTarget

LARGEST_ROW = 256
"""Elements of a row of keys or values, of which a thread keeps a part in registers."""


def problem_of(task: Task) -> AttentionProblem:
    """What a task of attention alone asks for. ScheduleError unless rows of k and v have up to LARGEST_ROW elements."""
    problem = attention_problem(task)
    shortest, longest = sorted((problem.depth, problem.width))
    if longest > LARGEST_ROW or shortest < 1:
        raise ScheduleError(
            f"rows of k and v have {problem.depth} and {problem.width} elements, expected 1 to {LARGEST_ROW}"
        )
    return problem


def run_by_alignment(
    builder: ProgramBuilder, problem: AttentionProblem, fast: Stmt, anywhere: Callable[[], Stmt]
) -> None:
    """Run a launch where tensors begin at multiples of COPY_BYTES, which for those of users each call tells, and what
    another one gives where they do not. Before it the one that writes rows in no sequence, where these are packed."""
    if problem.packed is not None:
        builder.run(rest_launch(builder, problem, problem.packed))
    copied = {
        place.tensor.operand: place.tensor
        for place in (problem.q, problem.k, problem.v, problem.out)
        if alignment(place) > place.dtype.nbytes
    }
    unknown: list[Expr] = [
        Bitcast(builder.pointers[operand], dtypes.i64) for operand, tensor in copied.items() if not tensor.is_aligned
    ]
    if not unknown:
        builder.run(fast)
        return
    bits = functools.reduce(functools.partial(build.binary, "or"), unknown)
    is_aligned = build.equal(build.binary("and", bits, COPY_BYTES - 1), 0)
    builder.run(If(is_aligned, fast, anywhere()))


def simt_launch(
    builder: ProgramBuilder,
    problem: AttentionProblem,
    tiles: SimtTiles,
    target: GpuTarget,
    copies: BackgroundCopies | None,
    *,
    is_aligned: bool,
) -> Launch:
    """The kernel without matrix units, which takes everything.

    copies: that the device makes in the background; None where threads copy at once. is_aligned: whether tensors begin
    at multiples of COPY_BYTES.
    """
    heads = HeadScope(problem, tuple(problem.tensors()), stacked=False)
    scope, wide = heads.scope, problem.compute
    number, row_block, k = build.size_var("number"), build.size_var("row_block"), IRBuilder()
    row_blocks = k.let("row_blocks", (heads.most_rows + (tiles.rows - 1)) // tiles.rows)
    for var, value in (*numbered(number, [*heads.axes(), (row_block, row_blocks)]), *heads.values):
        k.declare(var, value)
    first = k.let("first_row", (row_blocks - 1 - row_block if problem.is_causal else row_block) * tiles.rows)

    def matrix(name: str, columns: int) -> GTensor | Computed:
        found = heads.matrix(name, columns)
        if isinstance(found, Computed) or found.dtype != wide:
            return heads.elements(name, columns, wide)
        return found if is_aligned else replace(found, align=wide.nbytes)

    work = Rows(
        first,
        matrix("q", problem.depth),
        matrix("k", problem.depth),
        matrix("v", problem.width),
        problem.depth,
        problem.width,
        lambda k, row, column, values: _store(k, heads, row, column, values, is_aligned=is_aligned),
        None if problem.logsumexp is None else lambda k, row, value: _store_logarithm(k, heads, row, value),
    )
    simt_attention(
        k,
        work,
        tiles,
        problem.scale,
        score=heads.added(wide, build.index(0)),
        visible=heads.visible(build.index(0)),
        band=heads.band(),
        copies=copies,
    )
    function = Function(
        builder.name(),
        scope.params,
        k.body,
        kind="kernel",
        grid_vars=(number,),
        attributes=(("min_blocks", simt_blocks(problem, tiles, target) if is_aligned else 1),),
    )
    pointers = [builder.pointers[place.tensor.operand] for place in problem.tensors().values()]
    count = dims.product(problem.leading) * problem.group * dims.ceildiv(problem.queries, tiles.rows)
    return builder.launch(function, pointers, scope.arguments, (builder.size(count),), tiles.threads)


def _store(k: IRBuilder, heads: HeadScope, row: Expr, column: Expr, values: Expr, *, is_aligned: bool) -> None:
    """Write neighbours of a row of the result, as far as they lie inside: at once, where memory takes them so."""
    problem, place, lanes = heads.problem, heads.problem.out, values.lanes
    base, width = heads.base(place, "out"), problem.width
    start = heads.row_offset(place, "out", row) + column * heads.inner(place, "out")
    is_wide = is_aligned and place.inner == 1 and alignment(place) >= lanes * place.dtype.nbytes
    at_once = lanes > 1 and is_wide and place.dtype == values.dtype
    if at_once:
        with k.if_(column + lanes <= width):
            k.store(base, start, values)
    with k.else_() if at_once else nullcontext():
        for n in range(lanes):
            with k.if_(column + n < width):
                element = build.extract(values, n) if lanes > 1 else values
                k.store(base, start + n * heads.inner(place, "out"), build.cast(element, place.dtype))


def _store_logarithm(k: IRBuilder, heads: HeadScope, row: Expr, value: Expr) -> None:
    place = heads.problem.logsumexp
    assert place is not None
    offset = heads.row_offset(place, "logsumexp", row)
    k.store(heads.base(place, "logsumexp"), offset, build.cast(value, place.dtype))
