"""Reductions over parts of an axis whose ends are data: bags of embeddings, rows of ragged tensors."""

from __future__ import annotations

from hidet import dtypes
from hidet.compute.definition import ARGMAX, MAX, MIN, PRODUCT, SUM, Definition, Operand, compute, reduce, single
from hidet.errors import UnsupportedOp
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    clamped_position,
    normalize_axis,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    widen,
)

_COMBINERS = {"sum": SUM, "mean": SUM, "prod": PRODUCT, "max": MAX, "min": MIN}


def _segment_reduce(
    x: Operand, starts: Operand, stops: Operand, *, reduce_by: str, axis: int, initial: float | None
) -> Definition:
    name = "segment_reduce"
    require_dtype(name, x, "number")
    require_rank(name, x, at_least=1)
    require_dtype(name, starts, "int")
    require_same_dtype(name, (starts, stops))
    cut = normalize_axis(name, axis, x.rank)
    for operand in (starts, stops):
        require_rank(name, operand, at_least=cut + 1, at_most=cut + 1)
    for have, want in zip(starts.shape, (*x.shape[:cut], stops.shape[cut]), strict=True):
        same_extent(have, want, f"operator {name}: starts against x and stops")
    if reduce_by not in (*_COMBINERS, "argmax"):
        raise UnsupportedOp(f"operator {name} has no reduction {reduce_by!r}; it has: {', '.join(_COMBINERS)}, argmax")
    extent = build.index(x.shape[cut])

    def value(*axes: Expr) -> Expr:
        place = axes[: cut + 1]
        start = clamped_position(starts[place], extent)
        count = clamped_position(stops[place], extent) - start

        def element(r: Expr) -> Expr:
            return widen(x[(*axes[:cut], start + r, *axes[cut + 1 :])])

        if reduce_by == "argmax":
            found = reduce(ARGMAX, (count,), lambda r: (element(r), start + r), result=1)
            return build.select(count > 0, found, build.const(0, dtypes.i64))
        combiner = _COMBINERS[reduce_by]
        total: Expr = reduce(combiner, (count,), element)
        if initial is not None:
            total = combiner.combine((build.const(initial, total.dtype),), (total,))[0]
        if reduce_by == "mean":
            # Without an initial value the mean of nothing is 0 / 0.
            divisor = count if initial is None else build.maximum(count, 1)
            total = total / build.cast(build.maximum(divisor, 0), total.dtype)
        return build.cast(total, x.dtype)

    shape = (*starts.shape, *x.shape[cut + 1 :])
    return single((x, starts, stops), compute(name, shape, value))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="segment_reduce",
        inputs=("x", "starts", "stops"),
        attributes=(
            Attribute("reduce_by", doc="sum, mean, prod, max, min; or argmax: the i64 position along the axis"),
            Attribute("axis", 0),
            Attribute("initial", None, "takes part in every reduction; None is the neutral element"),
        ),
        define=_segment_reduce,
        reads_parts=True,
        doc="Reduces x[outer, n, inner] over positions starts[outer, s] to stops[outer, s] of an axis. The result is "
        "[outer, s, inner]. Positions outside of the axis are cut off; a segment of none gives "
        "the neutral element, its mean NaN, its argmax 0. torch.segment_reduce. Numbers.",
    ),
)
