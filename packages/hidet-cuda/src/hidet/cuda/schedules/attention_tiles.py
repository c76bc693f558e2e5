"""The kernels of attention on tensor cores, from the tile program of core."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hidet import dims, dtypes
from hidet.cuda.schedules.attention_merge import merge_launch, partial_matrices, partial_results
from hidet.cuda.schedules.attention_plan import (
    BY_CALL,
    Plan,
    are_mapped,
    blocks_of,
    conditions,
    is_skewed,
    least_splits,
    more_room,
    padded,
    splits_of_call,
)
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.warp_specialized import WarpSpecializedKernel, lower_persistent, lower_warp_specialized
from hidet.dims import Dim
from hidet.gpu.schedules.attention_heads import HeadScope, numbered
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.templates.attention import Heads, attention_kernel
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import If, Stmt
from hidet.schedule.attention_problem import AttentionProblem
from hidet.target import GpuTarget

_READ = ("q", "k", "v", "mask", "ends_q", "ends_k")


def launches_by_size(builder: ProgramBuilder, problem: AttentionProblem, params: Plan, target: GpuTarget) -> Stmt:
    """Launches by each plan of `params`, of which a call takes the first whose conditions hold."""
    *plans, last = (replace(params, others=()), *params.others)
    chosen = _launches(builder, problem, last, target)
    for plan in reversed(plans):
        holds = [builder.size(size) >= least for size, least in conditions(problem, plan, target)]
        chosen = If(build.logical_and(*holds), _launches(builder, problem, plan, target), chosen)
    return chosen


def _launches(builder: ProgramBuilder, problem: AttentionProblem, plan: Plan, target: GpuTarget) -> Stmt:
    """The kernel of tiles, and behind it the one that merges splits where keys are split."""
    stacked, tiles = plan.stacked, plan.tiles
    chunk, is_used = _chunk_of_call(problem, plan, target) if plan.chunk == BY_CALL else (plan.chunk, 1)
    partial = None
    if chunk is not None:
        partial = partial_results(builder, problem, chunk, stacked=stacked, is_used=is_used)
    heads = HeadScope(problem, _READ if partial else (*_READ, "out", "logsumexp"), stacked=stacked)
    pointers = [
        builder.pointers[place.tensor.operand] for name, place in problem.tensors().items() if name in heads.pointers
    ]
    scope = heads.scope
    number, row_block, row_blocks = (build.size_var(name) for name in ("number", "row_block", "row_blocks"))
    k, v = heads.dense("k", problem.depth), heads.dense("v", problem.width)
    axes = heads.axes()
    rows_axis = (row_block, row_blocks)
    blocks_of_head = (heads.most_rows + (tiles.rows - 1)) // tiles.rows
    values: list[tuple[Var, Expr]] = [(row_blocks, blocks_of_head)]
    total = math.prod((extent for _, extent in axes), start=blocks_of_head)
    part: tuple[Expr, Expr] | None = None
    count = blocks_of(problem, plan)
    if partial is None or chunk is None:
        values += [*numbered(number, [rows_axis, *axes] if plan.by_head else [*axes, rows_axis]), *heads.values]
        result = heads.dense("out", problem.width)
        logsumexp = None if problem.logsumexp is None else heads.dense("logsumexp", 1)
    else:
        split, first, length = (build.size_var(name) for name in ("split", "first_key", "split_length"))
        splits, each = scope.size(partial.splits, "splits"), scope.size(chunk, "chunk")
        values += numbered(number, [*axes, (split, splits), rows_axis])
        values += [(first, split * each), (length, build.minimum(each, heads.length - first))]
        part = first, length
        result, logsumexp = partial_matrices(heads, splits, split)
        pointers += [partial.totals, partial.logarithms]
        count, total = count * partial.splits, total * splits
    first_key = build.index(0) if part is None else part[0]
    depth, width = padded(problem.depth), padded(problem.width)
    rooms = (more_room(depth), more_room(width)) if plan.is_warp_specialized else (0, 0)
    kernel = attention_kernel(
        builder.name(),
        (),
        Heads(heads.queries(), k, v, result, depth, width, logsumexp, rooms),
        problem.scale,
        tiles,
        grid_vars=(number,),
        # Rows that see the most keys come first.
        block=row_blocks - 1 - row_block if problem.is_causal else row_block,
        index_values=values,
        score=heads.added(dtypes.f32, first_key),
        visible=heads.visible(first_key),
        part=part,
        band=heads.band(),
        is_skewed=is_skewed(plan),
    )
    kernel = replace(kernel, params=scope.params)
    builder.record(kernel)
    if plan.is_warp_specialized:
        counts = {index: extent for index, extent in axes if isinstance(index, Var)}
        lowered, most = _lower_specialized(kernel, counts if are_mapped(problem) else None, total, target)
        function, threads, maps = lowered.function, lowered.threads, lowered.maps
    else:
        function, threads, maps, most = lower_kernel(kernel, machine()), kernel.threads, (), None
    arguments = [described.argument for described in maps]
    grid = (builder.size(count if most is None else dims.minimum(count, most)),)
    launch = builder.launch(function, pointers, scope.arguments, grid, threads, arguments)
    if partial is None:
        return launch
    return build.seq([launch, merge_launch(builder, problem, partial, stacked=stacked)])


def _lower_specialized(
    kernel: TileKernel, counts: Mapping[Var, Expr] | None, total: Expr, target: GpuTarget
) -> tuple[WarpSpecializedKernel, int | None]:
    """The warp-specialized kernel, and the most blocks it is launched with: as many as run together where each takes
    several of the `total` tiles; None for one of each. counts: as of `lower_warp_specialized`."""
    persistent = None if counts is None else lower_persistent(replace(kernel, grid=(total,)), counts, target)
    if persistent is None:
        return lower_warp_specialized(kernel, counts), None
    return persistent, target.multiprocessors


def _chunk_of_call(problem: AttentionProblem, plan: Plan, target: GpuTarget) -> tuple[Dim, Dim]:
    """Keys of a split, and whether a call splits them: 1, or 0 where it takes another plan."""
    splits, step = splits_of_call(problem, plan, target), plan.tiles.keys
    chunk = dims.maximum(dims.ceildiv(problem.keys, dims.maximum(splits, 1) * step), 1) * step
    return chunk, dims.minimum(dims.maximum(splits - (least_splits(plan) - 1), 0), 1)
