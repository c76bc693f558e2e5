"""Combiners: associative ways of reducing values, such as sums, extremes with their places, and moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr

CombineFn = Callable[[Sequence[Expr], Sequence[Expr]], tuple[Expr, ...]]


IdentityFn = Callable[[Sequence[DType]], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class Combiner:
    """An associative, tuple-valued way of folding values.

    `identity(dtypes)` gives the neutral tuple, `combine(left, right)` folds two tuples; `left` comes earlier along the
    axis, which decides ties of arg-max. `numpy` names a ufunc that does the same to one value (None if there is none).
    """

    name: str
    identity: IdentityFn
    combine: CombineFn
    numpy: str | None = None


def _lowest(dtype: DType) -> Expr:
    if dtype.kind == "bool":
        return build.const(False, dtype)
    return build.const(-float("inf") if dtype.is_float else dtype.min, dtype)


def _highest(dtype: DType) -> Expr:
    if dtype.kind == "bool":
        return build.const(True, dtype)
    return build.const(float("inf") if dtype.is_float else dtype.max, dtype)


def _single(name: str, numpy: str, identity: Callable[[DType], Expr], op: str) -> Combiner:
    return Combiner(
        name,
        lambda types: (identity(types[0]),),
        lambda a, b: (build.binary(op, a[0], b[0]),),
        numpy,
    )


SUM = _single("sum", "add", lambda d: build.const(0, d), "add")


PRODUCT = _single("prod", "multiply", lambda d: build.const(1, d), "mul")


MAX = _single("max", "maximum", _lowest, "max")


MIN = _single("min", "minimum", _highest, "min")


ALL = _single("all", "logical_and", lambda d: build.const(True, d), "land")


ANY = _single("any", "logical_or", lambda d: build.const(False, d), "lor")


def _pick_extreme(op: str) -> CombineFn:
    def combine(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        """(value, index): the better value, the smaller index among equals; NaN beats every number."""
        better = build.binary(op, b[0], a[0])
        tie = build.logical_and(build.equal(a[0], b[0]), b[1] < a[1])
        take = build.binary("lor", better, tie)
        if a[0].dtype.is_float:
            a_nan, b_nan = build.unary("isnan", a[0]), build.unary("isnan", b[0])
            nan_take = build.logical_and(b_nan, build.binary("lor", build.unary("lnot", a_nan), b[1] < a[1]))
            take = build.binary("lor", build.logical_and(take, build.unary("lnot", a_nan)), nan_take)
        return build.select(take, b[0], a[0]), build.select(take, b[1], a[1])

    return combine


_LAST = dtypes.i64.max


ARGMAX = Combiner("argmax", lambda t: (_lowest(t[0]), build.const(_LAST, t[1])), _pick_extreme("gt"))


ARGMIN = Combiner("argmin", lambda t: (_highest(t[0]), build.const(_LAST, t[1])), _pick_extreme("lt"))


def _welford(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    """(mean, sum of squared deviations, count), merged as in Chan et al., 1979."""
    count = a[2] + b[2]
    safe = build.maximum(count, 1)
    delta = b[0] - a[0]
    mean = a[0] + delta * (b[2] / safe)
    return mean, a[1] + b[1] + delta * delta * (a[2] * b[2] / safe), count


WELFORD = Combiner("welford", lambda t: tuple(build.const(0, d) for d in t), _welford)


COMBINERS = {c.name: c for c in (SUM, PRODUCT, MAX, MIN, ALL, ANY, ARGMAX, ARGMIN, WELFORD)}
