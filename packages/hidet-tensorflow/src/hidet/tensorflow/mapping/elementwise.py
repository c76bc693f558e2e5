"""One element in, one element out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.items import Complex, Item

# TensorFlow operator -> core operator: one operand.
_UNARY = {
    **{name: name.lower() for name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos")},
    **{name: name.lower() for name in ("Cosh", "Digamma", "Elu", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor")},
    **{
        name: name.lower()
        for name in ("IsFinite", "IsInf", "IsNan", "Lgamma", "Log", "Log1p", "Ndtri", "Neg", "Reciprocal")
    },
    **{name: name.lower() for name in ("Relu", "Relu6", "Round", "Rsqrt", "Selu", "Sigmoid", "Sin", "Sinh")},
    **{name: name.lower() for name in ("Softsign", "Sqrt", "Square", "Tan", "Tanh")},
    "BesselI0": "bessel_i0",
    "BesselI0e": "bessel_i0e",
    "BesselI1": "bessel_i1",
    "BesselI1e": "bessel_i1e",
    **{f"Bessel{kind}": f"bessel_{kind.lower()}" for kind in ("J0", "J1", "K0", "K0e", "K1", "K1e", "Y0", "Y1")},
    "Inv": "reciprocal",
    "Invert": "bitwise_not",
    "LogicalNot": "logical_not",
    "Rint": "round",
}

# TensorFlow operator -> core operator: two operands of one type, which broadcast.
_BINARY = {
    "Add": "add",
    "AddV2": "add",
    "Atan2": "atan2",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "FloorDiv": "floor_divide",
    "FloorMod": "remainder",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "LeftShift": "shift_left",
    "Less": "less",
    "LessEqual": "less_equal",
    "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mod": "fmod",
    "Mul": "mul",
    "NextAfter": "nextafter",
    "RealDiv": "div",
    "RightShift": "shift_right",
    "Sub": "sub",
    "TruncateDiv": "trunc_divide",
    "TruncateMod": "fmod",
    "Zeta": "zeta",
}

# What a value goes through unchanged: for gradients, for checks, for other threads.
_SAME = (
    "CheckNumerics",
    "CheckNumericsV2",
    "GuaranteeConst",
    "Identity",
    "PlaceholderWithDefault",
    "PreventGradient",
    "Snapshot",
    "StopGradient",
)


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        **{name: _unary(core) for name, core in _UNARY.items()},
        **{name: _binary(core) for name, core in _BINARY.items()},
        **dict.fromkeys(_SAME, _same),
        "IdentityN": lambda e, *items, **_: items,
        "AddN": _sum,
        "AccumulateNV2": _sum,
        "ApproximateEqual": _nearly_equal,
        "Bitcast": lambda e, x, type: e.emit("bitcast", x, dtype=type),
        "Cast": _cast,
        "ClipByValue": lambda e, x, low, high: e.emit("clamp_tensor", x, low, high),
        "Div": _divide,
        "DivNoNan": lambda e, a, b: _zero_where_zero(e, b, e.emit("div", a, b)),
        "Equal": _compare("equal"),
        "LeakyRelu": lambda e, x, alpha: e.emit("leaky_relu", x, negative_slope=alpha),
        "MulNoNan": lambda e, a, b: _zero_where_zero(e, b, e.emit("mul", a, b)),
        "NotEqual": _compare("not_equal"),
        "Pow": lambda e, a, b: e.emit("pow", a, b),
        "Select": _select_rows,
        "SelectV2": lambda e, condition, x, y: e.emit("where", condition, x, y),
        "Sign": _sign,
        "Softplus": _softplus,
        "SquaredDifference": lambda e, a, b: e.emit("square", e.emit("sub", a, b)),
        "Xdivy": lambda e, a, b: _zero_where_zero(e, a, e.emit("div", a, b)),
        "Xlog1py": lambda e, a, b: _zero_where_zero(e, a, e.emit("mul", a, e.emit("log1p", b))),
        "Xlogy": lambda e, a, b: _zero_where_zero(e, a, e.emit("mul", a, e.emit("log", b))),
    }


def _unary(core: str) -> Handler:
    return lambda e, x, **_: e.emit(core, x)


def _binary(core: str) -> Handler:
    return lambda e, a, b: e.emit(core, a, b)


def _same(e: Emitter, item: Any, **_: Any) -> Any:
    return item


def _cast(e: Emitter, x: Value, DstT: DType, Truncate: bool = False) -> Item:
    if not DstT.is_complex:
        return e.cast(x, DstT)
    part = e.cast(x, dtypes.f32 if DstT == dtypes.c64 else dtypes.f64)
    return Complex(part, e.emit("full", shape=part.tensor.shape, value=0, dtype=part.tensor.dtype))


def _compare(core: str) -> Handler:
    """`incompatible_shape_error` says what happens where operands do not broadcast, which core refuses."""
    strings = {"equal": "string_equal"}

    def handler(e: Emitter, a: Value, b: Value, incompatible_shape_error: bool = True) -> Value:
        if a.tensor.dtype == dtypes.string:
            same = e.emit(strings["equal"], a, b)
            return same if core == "equal" else e.emit("logical_not", same)
        return e.emit(core, a, b)

    return handler


def _sum(e: Emitter, *terms: Value, **_: Any) -> Value:
    return reduce(lambda a, b: e.emit("add", a, b), terms)


def _divide(e: Emitter, a: Value, b: Value) -> Value:
    """Integers are divided towards zero."""
    return e.emit("div" if a.tensor.dtype.is_float else "trunc_divide", a, b)


def _zero_where_zero(e: Emitter, tested: Value, result: Value) -> Value:
    zero = e.constant(0, tested.tensor.dtype)
    return e.emit("where", e.emit("equal", tested, zero), e.constant(0, result.tensor.dtype), result)


def _nearly_equal(e: Emitter, a: Value, b: Value, tolerance: float) -> Value:
    distance = e.emit("abs", e.emit("sub", a, b))
    return e.emit("less", distance, e.constant(tolerance, distance.tensor.dtype))


def _select_rows(e: Emitter, condition: Value, x: Value, y: Value) -> Value:
    """A condition with one axis chooses rows."""
    if condition.tensor.rank == 1 and x.tensor.rank > 1:
        condition = e.unsqueeze(condition, tuple(range(1, x.tensor.rank)))
    return e.emit("where", condition, x, y)


def _sign(e: Emitter, x: Value) -> Value:
    """NaN stays NaN."""
    sign = e.emit("sign", x)
    return e.emit("where", e.emit("isnan", x), x, sign) if x.tensor.dtype.is_float else sign


_LINEAR: Mapping[DType, float] = {dtypes.f64: 40.0}
"""From where on softplus is x, to all digits of the type."""


def _softplus(e: Emitter, x: Value) -> Value:
    return e.emit("softplus", x, threshold=_LINEAR.get(x.tensor.dtype, 20.0))
