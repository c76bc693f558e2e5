"""assert_positions: each work item asserts one position. Nothing is read at positions here, so none has to be right."""

from __future__ import annotations

from hidet import dims, dtypes
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.ir.stmt import Assert
from hidet.schedule.routines.site import RoutineKernel, RoutineSite, unflatten


def assert_positions_program(site: RoutineSite) -> RoutineKernel:
    """Result: a token that nobody reads."""
    (positions,), (token,) = site.stage.operands, site.stage.results
    attributes = site.stage.attribute_values()
    extent, wraps, what = attributes["extent"], attributes["wraps"], attributes["what"]
    item = build.size_var("item")
    size = site.size(extent)
    place = unflatten(item, [site.size(n) for n in positions.shape])
    least: Expr = -size if wraps else build.index(0)
    expected = f"{-extent if wraps else 0} to {extent - 1}"
    k = IRBuilder()
    with k.if_(build.equal(item, build.index(0))):
        k.emit(site.write(token, (), build.const(True, dtypes.boolean)))
    position = k.let("position", build.cast(site.read(positions, place), dtypes.i64))
    is_inside = build.logical_and(position >= least, position < size)
    k.emit(Assert(is_inside, f"{what} has a position outside of its axis, expected {expected}"))
    return RoutineKernel(item, dims.product(positions.shape), k.body)
