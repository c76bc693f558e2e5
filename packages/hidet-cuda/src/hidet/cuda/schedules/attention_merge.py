"""Results of attention over splits of the keys (split-kv), and how they become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.gpu.schedules.attention_heads import HeadScope, head_extents, numbered, row_count
from hidet.gpu.schedules.exchange import thread_in_block
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.tensors import GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.schedule.attention_problem import AttentionProblem

_F32 = dtypes.f32
_TOGETHER = 16
"""Splits that are read at once, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """Results of splits in f32: `totals` [heads, splits, rows, width], each divided by its own sum of weights, and
    `logarithms` [heads, splits, rows], the log of that sum of e ** score; -inf for a split without keys."""

    totals: Var
    logarithms: Var
    splits: Dim


def partial_results(
    builder: ProgramBuilder, problem: AttentionProblem, chunk: Dim, *, stacked: bool, is_used: Dim = 1
) -> Partial:
    """Memory for the results of splits of `chunk` keys. is_used: 0 for calls that split no keys, else 1."""
    splits = dims.ceildiv(problem.keys, chunk)
    heads = dims.product(head_extents(problem, stacked=stacked))
    rows = heads * splits * row_count(problem, stacked=stacked) * is_used
    totals = builder.scratch("totals", _F32, rows * problem.width)
    return Partial(totals, builder.scratch("logarithms", _F32, rows), splits)


def partial_matrices(heads: HeadScope, splits: Expr, split: Expr) -> tuple[GTensor, GTensor]:
    """Where a block writes the result and the logarithms of its split; adds two pointers to the kernel."""
    width = heads.problem.width
    totals, logarithms = (heads.scope.pointer(name, _F32) for name in ("totals", "logarithms"))
    first = (_head_number(heads) * splits + split) * heads.rows
    columns, one = build.index(width), build.index(1)
    align = math.gcd(16, width * _F32.nbytes)
    return (
        GTensor(build.binary("add", totals, first * columns), heads.rows, columns, columns, align),
        GTensor(build.binary("add", logarithms, first), heads.rows, one, one, _F32.nbytes),
    )


def merge_launch(builder: ProgramBuilder, problem: AttentionProblem, partial: Partial, *, stacked: bool) -> Launch:
    """The kernel that adds splits up, in their order, by the weight of each: a block a row, a thread an element."""
    heads = HeadScope(problem, _RESULTS, stacked=stacked)
    scope = heads.scope
    totals, logarithms = (scope.pointer(name, _F32) for name in ("totals", "logarithms"))
    splits, width = scope.size(partial.splits, "splits"), build.index(problem.width)
    k, number, row, zero = IRBuilder(), build.size_var("number"), build.size_var("row"), build.const(0, _F32)
    for var, value in numbered(number, [*heads.axes(), (row, heads.rows)]):
        k.declare(var, value)
    column = k.let("column", thread_in_block())
    first = k.let("first", _head_number(heads) * splits * heads.rows + row)
    row_max = k.let("row_max", build.const(-math.inf, _F32))
    total, norm = k.let("total", zero), k.let("norm", zero)
    with k.if_(column < width):
        _add_splits(
            k,
            splits,
            lambda split: build.load(logarithms, first + split * heads.rows),
            lambda split: build.load(totals, (first + split * heads.rows) * width + column),
            (row_max, total, norm),
            min(_TOGETHER, partial.splits) if isinstance(partial.splits, int) else _TOGETHER,
        )
        place = heads.row_offset(problem.out, "out", row) + column * heads.inner(problem.out, "out")
        result = build.select(build.equal(norm, 0.0), zero, total / norm)
        k.store(heads.base(problem.out, "out"), place, build.cast(result, problem.out.dtype))
        lse = problem.logsumexp
        if lse is not None:
            with k.if_(build.equal(column, 0)):
                logarithm = _finite_max(row_max) + build.unary("log", norm)
                k.store(heads.base(lse, "logsumexp"), heads.row_offset(lse, "logsumexp", row), logarithm)
    function = Function(builder.name(), scope.params, k.body, kind="kernel", grid_vars=(number,))
    pointers = [builder.pointers[place.tensor.operand] for name, place in problem.tensors().items() if name in _RESULTS]
    count = dims.product(head_extents(problem, stacked=stacked)) * row_count(problem, stacked=stacked)
    threads = -(-problem.width // WARP) * WARP
    given = (*pointers, partial.totals, partial.logarithms)
    return builder.launch(function, given, scope.arguments, (builder.size(count),), threads)


def _add_splits(
    k: IRBuilder,
    splits: Expr,
    logarithm: Callable[[Expr], Expr],
    result: Callable[[Expr], Expr],
    sums: tuple[Var, Var, Var],
    together: int,
) -> None:
    """Reduce all splits, so many at once, into the largest logarithm, the sum of results and that of weights, as an
    online softmax."""
    row_max, total, norm = sums
    with k.for_range("turn", (splits + (together - 1)) // together) as turn:

        def read(name: str, of_split: Callable[[Expr], Expr], otherwise: float) -> Iterator[Var]:
            for n in range(together):
                split = turn * together + n
                value = k.let("value", of_split(build.minimum(split, splits - 1)))
                yield k.let(f"{name}{n}", build.select(split < splits, value, build.const(otherwise, _F32)))

        # Several splits at once, so that their loads are on their way together.
        logs, results = list(read("log", logarithm, -math.inf)), list(read("result", result, 0))
        new_max = k.let("new_max", row_max)
        for log in logs:
            k.assign(new_max, build.maximum(new_max, log))
        finite_max = k.let("finite_max", _finite_max(new_max))
        correction = k.let("correction", build.unary("exp", row_max - finite_max))
        k.assign_each((total, norm, row_max), (total * correction, norm * correction, new_max))
        for log, part_result in zip(logs, results, strict=True):
            weight = k.let("weight", build.unary("exp", log - finite_max))
            k.assign_each((norm, total), (norm + weight, total + weight * part_result))


def _finite_max(row_max: Expr) -> Expr:
    """What logarithms are compared with; 0 where no split has seen a key: all weights are then 0, not NaN."""
    return build.select(build.equal(row_max, -math.inf), build.const(0, _F32), row_max)


_RESULTS = ("out", "logsumexp")


def _head_number(heads: HeadScope) -> Expr:
    """The number of the block's head among all."""
    number: Expr = build.index(0)
    for index, extent in heads.axes():
        number = number * extent + index
    return number
