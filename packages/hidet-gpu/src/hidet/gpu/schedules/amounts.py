"""Arithmetic of cost models on numbers that are known, and on those that only a call tells: one formula for both."""

from __future__ import annotations

import functools

from hidet.ir import build
from hidet.ir.expr import Expr

Amount = int | float | Expr
"""A number, or an i64 expression of host code, which counts whole units: quotients are rounded down."""


def ratio(a: Amount, b: Amount) -> Amount:
    """a / b."""
    return a / b if not isinstance(a, Expr) and not isinstance(b, Expr) else build.binary("floordiv", a, b)


def ceil_ratio(a: Amount, b: Amount) -> Amount:
    """a / b of whole numbers, rounded up."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        return build.binary("floordiv", a + b - 1, b)
    return -(-a // b)


def largest(first: Amount, *others: Amount) -> Amount:
    """The largest of some amounts."""
    return functools.reduce(_larger, others, first)


def smallest(first: Amount, *others: Amount) -> Amount:
    """The smallest of some amounts."""
    return functools.reduce(_smaller, others, first)


def _larger(a: Amount, b: Amount) -> Amount:
    return build.maximum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else max(a, b)


def _smaller(a: Amount, b: Amount) -> Amount:
    return build.minimum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else min(a, b)
