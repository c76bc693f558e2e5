"""Closing gaps: the elements to keep, moved next to each other. What `nonzero`, `compress` and `unique` are made of.

Which elements are kept is told by a running count of them, `ends`: element i is kept where the count rises, and moves
to place ends[i] - 1. The number of results is the last count, which `read_sizes` makes a size.
"""

from __future__ import annotations

from hidet.compute.definition import (
    ANY,
    Compute,
    Definition,
    Operand,
    Scatter,
    compute,
    fresh_axes,
    reduce,
    single,
)
from hidet.dims import Dim
from hidet.errors import DTypeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import require_dtype, require_rank, same_extent, widen


def _pack(x: Operand, ends: Operand, *, count: Dim) -> Definition:
    require_dtype("pack", x, "data")
    require_rank("pack", x, at_least=1)
    require_rank("pack", ends, at_least=1, at_most=1)
    if ends.dtype.name != "int64":
        raise DTypeError(f"operator pack takes running counts as i64, got {ends.dtype}")
    same_extent(x.shape[0], ends.shape[0], "operator pack: axis 0 of x against the counts")
    axes, base = fresh_axes(x.rank), fresh_axes(x.rank, "b")
    at = axes[0]
    before = build.select(at > 0, ends[build.maximum(at - 1, 0)], build.index(0))
    stage = Scatter(
        Operand("pack", x.dtype, (count, *x.shape[1:])),
        build.const(0, x.dtype),
        base,
        axes,
        x.shape,
        (ends[at] - 1, *axes[1:]),
        x[axes],
        condition=ends[at] > before,
        is_distinct=True,
    )
    return single((x, ends), stage)


def _run_starts(x: Operand) -> Definition:
    require_dtype("run_starts", x, "any")
    require_rank("run_starts", x, at_least=1)

    def differs(at: Expr, rest: tuple[Expr, ...]) -> Expr:
        return build.binary("ne", widen(x[(at, *rest)]), widen(x[(build.maximum(at - 1, 0), *rest)]))

    def is_start(at: Expr) -> Expr:
        new = differs(at, ()) if x.rank == 1 else reduce(ANY, x.shape[1:], lambda *rest: differs(at, rest))
        return build.binary("lor", build.binary("eq", at, 0), new)

    stage: Compute = compute("run_starts", x.shape[:1], is_start)
    return single((x,), stage)


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="pack",
        inputs=("x", "ends"),
        attributes=(Attribute("count", doc="Dim that stands for the number of rows kept"),),
        define=_pack,
        family="scatter",
        doc="The rows x[i] at which the running count ends[i], an i64, is larger than ends[i - 1]: [count, ...].",
    ),
    OperatorSpec(
        name="run_starts",
        inputs=("x",),
        define=_run_starts,
        doc="For every x[i] along axis 0 whether it differs from x[i - 1]; true for the first. NaN differs from NaN.",
    ),
)
