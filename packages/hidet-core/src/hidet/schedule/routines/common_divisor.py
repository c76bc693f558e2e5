"""common_divisor: Euclid's algorithm on remainders (Knuth, "The Art of Computer Programming", vol. 2, 4.5.2), element
by element; a work item takes the elements along the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, For, While
from hidet.schedule.routines.site import RoutineKernel, RoutineSite, unflatten


def common_divisor_program(site: RoutineSite) -> RoutineKernel:
    """Result: the greatest common divisor of each pair; never negative, and 0 of two zeros."""
    a, b = site.stage.operands
    (result,) = site.stage.results
    item, column = build.size_var("item"), build.size_var("column")
    *outer, width = result.shape if result.rank else (1,)
    place = (*unflatten(item, [site.size(extent) for extent in outer]), column) if result.rank else ()
    larger, smaller, rest = (Var(name, a.dtype) for name in ("larger", "smaller", "rest"))
    step = [
        Declare(rest, build.binary("rem", larger, smaller)),
        Assign(larger, smaller),
        Assign(smaller, rest),
    ]
    divisor: Expr = larger
    if a.dtype.is_signed:
        divisor = build.select(larger < 0, -larger, larger)
    body = [
        Declare(larger, site.read(a, _broadcast(a, place, result.shape))),
        Declare(smaller, site.read(b, _broadcast(b, place, result.shape))),
        While(build.binary("ne", smaller, 0), build.seq(step)),
        site.write(result, place, divisor),
    ]
    return RoutineKernel(item, dims.product(outer), For(column, build.index(0), site.size(width), build.seq(body)))


def _broadcast(operand: Operand, place: Sequence[Expr], shape: Sequence[Dim]) -> list[Expr]:
    """Where an operand that repeats along axes of extent 1 is read."""
    skipped = len(place) - operand.rank
    rows = zip(place[skipped:], operand.shape, shape[skipped:], strict=True)
    return [build.index(0) if have == 1 and want != 1 else index for index, have, want in rows]
