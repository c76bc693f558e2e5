"""Building a function step by step: named intermediate values, and the arithmetic that several functions share.

Sums of products are written plainly: code generation may contract them to fused multiply-adds. `fma` is for the places
that are wrong without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet.cpu.math.format import Format
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Bitcast, Const, Expr, Number, Var
from hidet.ir.stmt import Declare, Stmt
from hidet.ir.types import with_lanes


class Steps:
    """The statements of a function under construction."""

    def __init__(self) -> None:
        self.statements: list[Stmt] = []

    def let(self, name: str, value: Expr) -> Expr:
        """A local variable that holds `value`; a variable or literal is returned as it is."""
        if isinstance(value, Var | Const):
            return value
        type_ = with_lanes(value.dtype, value.lanes)
        var = Var(name, type_)
        self.statements.append(Declare(var, value))
        return var


def like(x: Expr, value: Number) -> Expr:
    """A literal of the type of `x`, all lanes alike."""
    return build.broadcast(build.const(value, x.dtype), x.lanes)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """sum(coefficients[k] * x**k), by Horner's rule."""
    result = like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


def as_bits(x: Expr, dtype: DType) -> Expr:
    """The bits of a float as an integer of `dtype`."""
    return Bitcast(x, with_lanes(dtype, x.lanes))


def from_bits(x: Expr, dtype: DType) -> Expr:
    """The float of `dtype` with the bits of an integer."""
    return Bitcast(x, with_lanes(dtype, x.lanes))


def absolute(x: Expr) -> Expr:
    """|x|."""
    return build.unary("abs", x)


def square_root(x: Expr) -> Expr:
    """Square root, rounded correctly."""
    return build.unary("sqrt", x)


def nearest(x: Expr) -> Expr:
    """x rounded to an integer, ties to even."""
    return build.unary("round", x)


def copysign(x: Expr, sign: Expr) -> Expr:
    """|x| with the sign of `sign`."""
    return build.binary("copysign", x, sign)


def is_nan(x: Expr) -> Expr:
    """Whether x is NaN."""
    return build.unary("isnan", x)


def either(*conditions: Expr) -> Expr:
    """Whether one of the conditions holds."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = build.binary("lor", result, condition)
    return result


def both(*conditions: Expr) -> Expr:
    """Whether all conditions hold."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = build.binary("land", result, condition)
    return result


def negation(condition: Expr) -> Expr:
    """Whether the condition does not hold."""
    return build.unary("lnot", condition)


def shift_left(x: Expr, count: int) -> Expr:
    """x << count."""
    return build.binary("shl", x, count)


def shift_right(x: Expr, count: int) -> Expr:
    """x >> count; keeps the sign of signed integers."""
    return build.binary("shr", x, count)


def bit_and(x: Expr, mask: int) -> Expr:
    """x & mask."""
    return build.binary("and", x, mask)


def is_odd(x: Expr) -> Expr:
    """Whether the lowest bit of an integer is set."""
    return build.binary("ne", bit_and(x, 1), 0)


def flip_sign(s: Steps, x: Expr, sign_bits: Expr, form: Format) -> Expr:
    """x with its sign changed where the top bit of `sign_bits` is set."""
    top = bit_and(sign_bits, -(2 ** (form.bits.bits - 1)))
    return s.let("signed", from_bits(build.binary("xor", as_bits(x, form.bits), top), form.dtype))


def power_of_two(exponent: Expr, form: Format) -> Expr:
    """2**exponent of integers for which that is a normal number."""
    return from_bits(shift_left(exponent + form.bias, form.mantissa), form.dtype)


def scale(s: Steps, x: Expr, exponent: Expr, form: Format) -> Expr:
    """x * 2**exponent with one rounding, also where the result is subnormal or infinite; x is near 1."""
    half = s.let("half", shift_right(exponent, 1))
    return x * power_of_two(half, form) * power_of_two(exponent - half, form)


def two_sum(s: Steps, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(a + b rounded, its rounding error) (Knuth, TAOCP 4.2.2)."""
    total = s.let("total", a + b)
    other = s.let("other", total - a)
    return total, s.let("error", (a - (total - other)) + (b - other))


def fast_two_sum(s: Steps, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """As `two_sum`, for |a| >= |b| (Dekker 1971)."""
    total = s.let("total", a + b)
    return total, s.let("error", b - (total - a))


def two_product(s: Steps, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(a * b rounded, its rounding error)."""
    product = s.let("product", a * b)
    return product, s.let("error", fma(a, b, -product))
