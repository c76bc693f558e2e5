"""Turning a scalar expression into one of SIMD vectors along one of its variables."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.cpu.math.functions import has_vector_form
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Binary, Cast, Const, Expr, Reduce, Select, Size, Unary, Var
from hidet.ir.visit import accesses

Leaf = Callable[[Expr], "Expr | None"]


def lane_wise(value: Expr, lanes: int, leaf: Leaf) -> Expr | None:
    """`value` for `lanes` neighbouring values of a variable; None when an operand cannot be had as a vector.

    leaf: for a variable, access or reduction, the vector it becomes (or a scalar, when it is the same in every lane);
    None when that is impossible. What is the same in every lane stays scalar, index arithmetic above all.
    """
    known: dict[int, Expr | None] = {}

    def visit(node: Expr) -> Expr | None:
        if id(node) not in known:
            known[id(node)] = change(node)
        return known[id(node)]

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Const | Size):
            return node
        if isinstance(node, Var | Access | Reduce):
            return leaf(node)
        if not isinstance(node, Unary | Binary | Select | Cast):
            return None
        parts = [visit(child) for child in node.children() if isinstance(child, Expr)]
        present = [part for part in parts if part is not None]
        if len(present) != len(parts):
            return None
        if isinstance(node, Unary | Binary):
            if any(part.lanes > 1 for part in present) and not has_vector_form(node.op, len(present), present[0].dtype):
                return None
            return build.unary(node.op, *present) if isinstance(node, Unary) else build.binary(node.op, *present)
        if isinstance(node, Select):
            return _select(node, present[0], present[1], present[2], lanes)
        return build.cast(present[0], node.dtype)

    result = visit(value)
    return None if result is None else _as_vector(result, lanes)


def _select(node: Select, condition: Expr, a: Expr, b: Expr, lanes: int) -> Expr | None:
    """A scalar condition decides for all lanes, so that what is not chosen is not read either.

    A vector condition evaluates both sides; that is allowed when it reads everything they read itself.
    """
    if isinstance(condition, Const):
        return a if condition.value else b
    if a.lanes > 1 or b.lanes > 1 or condition.lanes > 1:
        a, b = _as_vector(a, lanes), _as_vector(b, lanes)
    if condition.lanes == 1:
        return Select(condition, a, b, a.type)
    read = {id(access) for access in accesses(node.condition)}
    if any(id(access) not in read for side in (node.a, node.b) for access in accesses(side)):
        return None
    return build.select(condition, a, b)


def leading_lanes(k: IRBuilder, count: Expr, lanes: int) -> Var:
    """A mask whose first `count` of `lanes` are set."""
    numbers = k.array("lane_numbers", dtypes.i32, lanes, space="local")
    for lane in range(lanes):
        k.store(numbers, lane, build.const(lane, dtypes.i32))
    limit = build.broadcast(build.cast(count, dtypes.i32), lanes)
    return k.let("mask", build.load(numbers, 0, lanes=lanes) < limit)


def _as_vector(value: Expr, lanes: int) -> Expr:
    return build.broadcast(value, lanes) if value.lanes == 1 else value
