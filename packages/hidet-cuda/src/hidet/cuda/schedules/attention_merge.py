"""Results of attention over parts of the keys, and how they become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.cuda.schedules.attention_heads import HeadScope, head_extents, row_count
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Assign, Declare, For, If, Launch, Stmt, Store
from hidet.schedule.attention_problem import AttentionProblem
from hidet.tile.tensors import GTensor

_F32 = dtypes.f32
_TOGETHER = 8


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
    """The kernel that adds the parts of each element up, in their order, by the weight of each."""
    heads = HeadScope(problem, ("out", "logsumexp"), stacked=stacked)
    scope = heads.scope
    totals, logarithms = (scope.pointer(name, _F32) for name in ("totals", "logarithms"))
    parts, width = scope.size(partial.parts, "parts"), build.index(problem.width)
    row, column, turn = (build.size_var(name) for name in ("row", "column", "turn"))
    first = build.size_var("first")
    largest, shift, total, norm = (Var(n, _F32) for n in ("largest", "shift", "total", "norm"))
    zero, hidden = build.const(0, _F32), build.const(-math.inf, _F32)
    found = [Var(f"logarithm{n}", _F32) for n in range(_TOGETHER)]

    def read(values: Callable[[Expr], Expr], names: Sequence[Var], otherwise: Expr) -> list[Stmt]:
        """Several parts at once, so that their loads are on their way together."""
        stmts: list[Stmt] = []
        for n, name in enumerate(names):
            part, value = turn * _TOGETHER + n, Var("value", _F32)
            stmts.append(Declare(value, values(build.minimum(part, parts - 1))))
            stmts.append(Declare(name, build.select(part < parts, value, otherwise)))
        return stmts

    def logarithm(part: Expr) -> Expr:
        return build.load(logarithms, first + part * heads.rows)

    def over_parts(body: list[Stmt]) -> For:
        return For(turn, build.index(0), (parts + (_TOGETHER - 1)) // _TOGETHER, build.seq(body))

    def summed(part: Expr) -> Expr:
        return build.load(totals, (first + part * heads.rows) * width + column)

    sums = [Var(f"sum{n}", _F32) for n in range(_TOGETHER)]
    add: list[Stmt] = [*read(logarithm, found, hidden), *read(summed, sums, zero)]
    for n in range(_TOGETHER):
        weight = Var("weight", _F32)
        add.append(Declare(weight, build.unary("exp", found[n] - shift)))
        add.append(Assign(norm, norm + weight))
        add.append(Assign(total, total + weight * sums[n]))
    out = problem.out
    store = Store(
        heads.base(out, "out"),
        (heads.row_offset(out, "out", row) + column * heads.inner(out, "out"),),
        build.cast(build.select(build.equal(norm, 0.0), zero, total / norm), out.dtype),
    )
    body: list[Stmt] = [
        Declare(first, _head_number(heads) * parts * heads.rows + row),
        Declare(largest, hidden),
        over_parts([*read(logarithm, found, hidden), *[Assign(largest, build.maximum(largest, x)) for x in found]]),
        # Where no part has seen a key, all weights are 0, not NaN.
        Declare(shift, build.select(build.equal(largest, -math.inf), zero, largest)),
        Declare(total, zero),
        Declare(norm, zero),
        over_parts(add),
        store,
    ]
    if problem.logsumexp is not None:
        lse = problem.logsumexp
        at = heads.row_offset(lse, "logsumexp", row)
        write = Store(heads.base(lse, "logsumexp"), (at,), shift + build.unary("log", norm))
        body.append(If(build.equal(column, 0), write))
    axes = [index for index, _ in heads.axes() if isinstance(index, Var)]
    function = Function(builder.name(), scope.params, build.seq(body), kind="kernel", grid_vars=(*axes, row, column))
    builder.add([function])
    extents = [extent for extent in head_extents(problem, stacked=stacked) if extent != 1]
    grid = [*extents, row_count(problem, stacked=stacked), problem.width]
    pointers = [builder.pointers[place.tensor.operand] for name, place in problem.tensors().items() if name in _RESULTS]
    arguments = [*pointers, partial.totals, partial.logarithms, *(builder.size(dim) for dim in scope.arguments)]
    return Launch(function.name, tuple(builder.size(dim) for dim in grid), tuple(arguments))


_RESULTS = ("out", "logsumexp")


def _head_number(heads: HeadScope) -> Expr:
    """The number of the block's head among all."""
    number: Expr = build.index(0)
    for index, extent in heads.axes():
        number = number * extent + index
    return number
