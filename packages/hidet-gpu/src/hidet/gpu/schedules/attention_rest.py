"""Results of rows that are in no packed sequence: zeros, and the logarithm of nothing."""

from __future__ import annotations

import math

from hidet import dims
from hidet.gpu.schedules.attention_heads import numbered
from hidet.gpu.schedules.exchange import WARP, thread_in_block
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.operators.rules import clamped_position
from hidet.schedule.attention_problem import AttentionProblem, Packed, Placement, gap_of_rows
from hidet.schedule.lowering import KernelScope

_WARPS = 4


def rest_launch(builder: ProgramBuilder, problem: AttentionProblem, packed: Packed) -> Launch:
    """The kernel that writes the rows between sequences, a block a gap and head, a warp a row.

    There is a gap before each sequence and one behind the last; they are empty unless a tensor has more rows than the
    sequences, or one of these is longer than was told. What has not fallen between positions is written by nobody.
    """
    scope, k = KernelScope(), IRBuilder()
    places = {name: place for name, place in problem.tensors().items() if name in ("ends_q", "out", "logsumexp")}
    pointers = {name: scope.pointer(name, place.tensor.type.dtype) for name, place in places.items()}
    number, gap, head, member = (build.size_var(name) for name in ("number", "gap", "head", "member"))
    count, heads = (scope.size(extent, "count") for extent in problem.leading)
    group, rows = scope.size(problem.group, "group"), scope.size(packed.total_q, "total")
    most, step = scope.size(problem.queries, "queries"), scope.size(packed.ends_q.row, "step")
    for var, value in numbered(number, [(gap, count + 1), (head, heads), (member, group)]):
        k.declare(var, value)

    def position(which: Expr) -> Expr:
        return clamped_position(build.load(pointers["ends_q"], which * step), rows)

    bounds = gap_of_rows(position, gap, count, rows, most)
    start, stop = k.let("start", bounds[0]), k.let("stop", bounds[1])
    thread = k.let("thread", thread_in_block())
    warp, lane = k.let("warp", thread // WARP), k.let("lane", thread % WARP)

    def first(name: str, place: Placement) -> tuple[Expr, Expr]:
        """Where the head's first element is, and the distance of its rows."""
        between = [scope.size(stride, f"{name}_stride") for stride in (place.leading[1], place.group, place.row)]
        return build.binary("add", pointers[name], head * between[0] + member * between[1]), between[2]

    out, out_row = first("out", problem.out)
    inner = scope.size(problem.out.inner, "out_stride")
    place = problem.logsumexp
    logarithms = None if place is None else first("logsumexp", place)
    with k.for_range("turn", (stop - start + (_WARPS - 1)) // _WARPS) as turn:
        row = k.let("row", start + turn * _WARPS + warp)
        with k.if_(row < stop):
            with k.for_range("part", -(-problem.width // WARP)) as part:
                column = k.let("column", part * WARP + lane)
                with k.if_(column < problem.width):
                    k.store(out, row * out_row + column * inner, build.const(0, problem.out.dtype))
            if place is not None and logarithms is not None:
                with k.if_(build.equal(lane, 0)):
                    k.store(logarithms[0], row * logarithms[1], build.const(-math.inf, place.dtype))
    function = Function(builder.name(), scope.params, k.body, kind="kernel", grid_vars=(number,))
    given = [builder.pointers[place.tensor.operand] for place in places.values()]
    blocks = (problem.leading[0] + 1) * dims.product((*problem.leading[1:], problem.group))
    return builder.launch(function, given, scope.arguments, (builder.size(blocks),), WARP * _WARPS)
