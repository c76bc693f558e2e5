"""One element in, one element out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

from hidet import dtypes
from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.graph.types import is_host_value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.broadcast import legacy_operands
from hidet.onnx.mapping.quantize import to_small_float
from hidet.onnx.value_types import dtype_of, onnx_number
from onnx import TensorProto

# ONNX operator -> (first version, core operator): no attributes, one input.
_UNARY: dict[str, tuple[int, str]] = {
    **{name: (1, name.lower()) for name in ("Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu")},
    **{name: (1, name.lower()) for name in ("Sigmoid", "Sqrt", "Tanh")},
    **{name: (1, name.lower()) for name in ("Softplus", "Softsign")},
    **{name: (7, name.lower()) for name in ("Acos", "Asin", "Atan", "Cos", "Sin", "Tan")},
    **{name: (9, name.lower()) for name in ("Acosh", "Asinh", "Atanh", "Cosh", "Erf", "IsNaN", "Sinh")},
    "BitwiseNot": (18, "bitwise_not"),
    "HardSwish": (14, "hardswish"),
    "Mish": (18, "mish"),
    "Not": (1, "logical_not"),
    "Round": (11, "round"),
}

# ONNX operator -> (first version with numpy broadcasting, core operator).
_BINARY: dict[str, tuple[int, str]] = {
    **{name: (7, name.lower()) for name in ("Add", "Sub", "Mul")},
    "And": (7, "logical_and"),
    "Or": (7, "logical_or"),
    "Xor": (7, "logical_xor"),
    "Equal": (7, "equal"),
    "Greater": (7, "greater"),
    "Less": (7, "less"),
    "GreaterOrEqual": (12, "greater_equal"),
    "LessOrEqual": (12, "less_equal"),
    "BitwiseAnd": (18, "bitwise_and"),
    "BitwiseOr": (18, "bitwise_or"),
    "BitwiseXor": (18, "bitwise_xor"),
}

# Of those the ones whose version 1 has attributes `axis` and `broadcast`.
_LEGACY = ("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "Less")


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    found: dict[Key, Handler] = {(name, version): _unary(core) for name, (version, core) in _UNARY.items()}
    found |= {(name, version): _binary(core) for name, (version, core) in _BINARY.items()}
    found |= {(name, 1): _legacy(_BINARY[name][1]) for name in _LEGACY}
    return {
        **found,
        ("Sum", 1): _variadic("add"),
        ("Max", 1): _variadic("maximum"),
        ("Min", 1): _variadic("minimum"),
        ("Mean", 1): _mean,
        ("Identity", 1): lambda e, x: x if is_host_value(x.type) else e.emit("positive", x),
        ("Equal", 19): _equal,
        ("Div", 1): _legacy_divide,
        ("Div", 7): _divide,
        ("Mod", 10): _modulo,
        ("Pow", 1): _legacy_power,
        ("Pow", 7): _power,
        ("BitShift", 11): _shift,
        ("Cast", 1): _cast_by_name,
        ("Cast", 6): _cast,
        ("CastLike", 15): _cast_like,
        ("BitCast", 26): _bit_cast,
        ("Where", 9): lambda e, condition, x, y: e.emit("where", condition, x, y),
        ("Sign", 9): _sign,
        ("IsInf", 10): _is_infinite,
        ("Clip", 1): _clip_by_attributes,
        ("Clip", 11): _clip,
        ("Elu", 1): lambda e, x, alpha: e.emit("elu", x, alpha=alpha),
        ("Celu", 12): lambda e, x, alpha: e.emit("celu", x, alpha=alpha),
        ("Selu", 1): lambda e, x, alpha, gamma: e.emit("elu", x, alpha=alpha, scale=gamma),
        ("LeakyRelu", 1): lambda e, x, alpha: e.emit("leaky_relu", x, negative_slope=alpha),
        ("ThresholdedRelu", 10): lambda e, x, alpha: e.emit("threshold", x, threshold=alpha, value=0.0),
        ("HardSigmoid", 1): _hard_sigmoid,
        ("PRelu", 1): _legacy_prelu,
        ("PRelu", 7): _prelu,
        ("Gelu", 20): lambda e, x, approximate: e.emit("gelu", x, approximate=approximate),
        ("Swish", 24): _swish,
        ("Shrink", 9): _shrink,
    }


def _unary(core: str) -> Handler:
    return lambda e, x: e.emit(core, x)


def _binary(core: str) -> Handler:
    return lambda e, a, b: e.emit(core, a, b)


def _equal(e: Emitter, a: Value, b: Value) -> Value:
    return e.emit("string_equal" if a.tensor.dtype.is_host_only else "equal", a, b)


def _legacy(core: str) -> Handler:
    def handler(e: Emitter, a: Value, b: Value, broadcast: int = 0, axis: int | None = None, **_: Any) -> Value:
        return e.emit(core, *legacy_operands(e, a, b, broadcast, axis))

    return handler


def _variadic(core: str) -> Handler:
    return lambda e, *inputs: reduce(lambda a, b: e.emit(core, a, b), inputs)


def _mean(e: Emitter, *inputs: Value) -> Value:
    total = reduce(lambda a, b: e.emit("add", a, b), inputs)
    return e.emit("div", total, e.constant(len(inputs), total.tensor.dtype))


def _divide(e: Emitter, a: Value, b: Value) -> Value:
    """Integers are divided towards zero (ONNX operator specification, Div)."""
    return e.emit("div" if a.tensor.dtype.is_float else "trunc_divide", a, b)


def _legacy_divide(e: Emitter, a: Value, b: Value, broadcast: int = 0, axis: int | None = None, **_: Any) -> Value:
    return _divide(e, *legacy_operands(e, a, b, broadcast, axis))


def _modulo(e: Emitter, a: Value, b: Value, fmod: int) -> Value:
    """The sign is that of the divisor, with fmod that of the dividend."""
    return e.emit("fmod" if fmod else "remainder", a, b)


def _power(e: Emitter, a: Value, b: Value) -> Value:
    """The result has the type of the base; the exponent may have another."""
    base, exponent = a.tensor.dtype, b.tensor.dtype
    if base == exponent:
        return e.emit("pow", a, b)
    if exponent.is_float and base.is_int:
        wide = dtypes.f64
        return e.cast(e.emit("pow", e.cast(a, wide), e.cast(b, wide)), base)
    return e.emit("pow", a, e.cast(b, base))


def _legacy_power(e: Emitter, a: Value, b: Value, broadcast: int = 0, axis: int | None = None) -> Value:
    return _power(e, *legacy_operands(e, a, b, broadcast, axis))


def _shift(e: Emitter, a: Value, b: Value, direction: str) -> Value:
    if direction not in ("LEFT", "RIGHT"):
        raise UnsupportedOp(f"BitShift: direction is {direction!r}, expected 'LEFT' or 'RIGHT'")
    return e.emit("shift_left" if direction == "LEFT" else "shift_right", a, b)


def _cast(e: Emitter, x: Value, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    """`saturate` and `round_mode` act on 8-bit floats alone."""
    dtype = dtype_of(to)
    if x.tensor.dtype == dtype:
        return x
    if x.tensor.dtype.is_host_only:
        return e.emit("string_to_number", x, dtype=dtype)
    if dtype.is_host_only:
        return e.emit("number_to_string", x)
    if dtype.is_float and dtype.bits <= 8 and not dtype.is_subbyte:
        return to_small_float(e, x, dtype, bool(saturate), round_mode)
    return e.emit("cast", x, dtype=dtype)


def _cast_by_name(e: Emitter, x: Value, to: str) -> Value:
    """Version 1 names the type."""
    return _cast(e, x, TensorProto.DataType.Value(to.upper()))


def _cast_like(e: Emitter, x: Value, target: Value, saturate: int = 1, round_mode: str = "up") -> Value:
    return _cast(e, x, onnx_number(target.tensor.dtype), saturate, round_mode)


def _bit_cast(e: Emitter, x: Value, to: int) -> Value:
    """The same bits as another type of as many; bool is the byte 0 or 1."""
    dtype = dtype_of(to)
    if x.tensor.dtype.is_bool:
        x = e.cast(x, dtypes.u8)
    return x if x.tensor.dtype == dtype else e.emit("bitcast", x, dtype=dtype)


def _sign(e: Emitter, x: Value) -> Value:
    return e.emit("sign", x)


def _is_infinite(e: Emitter, x: Value, detect_negative: int, detect_positive: int) -> Value:
    if not (detect_negative or detect_positive):
        return e.expand(e.constant(False, dtypes.boolean), x.tensor.shape)
    name = "isinf" if detect_negative and detect_positive else "isposinf" if detect_positive else "isneginf"
    return e.emit(name, x)


def _clip_by_attributes(e: Emitter, x: Value, min: float | None = None, max: float | None = None) -> Value:
    return e.emit("clamp", x, min=min, max=max)


def _clip(e: Emitter, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    if low is None and high is None:
        return x
    return e.emit("clamp_tensor", x, low, high)


def _hard_sigmoid(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    dtype = x.tensor.dtype
    line = e.emit("add", e.emit("mul", x, e.constant(alpha, dtype)), e.constant(beta, dtype))
    return e.emit("clamp", line, min=0.0, max=1.0)


def _prelu(e: Emitter, x: Value, slope: Value) -> Value:
    """x above 0, else slope * x; the slope is broadcast to x."""
    if x.tensor.dtype.is_float:
        return e.emit("prelu", x, slope)
    zero = e.constant(0, x.tensor.dtype)
    return e.emit("where", e.emit("less", x, zero), e.emit("mul", x, slope), x)


def _legacy_prelu(e: Emitter, x: Value, slope: Value) -> Value:
    """Before version 7: a slope with one axis is one a channel, or one for all."""
    if slope.tensor.rank == 1 and slope.tensor.shape != (1,) and x.tensor.rank > 2:
        slope = e.unsqueeze(slope, tuple(range(1, x.tensor.rank - 1)))
    return _prelu(e, x, slope)


def _swish(e: Emitter, x: Value, alpha: float) -> Value:
    if alpha == 1.0:
        return e.emit("silu", x)
    return e.emit("mul", x, e.emit("sigmoid", e.emit("mul", x, e.constant(alpha, x.tensor.dtype))))


def _shrink(e: Emitter, x: Value, lambd: float, bias: float) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    dtype = x.tensor.dtype
    if dtype.is_int and not (bias.is_integer() and math.isfinite(lambd)):
        wide = e.cast(x, dtypes.f64)
        return e.cast(_shrink(e, wide, lambd, bias), dtype)
    below = e.emit("less", x, e.constant(-lambd, dtype))
    above = e.emit("greater", x, e.constant(lambd, dtype))
    amount = e.constant(bias if dtype.is_float else int(bias), dtype)
    rest = e.emit("where", above, e.emit("sub", x, amount), e.constant(0, dtype))
    return e.emit("where", below, e.emit("add", x, amount), rest)
