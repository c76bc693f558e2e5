"""Element-wise functions of one input: arithmetic, exponentials, trigonometry, rounding, tests."""

from __future__ import annotations

import math
from collections.abc import Callable

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr
from hidet.operators.elementwise import ElementwiseRow, clamp, spec_of
from hidet.operators.rules import arithmetic_dtype, map_elements, require_dtype, truth, widen


def _scalar(op: str) -> Callable[[Expr], Expr]:
    return lambda x: build.unary(op, x)


def _of_float(op: str) -> Callable[[Expr], Expr]:
    """Rounding functions: integers are returned unchanged."""
    return lambda x: build.unary(op, x) if x.dtype.is_float else x


def _test(op: str, of_integers: bool) -> Callable[[Expr], Expr]:
    """Tests of float properties, which integers have always or never."""
    return lambda x: build.unary(op, x) if x.dtype.is_float else build.const(of_integers, dtypes.boolean)


def _sign(x: Expr) -> Expr:
    if x.dtype.is_bool:
        return x
    zero, one = build.const(0, x.dtype), build.const(1, x.dtype)
    positive = build.select(x > zero, one, zero)
    if not x.dtype.is_signed:
        return positive
    return build.select(x < zero, build.const(-1, x.dtype), positive)


def _abs(x: Expr) -> Expr:
    return build.unary("abs", x) if x.dtype.is_signed else x


def _sinc(x: Expr) -> Expr:
    angle = x * math.pi
    return build.select(build.equal(x, 0), build.const(1, x.dtype), build.unary("sin", angle) / angle)


def _signbit(x: Expr) -> Expr:
    if not x.dtype.is_float:
        return x < 0 if x.dtype.is_signed else build.const(False, dtypes.boolean)
    return build.binary("copysign", build.const(1, x.dtype), x) < 0


def _round(x: Expr, decimals: int) -> Expr:
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return build.unary("round", x)
    scale = 10.0 ** abs(decimals)
    return build.unary("round", x * scale) / scale if decimals > 0 else build.unary("round", x / scale) * scale


def _logit(x: Expr, eps: float | None) -> Expr:
    if eps is not None:
        x = clamp(x, eps, 1 - eps)
    return build.unary("log", x / (1 - x))


def _nan_to_num(x: Operand, *, nan: float, posinf: float | None, neginf: float | None) -> Definition:
    require_dtype("nan_to_num", x, "number")
    high = x.dtype.max if posinf is None else posinf
    low = x.dtype.min if neginf is None else neginf

    def value(element: Expr) -> Expr:
        if not element.dtype.is_float:
            return element
        wide = widen(element)
        result = build.select(build.equal(wide, math.inf), build.const(high, wide.dtype), wide)
        result = build.select(build.equal(wide, -math.inf), build.const(low, wide.dtype), result)
        result = build.select(build.unary("isnan", wide), build.const(nan, wide.dtype), result)
        return build.cast(result, element.dtype)

    return map_elements("nan_to_num", (x,), value)


def _bitwise_not(x: Expr) -> Expr:
    return build.unary("lnot", x) if x.dtype.is_bool else build.unary("not", x)


def _infinite(sign: float) -> Callable[[Expr], Expr]:
    return lambda x: build.equal(x, sign * math.inf) if x.dtype.is_float else build.const(False, dtypes.boolean)


_SCALAR_FUNCTIONS = {
    "exp": "e ** x.",
    "exp2": "2 ** x.",
    "expm1": "e ** x - 1, exact near 0.",
    "log": "Natural logarithm; NaN below 0.",
    "log2": "Logarithm to base 2; NaN below 0.",
    "log10": "Logarithm to base 10; NaN below 0.",
    "log1p": "log(1 + x), exact near 0.",
    "sqrt": "Square root; NaN below 0.",
    "rsqrt": "1 / sqrt(x).",
    "sin": "Sine of an angle in radians.",
    "cos": "Cosine of an angle in radians.",
    "tan": "Tangent of an angle in radians.",
    "asin": "Inverse sine, in radians.",
    "acos": "Inverse cosine, in radians.",
    "atan": "Inverse tangent, in radians.",
    "sinh": "Hyperbolic sine.",
    "cosh": "Hyperbolic cosine.",
    "tanh": "Hyperbolic tangent.",
    "asinh": "Inverse hyperbolic sine.",
    "acosh": "Inverse hyperbolic cosine; NaN below 1.",
    "atanh": "Inverse hyperbolic tangent; NaN outside [-1, 1].",
    "erf": "Error function.",
    "erfc": "1 - erf(x), exact for large x.",
    "erfinv": "Inverse error function on [-1, 1].",
    "lgamma": "Logarithm of the absolute value of the gamma function.",
    "digamma": "Derivative of the logarithm of the gamma function.",
}

