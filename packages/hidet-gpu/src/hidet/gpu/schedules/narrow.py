"""Division of places in 32 bits, where their ranges are known to fit: several times as fast as in 64 bits, and by what
a launch tells a multiplication (`hidet.gpu.passes.invariant_division`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hidet import dims, dtypes
from hidet.dims import Dim, interval
from hidet.dims.interval import Interval
from hidet.ir import build
from hidet.ir.expr import Binary, Cast, Const, Expr, Select, Var
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.stmt import Assign, Declare, For
from hidet.ir.visit import rewrite, walk

_ALL: Interval = (None, None)
_WORD: Interval = (0, (1 << 32) - 1)
_DIVISOR: Interval = (1, (1 << 32) - 1)

COUNT: Interval = (1, (1 << 31) - 1)
"""Extents of a grid that is launched."""


def narrow_divisions(function: Function, known: Mapping[Var, Interval]) -> Function:
    """The kernel with quotients and remainders of i64 found by u32, where both operands are known to fit.

    known: what variables may be, both ends included.
    """
    ranges = _Ranges(function, known)

    def change(node: IRNode) -> IRNode | None:
        if not isinstance(node, Binary) or node.op not in ("floordiv", "mod") or node.type != dtypes.i64:
            return None
        if isinstance(node.b, Const) or not ranges.has(node.b, _DIVISOR):
            return None
        if ranges.has(node.a, _WORD):
            return _divided(node.op, node.a, node.b)
        # A little below zero, as places that a roll moves: one divisor more, and of a quotient one less.
        moved = node.a + node.b
        if not ranges.has(moved, _WORD):
            return None
        found = _divided(node.op, moved, node.b)
        return found - 1 if node.op == "floordiv" else found

    return replace(function, body=rewrite(function.body, change))


def _divided(op: str, a: Expr, b: Expr) -> Expr:
    return build.cast(build.binary(op, build.cast(a, dtypes.u32), build.cast(b, dtypes.u32)), dtypes.i64)


def places_of(extent: Dim) -> Interval:
    """The places along an axis of that extent."""
    return (0, interval.add(dims.bounds(extent), (-1, -1))[1])


class _Ranges:
    """What integers of a kernel may be."""

    def __init__(self, function: Function, known: Mapping[Var, Interval]) -> None:
        nodes = list(walk(function.body))
        assigned = {node.var for node in nodes if isinstance(node, Assign)}
        self._declared = {
            node.var: node.init
            for node in nodes
            if isinstance(node, Declare) and node.init is not None and node.var not in assigned
        }
        self._loops = {node.var: node for node in nodes if isinstance(node, For)}
        self._known: dict[Any, Interval] = dict(known)

    def has(self, value: Expr, wanted: Interval) -> bool:
        """Whether all that a value may be lies between two numbers."""
        lower, upper = self._of(value)
        least, most = wanted
        return (
            lower is not None
            and upper is not None
            and least is not None
            and most is not None
            and (least <= lower and upper <= most)
        )

    def _of(self, value: Expr) -> Interval:
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._find(value)
        return known

    def _find(self, value: Expr) -> Interval:
        match value:
            case Const(value=int() as number):
                return (number, number)
            case Var() if value in self._declared:
                return self._of(self._declared[value])
            case Var() if value in self._loops:
                loop = self._loops[value]
                return interval.add(self._of(loop.start), (0, interval.add(self._of(loop.extent), (-1, -1))[1]))
            case Cast() if value.type == dtypes.i64:
                return self._of(value.a)
            case Cast() if value.type == dtypes.u32:
                return self._of(value.a) if self.has(value.a, _WORD) else _WORD
            case Binary() if value.type == dtypes.u32 and value.op in ("floordiv", "mod"):
                return self._combine(value.op, self._of(value.a), self._of(value.b))
            case Select():
                (a, b), (c, d) = self._of(value.a), self._of(value.b)
                return (None if a is None or c is None else min(a, c), None if b is None or d is None else max(b, d))
            case Binary() if value.type == dtypes.i64:
                return self._combine(value.op, self._of(value.a), self._of(value.b))
        return _ALL

    def _combine(self, op: str, a: Interval, b: Interval) -> Interval:
        match op:
            case "add":
                return interval.add(a, b)
            case "sub":
                return interval.add(a, interval.multiply(b, (-1, -1)))
            case "mul":
                return interval.multiply(a, b)
            case "min":
                return interval.minimum((a, b))
            case "max":
                return interval.maximum((a, b))
            case "floordiv" | "mod" if b[0] is not None and b[0] > 0:
                return interval.floordiv(a, b) if op == "floordiv" else interval.modulo(a, b, 1)
        return _ALL
