"""Plain loops over a region: the innermost one vectorised, the outer ones shared among work items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.elementwise_access import RegionAccess
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, For, Stmt
from hidet.schedule.cost import extent_estimate
from hidet.schedule.lowering import KernelScope

# An innermost loop this short is unrolled, so that the next one is vectorised instead.
_MOST_UNROLLED = 4


@dataclass(frozen=True, slots=True, eq=False)
class ElementwiseKernel:
    """A kernel of (pointers to `operands`, to the result, sizes of `scope`) and how it is launched.

    elements: of the whole grid, for the estimate of its cost. called: functions that it calls.
    """

    function: Function
    operands: tuple[Operand, ...]
    scope: KernelScope
    grid: tuple[Dim, ...]
    elements: Dim
    called: tuple[Function, ...] = ()


def plain_kernel(access: RegionAccess, item_elements: int) -> ElementwiseKernel:
    """The kernel of a region; a work item computes about `item_elements` elements that lie together."""
    loops, sizes = list(access.loops), list(access.sizes)
    elements = dims.product(sizes)
    if not loops:
        return finish(access, [], (1,), build.seq(access.compute()), 1)
    body, loops, sizes = _innermost(access, loops, sizes)
    depth = _shared_axis(sizes, item_elements)
    grid_vars = loops[:depth]
    for loop in reversed(loops[depth + 1 :]):
        kind = "vectorize" if loop is loops[-1] else "serial"
        body = For(loop, build.index(0), access.size(loop), body, kind=kind)  # type: ignore[arg-type]  # a LoopKind
    inner = dims.product(sizes[depth + 1 :])
    block = dims.maximum(1, dims.floordiv(item_elements, dims.maximum(1, inner)))
    item, start = build.size_var("item"), Var("start", build.INDEX)
    step = access.scope.size(block, "block")
    count = build.minimum(step, access.size(loops[depth]) - start)
    kind = "vectorize" if depth == len(loops) - 1 else "serial"
    shared = For(loops[depth], start, count, body, kind=kind)  # type: ignore[arg-type]  # a LoopKind
    stmts = build.seq([Declare(start, item * step), shared])
    grid = (*sizes[:depth], dims.ceildiv(sizes[depth], block))
    return finish(access, [*grid_vars, item], grid, stmts, elements)


def finish(
    access: RegionAccess,
    grid_vars: Sequence[Var],
    grid: tuple[Dim, ...],
    body: Stmt,
    elements: Dim,
    called: tuple[Function, ...] = (),
) -> ElementwiseKernel:
    """The kernel with this body."""
    variables = tuple(grid_vars) or (build.size_var("item"),)
    function = Function("elementwise", access.scope.params, body, kind="kernel", grid_vars=variables)
    return ElementwiseKernel(function, access.operands, access.scope, grid, elements, called)


def _innermost(access: RegionAccess, loops: list[Var], sizes: list[Dim]) -> tuple[Stmt, list[Var], list[Dim]]:
    """One element's statements, or those of a short innermost loop, and the loops around them."""
    last, count = loops[-1], sizes[-1]
    if len(loops) > 1 and isinstance(count, int) and count <= _MOST_UNROLLED:
        unrolled: list[Stmt] = []
        for number in range(count):
            at: dict[Var, Expr] = {last: build.index(number)}
            unrolled += access.compute(at=at)
        return build.seq(unrolled), loops[:-1], sizes[:-1]
    return build.seq(access.compute()), loops, sizes


def _shared_axis(sizes: Sequence[Dim], item_elements: int) -> int:
    """The axis that work items share: all inside it fits into one item."""
    inner = 1
    for axis in reversed(range(len(sizes))):
        inner *= max(1, extent_estimate(sizes[axis]))
        if inner > item_elements:
            return axis
    return 0