_ROWS = (
    *(ElementwiseRow(name, _scalar(name), doc) for name, doc in _SCALAR_FUNCTIONS.items()),
    ElementwiseRow("reciprocal", lambda x: 1 / x, "1 / x."),
    ElementwiseRow("neg", lambda x: -x, "-x; unsigned integers wrap around.", "number"),
    ElementwiseRow("abs", _abs, "|x|.", "number"),
    ElementwiseRow("sign", _sign, "-1, 0 or 1; NaN gives 0.", "any"),
    ElementwiseRow("square", lambda x: x * x, "x * x.", "number"),
    ElementwiseRow("floor", _of_float("floor"), "Largest integer not above x.", "number"),
    ElementwiseRow("ceil", _of_float("ceil"), "Smallest integer not below x.", "number"),
    ElementwiseRow("trunc", _of_float("trunc"), "x without its fraction.", "number"),
    ElementwiseRow("frac", lambda x: x - build.unary("trunc", x), "x - trunc(x), with the sign of x."),
    ElementwiseRow(
        "round",
        _round,
        "Nearest number with that many decimals (negative: powers of ten); halves go to the even neighbour.",
        "number",
        attributes=(Attribute("decimals", 0),),
    ),
    ElementwiseRow("sinc", _sinc, "sin(pi x) / (pi x); 1 at 0."),
    ElementwiseRow("deg2rad", lambda x: x * (math.pi / 180), "Degrees as radians."),
    ElementwiseRow("rad2deg", lambda x: x * (180 / math.pi), "Radians as degrees."),
    ElementwiseRow(
        "logit",
        _logit,
        "log(x / (1 - x)), x first clamped to [eps, 1 - eps] unless eps is None.",
        attributes=(Attribute("eps", None),),
    ),
    ElementwiseRow("isnan", _test("isnan", False), "Whether x is NaN; bool.", "any"),
    ElementwiseRow("isinf", _test("isinf", False), "Whether x is infinite; bool.", "any"),
    ElementwiseRow("isfinite", _test("isfinite", True), "Whether x is neither infinite nor NaN; bool.", "any"),
    ElementwiseRow("isposinf", _infinite(1.0), "Whether x is plus infinity; bool.", "any"),
    ElementwiseRow("isneginf", _infinite(-1.0), "Whether x is minus infinity; bool.", "any"),
    ElementwiseRow("signbit", _signbit, "Whether the sign bit is set, also that of -0; bool.", "any"),
    ElementwiseRow("logical_not", lambda x: build.unary("lnot", truth(x)), "Whether x is zero; bool.", "any"),
    ElementwiseRow("bitwise_not", _bitwise_not, "Every bit flipped; not for bool.", "bits"),
)


def _positive(x: Operand) -> Definition:
    require_dtype("positive", x, "data")
    return map_elements("positive", (x,), lambda element: element)


def _frexp(x: Operand) -> Definition:
    """Through the bits of the arithmetic type, in which f16 and bf16 have no subnormals."""
    require_dtype("frexp", x, "float")
    wide = arithmetic_dtype(x.dtype)
    bits = dtypes.u64 if wide.bits == 64 else dtypes.u32
    field = (1 << wide.exponent_bits) - 1

    def parts(element: Expr) -> tuple[Expr, Expr]:
        value = widen(element)
        is_special = build.binary("lor", build.equal(value, 0), build.unary("lnot", build.unary("isfinite", value)))
        is_small = build.unary("abs", value) < wide.smallest_normal
        # A power of two that makes every subnormal normal.
        scaled = build.select(is_small, value * 2.0 ** (wide.mantissa_bits + 1), value)
        code = Bitcast(scaled, bits)
        biased = build.binary("and", build.binary("shr", code, build.const(wide.mantissa_bits, bits)), field)
        shift = build.select(is_small, build.const(wide.mantissa_bits + 1, dtypes.i32), build.const(0, dtypes.i32))
        exponent = build.cast(biased, dtypes.i32) - (wide.bias - 1) - shift
        cleared = build.binary("and", code, build.const(~(field << wide.mantissa_bits) & ((1 << bits.bits) - 1), bits))
        half = build.binary("or", cleared, build.const((wide.bias - 1) << wide.mantissa_bits, bits))
        mantissa = build.select(is_special, value, Bitcast(half, wide))
        return build.cast(mantissa, x.dtype), build.select(is_special, build.const(0, dtypes.i32), exponent)

    stages = [
        compute(name, x.shape, lambda *axes, number=number: parts(x[axes])[number])
        for number, name in enumerate(("mantissa", "exponent"))
    ]
    return Definition((x,), tuple(stages), tuple(stage.result for stage in stages))


SPECS: tuple[OperatorSpec, ...] = (
    *map(spec_of, _ROWS),
    OperatorSpec(
        name="frexp",
        inputs=("x",),
        define=_frexp,
        doc="Mantissa m, 0.5 <= |m| < 1, and i32 exponent e with x = m * 2 ** e; zeros, infinities and NaN are their "
        "own mantissas, with exponent 0. torch.frexp. Takes a floating-point type.",
    ),
    OperatorSpec(
        name="positive",
        inputs=("x",),
        define=_positive,
        doc="x, of any element type that kernels can move; ONNX Identity, torch.positive.",
    ),
    OperatorSpec(
        name="nan_to_num",
        inputs=("x",),
        attributes=(Attribute("nan", 0.0), Attribute("posinf", None), Attribute("neginf", None)),
        define=_nan_to_num,
        doc="x with NaN and infinities replaced; posinf and neginf None mean the type's largest and smallest value.",
    ),
)
