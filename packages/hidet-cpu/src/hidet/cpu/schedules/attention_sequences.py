"""Attention of packed sequences on a CPU: where a work item's sequence lies, and rows that are in none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hidet import dims
from hidet.cpu.schedules.attention_kernel import AttentionKernel
from hidet.cpu.schedules.attention_rows import Place, place_tensor
from hidet.cpu.schedules.gemm_program import parameter
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.operators.rules import clamped_position
from hidet.schedule.attention_problem import AttentionProblem, Packed, gap_of_rows
from hidet.schedule.lowering import KernelScope

_OF_QUERIES = ("q", "out", "logsumexp")


def open_sequence(
    k: IRBuilder, scope: KernelScope, packed: Packed, places: Mapping[str, Place], most: tuple[Expr, Expr]
) -> tuple[dict[str, Place], Var, Var]:
    """Tensors from the first row of the work item's sequence on, and how many rows and keys it has, up to `most`: all
    inside of the tensors, whatever the positions say."""
    found = dict(places)
    counts = []
    for which, total, limit in zip("qk", (packed.total_q, packed.total_k), most, strict=True):
        ends, rows = places[f"ends_{which}"], parameter(scope, total, f"total_{which}")
        first = k.let(f"first_{which}", clamped_position(build.load(ends.pointer, 0), rows))
        length = clamped_position(build.load(ends.pointer, ends.row), rows) - first
        counts.append(k.let(f"rows_{which}", build.minimum(build.maximum(length, 0), limit)))
        for name in _OF_QUERIES if which == "q" else ("k", "v"):
            if name in places:
                place = places[name]
                found[name] = replace(
                    place, pointer=k.let(f"own_{name}", build.address(place.pointer, first * place.row))
                )
    return found, counts[0], counts[1]


def rest_kernel(problem: AttentionProblem, packed: Packed) -> tuple[AttentionKernel, tuple[str, ...]]:
    """The kernel that writes zeros, and the logarithm of nothing, to rows between sequences, and the names of the
    tensors that it takes. A work item writes the rows of a head before a sequence, or behind the last one."""
    tensors = {name: place for name, place in problem.tensors().items() if name in ("ends_q", "out", "logsumexp")}
    scope, k = KernelScope(), IRBuilder()
    gap, head, member = (build.size_var(name) for name in ("gap", "head", "member"))
    zero = build.index(0)
    places = {name: place_tensor(k, scope, name, place, (zero, head), 0) for name, place in tensors.items()}
    count, rows = parameter(scope, problem.leading[0], "count"), parameter(scope, packed.total_q, "rows")
    ends, most = places["ends_q"], parameter(scope, problem.queries, "most")

    def position(number: Expr) -> Expr:
        return clamped_position(build.load(ends.pointer, number * ends.row), rows)

    start, stop = gap_of_rows(position, gap, count, rows, most)
    first = k.let("first", start)
    with k.for_range("row", k.let("stop", stop) - first, start=first) as row:
        out = places["out"]
        with k.for_range("e", parameter(scope, problem.width, "width")) as e:
            place = member * out.group + row * out.row + e * out.inner
            k.store(out.pointer, place, build.const(0, out.placement.dtype))
        if "logsumexp" in places:
            lse = places["logsumexp"]
            k.store(lse.pointer, member * lse.group + row * lse.row, build.const(-math.inf, lse.placement.dtype))
    function = Function("rest", scope.params, k.body, "kernel", (gap, head, member))
    grid = (problem.leading[0] + 1, problem.leading[1], problem.group)
    return AttentionKernel(function, (), scope, grid, dims.maximum(problem.width, 1)), tuple(tensors)
