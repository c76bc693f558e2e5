"""Sums of products of integer variables in a normal form: those of `hidet.dims`, which sizes have."""

from __future__ import annotations

from typing import Any

from hidet import dims
from hidet.dims import Dim, DimExpr
from hidet.errors import UnsupportedOp
from hidet.ir import build
from hidet.ir.expr import Binary, Cast, Const, Expr, Size, Unary, Var
from hidet.lang.operand import unwrapped, wrapped

Poli = DimExpr
"""Two are equal where they are the same sum: `a * (b + 1)` and `a + a * b`."""


def from_expr_to_poli(expr: Any) -> Dim:
    """The normal form of an expression of integers, in which a variable is the symbol of its name. UnsupportedOp for
    what is no sum or product."""
    given = unwrapped(expr)
    if isinstance(given, int | DimExpr):
        return given
    if isinstance(given, Const) and isinstance(given.value, int):
        return int(given.value)
    if isinstance(given, Var):
        return dims.symbol(given.name)
    if isinstance(given, Size):
        return given.dim
    if isinstance(given, Cast) and given.dtype.is_int:
        return from_expr_to_poli(given.a)
    if isinstance(given, Unary) and given.op == "neg":
        return dims.as_dim(0) - from_expr_to_poli(given.a)
    if isinstance(given, Binary) and given.op in ("add", "sub", "mul"):
        left, right = from_expr_to_poli(given.a), from_expr_to_poli(given.b)
        return left + right if given.op == "add" else left - right if given.op == "sub" else left * right
    raise UnsupportedOp(f"{given!r} is no sum of products", hint="hidet.dims has quotients and remainders, too")


def from_poli_to_expr(poli: Dim) -> Any:
    """An expression of a normal form; its symbols are sizes."""
    made: Expr = build.index(poli)
    return wrapped(made)


__all__ = ["Poli", "from_expr_to_poli", "from_poli_to_expr"]
