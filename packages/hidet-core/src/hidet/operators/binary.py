"""Element-wise functions of two inputs: arithmetic, comparisons, logic, bits.

Both inputs have one element type and broadcast as numpy's do. bool takes part in add (or), mul (and), minimum and
maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, number
from hidet.errors import UnsupportedOp
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.elementwise import ElementwiseRow, spec_of
from hidet.operators.rules import Accepts, arithmetic_dtype, map_elements, require_dtype, require_same_dtype, truth

Function = Callable[[Expr, Expr], Expr]


def _scalar(op: str, of_bool: str | None = None) -> Function:
    """A scalar operation, and the one that takes its place for bool."""
    return lambda a, b: build.binary(of_bool if of_bool is not None and a.dtype.is_bool else op, a, b)


def _scaled(alpha: float, b: Expr) -> Expr:
    return b if alpha == 1 else b * number(alpha, b.dtype)


def _add(a: Expr, b: Expr, alpha: float) -> Expr:
    if a.dtype.is_bool:
        return build.binary("lor", a, b) if alpha else a
    return a + _scaled(alpha, b)


def _floor_divide(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return a // b
    # Python's algorithm: (a - rest) / b is a whole number up to rounding, which the last step removes.
    rest = build.binary("rem", a, b)
    exact = (a - rest) / b
    quotient = build.select(_opposite_signs(rest, b), exact - 1, exact)
    floor = build.unary("floor", quotient)
    rounded = build.select(quotient - floor > 0.5, floor + 1, floor)
    signed_zero = build.binary("copysign", build.const(0, a.dtype), a / b)
    whole = build.select(build.equal(quotient, 0), signed_zero, rounded)
    return build.select(build.equal(b, 0), a / b, whole)


def _trunc_divide(a: Expr, b: Expr) -> Expr:
    return build.unary("trunc", a / b) if a.dtype.is_float else build.binary("truncdiv", a, b)


def _remainder(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return a % b
    rest = build.binary("rem", a, b)
    return build.select(_opposite_signs(rest, b), rest + b, rest)


def _opposite_signs(rest: Expr, b: Expr) -> Expr:
    """Whether a remainder that is not zero and a divisor have different signs."""
    return build.logical_and(build.binary("ne", rest, 0), build.binary("ne", rest < 0, b < 0))


def _ignoring_nan(op: str) -> Function:
    def value(a: Expr, b: Expr) -> Expr:
        if not a.dtype.is_float:
            return build.binary(op, a, b)
        chosen = build.select(build.unary("isnan", b), a, build.binary(op, a, b))
        return build.select(build.unary("isnan", a), b, chosen)

    return value


def _heaviside(x: Expr, values: Expr) -> Expr:
    step = build.select(x > 0, build.const(1, x.dtype), build.const(0, x.dtype))
    return build.select(build.equal(x, 0), values, step)


def _zero_times(function: str) -> Function:
    """x * function(y), 0 where x is 0, NaN where y is."""

    def value(x: Expr, y: Expr) -> Expr:
        product = build.select(build.equal(x, 0), build.const(0, x.dtype), x * build.unary(function, y))
        return build.select(build.unary("isnan", y), y, product)

    return value


def _log_add(exp: str, log1p: Function) -> Function:
    """log(base**a + base**b) without overflow; two equal infinities give themselves."""

    def value(a: Expr, b: Expr) -> Expr:
        same_infinity = build.logical_and(build.unary("isinf", a), build.equal(a, b))
        tail = build.unary(exp, -build.unary("abs", a - b))
        return build.select(same_infinity, a, log1p(build.maximum(a, b), tail))

    return value


def _shift_left(a: Expr, b: Expr) -> Expr:
    """Counts outside the width of the type give 0, as torch has it; the machine would leave them undefined."""
    inside = build.logical_and(b >= 0, b < a.dtype.bits) if b.dtype.is_signed else b < a.dtype.bits
    count = build.select(inside, b, build.const(0, b.dtype))
    return build.select(inside, build.binary("shl", a, count), build.const(0, a.dtype))


def _shift_right(a: Expr, b: Expr) -> Expr:
    """Counts outside the width give the sign of `a` everywhere."""
    most = a.dtype.bits - (1 if a.dtype.is_signed else 0)
    inside = build.logical_and(b >= 0, b < most) if b.dtype.is_signed else b < most
    shifted = build.binary("shr", a, build.select(inside, b, build.const(a.dtype.bits - 1, b.dtype)))
    return shifted if a.dtype.is_signed else build.select(inside, shifted, build.const(0, a.dtype))


def _order(op: str) -> Function:
    """An order comparison; bool is ordered as 0 and 1."""

    def value(a: Expr, b: Expr) -> Expr:
        if a.dtype.is_bool:
            a, b = build.cast(a, dtypes.u8), build.cast(b, dtypes.u8)
        return build.binary(op, a, b)

    return value


def _isclose(a: Expr, b: Expr, rtol: float, atol: float, equal_nan: bool) -> Expr:
    same = build.equal(a, b)
    if equal_nan:
        both_nan = build.logical_and(build.unary("isnan", a), build.unary("isnan", b))
        same = build.binary("lor", same, both_nan)
    distance = build.unary("abs", a - b)
    near = build.logical_and(distance <= build.unary("abs", b) * rtol + atol, build.unary("isfinite", distance))
    return build.binary("lor", same, near)


def _row(
    name: str, value: Callable[..., Expr], doc: str, accepts: Accepts = "number", *attributes: Attribute
) -> ElementwiseRow:
    return ElementwiseRow(name, value, doc, accepts, ("a", "b"), attributes)


_ALPHA = Attribute("alpha", 1)

_ROWS = (
    _row("add", _add, "a + alpha * b; or, for bool.", "any", _ALPHA),
    _row("sub", lambda a, b, alpha: a - _scaled(alpha, b), "a - alpha * b.", "number", _ALPHA),
    _row("mul", _scalar("mul", "land"), "a * b; and, for bool.", "any"),
    _row("div", _scalar("div"), "a / b.", "float"),
    _row("floor_divide", _floor_divide, "a / b rounded towards minus infinity."),
    _row("trunc_divide", _trunc_divide, "a / b rounded towards zero."),
    _row("remainder", _remainder, "a - b * floor(a / b): has the sign of b."),
    _row("fmod", _scalar("rem"), "a - b * trunc(a / b): has the sign of a."),
    _row("pow", _scalar("pow"), "a ** b; a negative power of an integer is rounded towards zero."),
    _row("atan2", _scalar("atan2"), "Angle in radians of the point (b, a).", "float"),
    _row("hypot", _scalar("hypot"), "sqrt(a * a + b * b) without overflow.", "float"),
    _row("minimum", _scalar("min", "land"), "The smaller; NaN if one is NaN.", "any"),
    _row("maximum", _scalar("max", "lor"), "The larger; NaN if one is NaN.", "any"),
    _row("fmin", _ignoring_nan("min"), "The smaller; the other one where one is NaN."),
    _row("fmax", _ignoring_nan("max"), "The larger; the other one where one is NaN."),
    _row("copysign", _scalar("copysign"), "|a| with the sign of b, also that of -0.", "float"),
    _row("heaviside", _heaviside, "0 for a below 0, b for 0, 1 above; NaN gives 0."),
    _row("xlogy", _zero_times("log"), "a * log(b); 0 where a is 0, NaN where b is.", "float"),
    _row("xlog1py", _zero_times("log1p"), "a * log1p(b); 0 where a is 0, NaN where b is.", "float"),
    _row(
        "logaddexp",
        _log_add("exp", lambda top, tail: top + build.unary("log1p", tail)),
        "log(e ** a + e ** b) without overflow.",
        "float",
    ),
    _row(
        "logaddexp2",
        _log_add("exp2", lambda top, tail: top + build.unary("log1p", tail) * (1 / math.log(2))),
        "log2(2 ** a + 2 ** b) without overflow.",
        "float",
    ),
    _row("prelu", lambda x, w: build.select(x > 0, x, w * x), "a above 0, else b * a.", "float"),
    _row("bitwise_and", _scalar("and", "land"), "Bits set in both.", "bits"),
    _row("bitwise_or", _scalar("or", "lor"), "Bits set in one or both.", "bits"),
    _row("bitwise_xor", _scalar("xor", "ne"), "Bits set in exactly one.", "bits"),
    _row("shift_left", _shift_left, "a * 2 ** b, bits lost; 0 for counts outside the width.", "int"),
    _row("shift_right", _shift_right, "a shifted by b, keeping the sign; sign bits only for counts outside.", "int"),
    _row("equal", _scalar("eq"), "a == b; bool.", "any"),
    _row("not_equal", _scalar("ne"), "a != b; bool.", "any"),
    _row("less", _order("lt"), "a < b; bool.", "any"),
    _row("less_equal", _order("le"), "a <= b; bool.", "any"),
    _row("greater", _order("gt"), "a > b; bool.", "any"),
    _row("greater_equal", _order("ge"), "a >= b; bool.", "any"),
    _row("logical_and", lambda a, b: build.logical_and(truth(a), truth(b)), "Both are not zero; bool.", "any"),
    _row("logical_or", lambda a, b: build.binary("lor", truth(a), truth(b)), "One or both not zero; bool.", "any"),
    _row("logical_xor", lambda a, b: build.binary("ne", truth(a), truth(b)), "Exactly one is not zero; bool.", "any"),
    _row(
        "isclose",
        _isclose,
        "|a - b| <= atol + rtol * |b|, or a == b; bool. NaN equals NaN when equal_nan.",
        "float",
        Attribute("rtol", 1e-5),
        Attribute("atol", 1e-8),
        Attribute("equal_nan", False),
    ),
)


def _nextafter(a: Operand, b: Operand) -> Definition:
    require_dtype("nextafter", a, "float")
    if arithmetic_dtype(require_same_dtype("nextafter", (a, b))) != a.dtype:
        raise UnsupportedOp(f"operator nextafter is defined for f32 and f64, got {a.dtype}")
    return map_elements("nextafter", (a, b), lambda x, y: build.binary("nextafter", x, y))


SPECS: tuple[OperatorSpec, ...] = (
    *map(spec_of, _ROWS),
    OperatorSpec(
        name="nextafter",
        inputs=("a", "b"),
        define=_nextafter,
        doc="The neighbour of a in the direction of b; f32 and f64. Element-wise with numpy broadcasting.",
    ),
)
