"""common_divisor: Euclid's algorithm on remainders (Knuth, "The Art of Computer Programming", vol. 2, 4.5.2), element
by element; a work item takes the elements along the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.ir.stmt import For
from hidet.schedule.routines.site import RoutineKernel, RoutineSite, unflatten


def common_divisor_program(site: RoutineSite) -> RoutineKernel:
    """Result: the greatest common divisor of each pair; never negative, and 0 of two zeros."""
    a, b = site.stage.operands
    (result,) = site.stage.results
    item, column = build.size_var("item"), build.size_var("column")
    *outer, width = result.shape if result.rank else (1,)
    place = (*unflatten(item, [site.size(extent) for extent in outer]), column) if result.rank else ()
    k = IRBuilder()
    larger = k.let("larger", site.read(a, _broadcast(a, place, result.shape)))
    smaller = k.let("smaller", site.read(b, _broadcast(b, place, result.shape)))
    with k.while_(build.binary("ne", smaller, 0)):
        rest = k.let("rest", build.binary("rem", larger, smaller))
        k.assign(larger, smaller)
        k.assign(smaller, rest)
    divisor = build.select(larger < 0, -larger, larger) if a.dtype.is_signed else larger
    k.emit(site.write(result, place, divisor))
    return RoutineKernel(item, dims.product(outer), For(column, build.index(0), site.size(width), k.body))


def _broadcast(operand: Operand, place: Sequence[Expr], shape: Sequence[Dim]) -> list[Expr]:
    """Where an operand that repeats along axes of extent 1 is read."""
    skipped = len(place) - operand.rank
    rows = zip(place[skipped:], operand.shape, shape[skipped:], strict=True)
    return [build.index(0) if have == 1 and want != 1 else index for index, have, want in rows]
