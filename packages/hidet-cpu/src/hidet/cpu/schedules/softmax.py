"""Softmax and log-softmax along any axis, with element-wise operators fused before and after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from hidet import dtypes
from hidet.cpu.math.coefficients import EXP, LN2
from hidet.cpu.math.exponential import LOG2_E
from hidet.cpu.math.format import SINGLE
from hidet.cpu.math.steps import as_bits, from_bits, polynomial, shift_left
from hidet.cpu.schedules.row_rule import RowRule
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.schedule.rows import Rework, Statistic


def _softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """Exponentials are kept and multiplied by the inverse of their sum, which lies between 1 and the row's length."""
    top, total = statistics
    total = replace(_of_distances(held, top, total), finish=1.0 / total.total, stored=True)
    return (top, total), build.cast(held * total.variable, final.dtype)


def _log_softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """One logarithm a row."""
    top, total = statistics
    total = replace(_of_distances(held, top, total), finish=build.unary("log", total.total))
    return (top, total), build.cast(held - top.variable - total.variable, final.dtype)


def _of_distances(held: Var, top: Statistic, total: Statistic) -> Statistic:
    """The sum of exponentials of distances from the largest element."""
    return replace(total, value=held - top.variable, function=_exp_of_nonpositive)


def _exp_of_nonpositive(x: Expr) -> Expr:
    """e**x of x <= 0, NaN for NaN; error below 1.5 ulp. Three quarters of the operations of the general function.

    x = n ln(2) + r as in `hidet.cpu.math.exponential`, n in [-152, 0]. The rounding of n leaves the exponent field of
    2**(n + 25) in the low bits; what lies above it is shifted out. The polynomial gives e**r * 2**-25, and the product
    of both is rounded once, also to a subnormal number. For n = -152 the field is 0 and so is the factor: x86 takes
    more than a hundred cycles for a product that underflows, and masked elements of -inf would all be such.
    """
    if x.dtype is not dtypes.f32:
        return build.unary("exp", x)
    down = 2.0**-25
    high, low = LN2["single"]
    magic = SINGLE.magic + SINGLE.bias + 25
    inside = build.maximum(x, -105.3)
    shifted = inside * LOG2_E + magic
    whole = shifted - magic
    r = inside - whole * high - whole * low
    near = r * r * polynomial(r, [c * down for c in EXP["single"]]) + (r * down + down)
    return near * from_bits(shift_left(as_bits(shifted, dtypes.i32), SINGLE.mantissa), dtypes.f32)


class SoftmaxRule(RowRule):
    """Schedules softmax and log_softmax."""

    reworks: ClassVar[Mapping[str, Rework]] = {"softmax": _softmax, "log_softmax": _log_softmax}
    # Mostly for the exponential.
    picoseconds: ClassVar[int] = 250
