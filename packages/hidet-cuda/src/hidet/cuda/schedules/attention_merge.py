"""Results of attention over parts of the keys, and how they become one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.cuda.schedules.attention_heads import HeadScope, head_extents, numbered, row_count
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.stmt import Assign, Declare, For, If, Launch, Stmt, Store
from hidet.schedule.attention_problem import AttentionProblem
from hidet.tile.tensors import GTensor

_F32 = dtypes.f32
_TOGETHER = 16


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """Results of parts in f32: `totals` [heads, parts, rows, width], each divided by its own sum of weights, and
    `logarithms` [heads, parts, rows], the log of that sum of e ** score; -inf for a part without keys."""

    totals: Var
    logarithms: Var
    parts: Dim


def partial_results(builder: ProgramBuilder, problem: AttentionProblem, chunk: int, *, stacked: bool) -> Partial:
    """Memory for the results of parts of `chunk` keys."""
    parts = dims.ceildiv(problem.keys, chunk)
    heads = dims.product(head_extents(problem, stacked=stacked))
    rows = heads * parts * row_count(problem, stacked=stacked)
    totals = builder.scratch("totals", _F32, rows * problem.width)
    return Partial(totals, builder.scratch("logarithms", _F32, rows), parts)


def partial_matrices(heads: HeadScope, parts: Expr, part: Expr) -> tuple[GTensor, GTensor]:
    """Where a block writes the result and the logarithms of its part; adds two pointers to the kernel."""
    width = heads.problem.width
    totals, logarithms = (heads.scope.pointer(name, _F32) for name in ("totals", "logarithms"))
    first = (_head_number(heads) * parts + part) * heads.rows
    columns, one = build.index(width), build.index(1)
    align = math.gcd(16, width * _F32.nbytes)
    return (
        GTensor(build.binary("add", totals, first * columns), heads.rows, columns, columns, align),
        GTensor(build.binary("add", logarithms, first), heads.rows, one, one, _F32.nbytes),
    )


def merge_launch(builder: ProgramBuilder, problem: AttentionProblem, partial: Partial, *, stacked: bool) -> Launch:
    """The kernel that adds parts up, in their order, by the weight of each: a block a row, a thread an element."""
    heads = HeadScope(problem, _RESULTS, stacked=stacked)
    scope = heads.scope
    totals, logarithms = (scope.pointer(name, _F32) for name in ("totals", "logarithms"))
    parts, width = scope.size(partial.parts, "parts"), build.index(problem.width)
    number, row, column, first = (build.size_var(name) for name in ("number", "row", "column", "first"))
    blocks = numbered(number, [*heads.axes(), (row, heads.rows)])
    largest, total, norm = (Var(name, _F32) for name in ("largest", "total", "norm"))
    zero = build.const(0, _F32)
    stores: list[Stmt] = [
        Store(
            heads.base(problem.out, "out"),
            (heads.row_offset(problem.out, "out", row) + column * heads.inner(problem.out, "out"),),
            build.cast(build.select(build.equal(norm, 0.0), zero, total / norm), problem.out.dtype),
        )
    ]
    if problem.logsumexp is not None:
        lse = problem.logsumexp
        at = heads.row_offset(lse, "logsumexp", row)
        write = Store(heads.base(lse, "logsumexp"), (at,), _shift(largest) + build.unary("log", norm))
        stores.append(If(build.equal(column, 0), write))
    body = [
        *[Declare(var, value) for var, value in blocks],
        Declare(column, build.cast(intrinsic_call("cuda.thread_idx.x"), dtypes.i64)),
        Declare(first, _head_number(heads) * parts * heads.rows + row),
        Declare(largest, build.const(-math.inf, _F32)),
        Declare(total, zero),
        Declare(norm, zero),
        If(
            column < width,
            build.seq(
                [
                    _summed(
                        parts,
                        lambda part: build.load(logarithms, first + part * heads.rows),
                        lambda part: build.load(totals, (first + part * heads.rows) * width + column),
                        (largest, total, norm),
                    ),
                    *stores,
                ]
            ),
        ),
    ]
    function = Function(builder.name(), scope.params, build.seq(body), kind="kernel", grid_vars=(number,))
    pointers = [builder.pointers[place.tensor.operand] for name, place in problem.tensors().items() if name in _RESULTS]
    count = dims.product(head_extents(problem, stacked=stacked)) * row_count(problem, stacked=stacked)
    threads = -(-problem.width // 32) * 32
    given = (*pointers, partial.totals, partial.logarithms)
    return builder.launch(function, given, scope.arguments, (builder.size(count),), threads)


def _summed(
    parts: Expr, logarithm: Callable[[Expr], Expr], result: Callable[[Expr], Expr], sums: tuple[Var, Var, Var]
) -> For:
    """Fold all parts into the largest logarithm, the sum of results and that of weights, as a running softmax."""
    largest, total, norm = sums
    turn = build.size_var("turn")
    new, shift, less = (Var(name, _F32) for name in ("new", "shift", "less"))
    logs, results = ([Var(f"{name}{n}", _F32) for n in range(_TOGETHER)] for name in ("log", "result"))
    body: list[Stmt] = []
    # Several parts at once, so that their loads are on their way together.
    for names, read, otherwise in ((logs, logarithm, -math.inf), (results, result, 0)):
        for n, name in enumerate(names):
            part, value = turn * _TOGETHER + n, Var("value", _F32)
            body.append(Declare(value, read(build.minimum(part, parts - 1))))
            body.append(Declare(name, build.select(part < parts, value, build.const(otherwise, _F32))))
    body.append(Declare(new, largest))
    body += [Assign(new, build.maximum(new, log)) for log in logs]
    body.append(Declare(shift, _shift(new)))
    body.append(Declare(less, build.unary("exp", largest - shift)))
    body += [Assign(total, total * less), Assign(norm, norm * less), Assign(largest, new)]
    for log, part_result in zip(logs, results, strict=True):
        weight = Var("weight", _F32)
        body.append(Declare(weight, build.unary("exp", log - shift)))
        body += [Assign(norm, norm + weight), Assign(total, total + weight * part_result)]
    return For(turn, build.index(0), (parts + (_TOGETHER - 1)) // _TOGETHER, build.seq(body))


def _shift(largest: Expr) -> Expr:
    """What logarithms are compared with; 0 where no part has seen a key: all weights are then 0, not NaN."""
    return build.select(build.equal(largest, -math.inf), build.const(0, _F32), largest)


_RESULTS = ("out", "logsumexp")


def _head_number(heads: HeadScope) -> Expr:
    """The number of the block's head among all."""
    number: Expr = build.index(0)
    for index, extent in heads.axes():
        number = number * extent + index
    return number
