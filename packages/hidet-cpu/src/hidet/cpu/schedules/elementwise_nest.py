"""Plain loops over a region: the innermost one vectorised, the outer ones shared among work items."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.elementwise_access import RegionAccess
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Stmt
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
    k = IRBuilder()
    if not loops:
        k.emit(*access.compute())
        return finish(access, [], (1,), k.body, 1)
    element, loops, sizes = _innermost(access, loops, sizes)
    depth = _shared_axis(sizes, item_elements)
    shared, *inner = loops[depth:]
    block = dims.maximum(1, dims.floordiv(item_elements, dims.maximum(1, dims.product(sizes[depth + 1 :]))))
    item = build.size_var("item")
    step = access.scope.size(block, "block")
    start = k.let("start", item * step)
    count = build.minimum(step, access.size(shared) - start)
    with ExitStack() as nest:
        nest.enter_context(k.loop(shared, count, start, kind="serial" if inner else "vectorize"))
        for loop in inner:
            nest.enter_context(k.loop(loop, access.size(loop), kind="vectorize" if loop is inner[-1] else "serial"))
        k.emit(element)
    grid = (*sizes[:depth], dims.ceildiv(sizes[depth], block))
    return finish(access, [*loops[:depth], item], grid, k.body, elements)


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
