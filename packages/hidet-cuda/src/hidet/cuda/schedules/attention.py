"""Scaled dot-product attention on a GPU.

16-bit floats are multiplied on tensor cores by the tile program of core, everything else by a kernel without. Few
queries on many keys (decoding) do not fill the device: the keys are then split over blocks, whose results a second
kernel merges in their order (Dao et al., "Flash-Decoding", 2023).

Which kernel runs is decided at every call, unless all tensors are known to begin at multiples of 16 bytes: tensors of
users may start anywhere, and copies in the background may not.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from dataclasses import replace
from typing import cast

from hidet import dims, dtypes
from hidet.context import CompileContext
from hidet.cuda.schedules.attention_heads import COPY_BYTES, HeadScope, alignment, numbered
from hidet.cuda.schedules.attention_plan import Plan, choose_plan, simt_blocks, simt_tiles, suits_tensor_cores
from hidet.cuda.schedules.attention_simt import Rows, SimtTiles, simt_attention
from hidet.cuda.schedules.attention_space import attention_space
from hidet.cuda.schedules.attention_tiles import tensor_core_launches
from hidet.cuda.schedules.cost_attention import attention_seconds
from hidet.errors import ScheduleError
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.tile.tensors import Computed, GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch
from hidet.schedule.attention_problem import AttentionProblem, attention_problem
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Space
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

LARGEST_ROW = 256
"""Elements of a row of keys or values, of which a thread keeps a part in registers."""


class AttentionRule(ScheduleRule[AttentionProblem, Plan | SimtTiles]):
    """Schedules attention with or without log-sum-exp, for any strides, masks and numbers of queries."""

    def match(self, task: Task, ctx: CompileContext) -> Match[AttentionProblem] | None:
        """Attention alone, rows of k and v of a known length up to LARGEST_ROW."""
        problem = attention_problem(task)
        shortest, longest = sorted((problem.depth, problem.width))
        if longest > LARGEST_ROW or shortest < 1:
            raise ScheduleError(
                f"rows of k and v have {problem.depth} and {problem.width} elements, expected 1 to {LARGEST_ROW}"
            )
        return Match(task, problem)

    def space(self, match: Match[AttentionProblem], ctx: CompileContext) -> Space[Plan | SimtTiles]:
        """Tiles of the kernel for tensor cores where they can be used, else of the one without."""
        space = attention_space(match.data, self.default(match, ctx), gpu_target(ctx.target))
        return cast("Space[Plan | SimtTiles]", space)

    def default(self, match: Match[AttentionProblem], ctx: CompileContext) -> Plan | SimtTiles:
        """Large tiles, as long as there are enough to keep the device busy."""
        problem, target = match.data, gpu_target(ctx.target)
        uses_units = suits_tensor_cores(problem) and ctx.option("cuda.matrix_units")
        return choose_plan(problem, target) if uses_units else simt_tiles(problem, target)

    def predict(self, match: Match[AttentionProblem], params: Plan | SimtTiles, ctx: CompileContext) -> float | None:
        """By the model of `cost_attention`."""
        constants = known_constants(ctx)
        if constants is None:
            return None
        return attention_seconds(match.data, params, gpu_target(ctx.target), constants)

    def build(self, match: Match[AttentionProblem], params: Plan | SimtTiles, ctx: CompileContext) -> Program:
        """A kernel for tensor cores where they can be used, and one for everything else."""
        problem = match.data
        builder = ProgramBuilder(match.task)
        target = gpu_target(ctx.target)
        simt = params if isinstance(params, SimtTiles) else simt_tiles(problem, target)
        if isinstance(params, Plan):
            fast = tensor_core_launches(builder, problem, params)
        else:
            fast = _simt_launch(builder, problem, simt, target, is_aligned=True)
        copied = {
            place.tensor.operand: place.tensor
            for place in (problem.q, problem.k, problem.v, problem.out)
            if alignment(place) > place.dtype.nbytes
        }
        unknown: list[Expr] = [
            Bitcast(builder.pointers[operand], dtypes.i64)
            for operand, tensor in copied.items()
            if not tensor.is_aligned
        ]
        if not unknown:
            builder.run(fast)
            return builder.program()
        bits = functools.reduce(functools.partial(build.binary, "or"), unknown)
        is_aligned = build.equal(build.binary("and", bits, COPY_BYTES - 1), 0)
        anywhere = _simt_launch(builder, problem, simt, target, is_aligned=False)
        builder.run(If(is_aligned, fast, anywhere))
        return builder.program()


def _simt_launch(
    builder: ProgramBuilder, problem: AttentionProblem, tiles: SimtTiles, target: GpuTarget, *, is_aligned: bool
) -> Launch:
    """The kernel without matrix units, which takes everything.

    is_aligned: whether tensors begin at multiples of COPY_BYTES.
    """
    heads = HeadScope(problem, tuple(problem.tensors()), stacked=False)
    scope, wide = heads.scope, problem.compute
    number, row_block, k = build.size_var("number"), build.size_var("row_block"), IRBuilder()
    row_blocks = k.let("row_blocks", (heads.rows + (tiles.rows - 1)) // tiles.rows)
    for var, value in numbered(number, [*heads.axes(), (row_block, row_blocks)]):
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
        is_causal=problem.is_causal,
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
