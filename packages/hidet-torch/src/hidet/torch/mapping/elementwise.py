"""Element-wise arithmetic, comparisons, logic and casts.

aten's rules, applied here: operands are converted to their common type, which is the result's type for arithmetic.
Numbers keep their precision beside f16 and bf16 tensors, as in eager mode, which computes such operators in f32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from hidet import dtypes
from hidet.dims import DimExpr, prove_le
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.torch.emitter import Operand, Scalar, TorchEmitter, promote_operands
from hidet.torch.tensors import dtype_of

# aten name -> core name: one tensor in, the result has the type of the result
_UNARY = {
    **{
        name: name
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "erf", "erfc"),
            *("erfinv", "lgamma", "digamma", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            *("asinh", "acosh", "atanh", "neg", "abs", "sign", "square", "floor", "ceil", "trunc", "frac"),
            *("sigmoid", "relu", "relu6", "positive", "sinc", "deg2rad", "rad2deg", "bitwise_not"),
        )
    },
    "sgn": "sign",
    "fix": "trunc",
    "special_erfinv": "erfinv",
    "special_expit": "sigmoid",
    "i0": "bessel_i0",
    "special_modified_bessel_i0": "bessel_i0",
    "special_modified_bessel_i1": "bessel_i1",
    "special_modified_bessel_k0": "bessel_k0",
    "special_modified_bessel_k1": "bessel_k1",
    "special_scaled_modified_bessel_k0": "bessel_k0e",
    "special_scaled_modified_bessel_k1": "bessel_k1e",
    "special_i0e": "bessel_i0e",
    "special_i1": "bessel_i1",
    "special_i1e": "bessel_i1e",
    **{
        f"special_{name}": name
        for name in (
            *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai", "erfcx", "ndtri"),
        )
    },
}

# aten name -> core name: one tensor in, bool out
_TESTS = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not")

# aten name -> core name, overloads: arithmetic of two operands in the type of the result
_BINARY = {
    "mul": ("mul", "Tensor", "Scalar"),
    "maximum": ("maximum", "default"),
    "minimum": ("minimum", "default"),
    "fmax": ("fmax", "default"),
    "fmin": ("fmin", "default"),
    "remainder": ("remainder", "Tensor", "Scalar", "Scalar_Tensor"),
    "fmod": ("fmod", "Tensor", "Scalar"),
    "floor_divide": ("floor_divide", "default", "Scalar"),
    "gcd": ("gcd", "default"),
    "lcm": ("lcm", "default"),
    "atan2": ("atan2", "default"),
    "hypot": ("hypot", "default"),
    "copysign": ("copysign", "Tensor", "Scalar"),
    "nextafter": ("nextafter", "default"),
    "heaviside": ("heaviside", "default"),
    "logaddexp": ("logaddexp", "default"),
    "logaddexp2": ("logaddexp2", "default"),
    "xlogy": ("xlogy", "Tensor", "Scalar_Self", "Scalar_Other"),
    "special_xlog1py": ("xlog1py", "default", "self_scalar", "other_scalar"),
    "special_zeta": ("zeta", "default", "self_scalar", "other_scalar"),
    **{
        f"special_{name}": (name, "default", "x_scalar", "n_scalar")
        for name in (
            *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
            *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
        )
    },
    "bitwise_and": ("bitwise_and", "Tensor", "Scalar", "Scalar_Tensor"),
    "bitwise_or": ("bitwise_or", "Tensor", "Scalar", "Scalar_Tensor"),
    "bitwise_xor": ("bitwise_xor", "Tensor", "Scalar", "Scalar_Tensor"),
    "bitwise_left_shift": ("shift_left", "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    "bitwise_right_shift": ("shift_right", "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    "__lshift__": ("shift_left", "Tensor", "Scalar"),
    "__rshift__": ("shift_right", "Tensor", "Scalar"),
    "pow": ("pow", "Tensor_Tensor", "Scalar"),
}

# aten name -> core name: bool from two operands in their common type
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {f"aten.{aten}.default": unary(core) for aten, core in _UNARY.items()}
    found |= {f"aten.{name}.default": _test(name) for name in _TESTS}
    for aten, (core, *overloads) in _BINARY.items():
        found |= {f"aten.{aten}.{overload}": _binary(core) for overload in overloads}
    for aten, core in _COMPARISONS.items():
        found |= {f"aten.{aten}.{overload}": _comparison(core) for overload in ("Tensor", "Scalar")}
    for name in ("logical_and", "logical_or", "logical_xor"):
        found[f"aten.{name}.default"] = _comparison(name)
    return found | _SINGLE


# --- shapes of handlers --------------------------------------------------------------------------------------------


def unary(core: str) -> Handler:
    """A handler that converts its tensor to the result's type and passes keyword arguments on as attributes."""

    def handle(e: TorchEmitter, x: Value, **attrs: Any) -> Value:
        return e.emit(core, e.cast(x, e.result.dtype), **attrs)

    return handle


def _test(core: str) -> Handler:
    return lambda e, x: e.emit(core, x)


def _binary(core: str) -> Handler:
    return lambda e, a, b: arithmetic(e, core, a, b)


def _comparison(core: str) -> Handler:
    def handle(e: TorchEmitter, a: Operand, b: Operand) -> Value:
        dtype = promote_operands(a, b, default_float=default_float())
        return e.emit(core, e.operand(a, dtype), e.operand(b, dtype))

    return handle


def arithmetic(e: TorchEmitter, core: str, *operands: Operand, **attrs: Any) -> Value:
    """A core operator on operands in the result's type, or in f32 beside f16 and bf16 where a number needs more."""
    dtype = e.result.dtype
    wide = dtype in dtypes.FLOATS_OF_16_BITS and any(not isinstance(x, Value) and not _fits(x, dtype) for x in operands)
    compute = dtypes.f32 if wide else dtype
    value = e.emit(core, *[e.operand(x, compute) for x in operands], **attrs)
    return e.cast(value, dtype)


def _fits(number: Scalar | Number | DimExpr, dtype: DType) -> bool:
    """Whether a number is the same in `dtype`."""
    if isinstance(number, Scalar | DimExpr | complex):
        return False
    return float(dtype.numpy().type(number)) == number


def default_float() -> DType:
    """The type of float numbers among integer tensors."""
    return dtype_of(torch.get_default_dtype())


# --- handlers of their own -----------------------------------------------------------------------------------------


def _add(e: TorchEmitter, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    return _scaled_sum(e, "add", a, b, alpha)


def _sub(e: TorchEmitter, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    return _scaled_sum(e, "sub", a, b, alpha)


def _add_scalar(e: TorchEmitter, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _scaled_sum(e, "add", a, b, alpha)


def _sub_scalar(e: TorchEmitter, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _scaled_sum(e, "sub", a, b, alpha)


def _rsub(e: TorchEmitter, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _scaled_sum(e, "sub", b, a, alpha)


def _scaled_sum(e: TorchEmitter, core: str, a: Operand, b: Operand, alpha: Number | Scalar | DimExpr) -> Value:
    if isinstance(alpha, Scalar) and alpha.value.tensor.dtype.is_bool and not e.result.dtype.is_bool:
        raise UnsupportedOp("a truth as alpha of other tensors than bool, which torch refuses")
    if isinstance(alpha, Scalar | DimExpr):
        b, alpha = arithmetic(e, "mul", b, alpha), 1
    return arithmetic(e, core, a, b, alpha=alpha)


def _div(e: TorchEmitter, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Value:
    core = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}[rounding_mode]
    return arithmetic(e, core, a, b)


def _pow_scalar(e: TorchEmitter, x: Value, exponent: Number | Scalar | DimExpr) -> Value:
    """Powers that models use often as cheaper functions with the same result up to rounding.

    UnsupportedOp for integers to a power that is, or may be, negative: torch refuses them when it has the number.
    """
    if e.result.dtype.is_int and (
        (isinstance(exponent, int) and exponent < 0)
        or (isinstance(exponent, DimExpr) and prove_le(0, exponent) is not True)
    ):
        raise UnsupportedOp(f"integers to the power {exponent}, which torch refuses where it is negative")
    if e.result.dtype.is_float and isinstance(exponent, int | float):
        core = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", 1: "positive"}.get(exponent)
        if core is not None:
            return e.emit(core, e.cast(x, e.result.dtype))
        if exponent == 3:
            cube = e.cast(x, dtypes.f32 if e.result.dtype in dtypes.FLOATS_OF_16_BITS else e.result.dtype)
            return e.cast(e.emit("mul", e.emit("square", cube), cube), e.result.dtype)
    elif exponent == 2:
        return arithmetic(e, "mul", x, x)
    return arithmetic(e, "pow", x, exponent)


def _round(e: TorchEmitter, x: Value, *, decimals: int = 0) -> Value:
    return e.emit("round", x, decimals=decimals)


def _where(e: TorchEmitter, condition: Value, x: Operand, y: Operand) -> Value:
    dtype = e.result.dtype
    return e.emit("where", condition, e.operand(x, dtype), e.operand(y, dtype))


def _masked_fill(e: TorchEmitter, x: Value, mask: Value, value: Operand) -> Value:
    return e.emit("where", mask, e.operand(value, e.result.dtype), x)


def _clamp(e: TorchEmitter, x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    dtype = e.result.dtype
    is_fixed = all(limit is None or isinstance(limit, int | float) for limit in (min, max))
    if is_fixed:
        return e.emit("clamp", e.cast(x, dtype), min=min, max=max)
    limits = [None if limit is None else e.operand(limit, dtype) for limit in (min, max)]
    return e.emit("clamp_tensor", e.cast(x, dtype), *limits)


def _clamp_min(e: TorchEmitter, x: Value, min: Operand) -> Value:
    return _clamp(e, x, min, None)


def _clamp_max(e: TorchEmitter, x: Value, max: Operand) -> Value:
    return _clamp(e, x, None, max)


def _lerp(e: TorchEmitter, start: Value, end: Value, weight: Operand) -> Value:
    return arithmetic(e, "lerp", start, end, weight)


def _addcmul(e: TorchEmitter, x: Value, a: Value, b: Value, *, value: Number = 1) -> Value:
    return arithmetic(e, "addcmul", x, a, b, value=value)


def _addcdiv(e: TorchEmitter, x: Value, a: Value, b: Value, *, value: Number = 1) -> Value:
    return arithmetic(e, "addcdiv", x, a, b, value=value)


def _fma(e: TorchEmitter, a: Operand, b: Operand, c: Value) -> Value:
    """prims.fma: a * b + c."""
    return arithmetic(e, "addcmul", c, a, b)


def _nan_to_num(
    e: TorchEmitter, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if not x.tensor.dtype.is_float:
        return x
    return e.emit("nan_to_num", x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


def _logit(e: TorchEmitter, x: Value, eps: float | None = None) -> Value:
    return e.emit("logit", e.cast(x, e.result.dtype), eps=eps)


def _angle(e: TorchEmitter, x: Value) -> Value:
    """0 of real numbers, pi of negative ones; NaN stays NaN."""
    dtype = e.result.dtype
    number = e.cast(x, dtype)
    turned = e.emit(
        "where", e.emit("less", number, e.constant(0, dtype)), e.constant(math.pi, dtype), e.constant(0, dtype)
    )
    return e.emit("where", e.emit("isnan", number), number, turned)


def _polygamma(e: TorchEmitter, n: int, x: Value) -> Value:
    return e.emit("polygamma", e.cast(x, e.result.dtype), n=n)


def _frexp(e: TorchEmitter, x: Value) -> tuple[Value, ...]:
    return e.emit_all("frexp", (x,), {})


def _ldexp(e: TorchEmitter, x: Value, exponent: Value) -> Value:
    """x * 2 ** exponent, the power rounded first, as in eager mode."""
    dtype = promote_operands(2.0, exponent, default_float=default_float())
    power = e.emit("pow", e.constant(2, dtype), e.cast(exponent, dtype))
    return arithmetic(e, "mul", x, power)


def _isclose(
    e: TorchEmitter, a: Value, b: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    if not a.tensor.dtype.is_float:
        raise UnsupportedOp("isclose is mapped for floating-point types")
    return e.emit("isclose", a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def to_copy(
    e: TorchEmitter,
    x: Operand,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **layout: object,
) -> Value:
    """A conversion of element type; memory formats are layout, which the compiler chooses.

    The importer has checked that the result is on the device of the graph. torch.vmap leaves numbers where tensors
    without axes stood.
    """
    return e.operand(x, e.result.dtype)


def _convert_type(e: TorchEmitter, x: Value, dtype: torch.dtype) -> Value:
    return e.cast(x, dtype_of(dtype))


def _same(e: TorchEmitter, x: Value, **layout: object) -> Value:
    """A copy, alias or detachment: the same elements."""
    return x


def _overwrite(e: TorchEmitter, x: Value, source: Operand, non_blocking: bool = False) -> Value:
    """`x.copy_(source)` as a function: the source, broadcast and converted."""
    return e.expand(e.operand(source, x.tensor.dtype), x.tensor.shape)


_SINGLE: dict[str, Handler] = {
    "aten.add.Tensor": _add,
    "aten.add.Scalar": _add_scalar,
    "aten.sub.Tensor": _sub,
    "aten.sub.Scalar": _sub_scalar,
    "aten.rsub.Tensor": _rsub,
    "aten.rsub.Scalar": _rsub,
    "aten.div.Tensor": _div,
    "aten.div.Scalar": _div,
    "aten.div.Tensor_mode": _div,
    "aten.div.Scalar_mode": _div,
    "aten.true_divide.Tensor": _div,
    "aten.pow.Tensor_Scalar": _pow_scalar,
    "aten.round.default": _round,
    "aten.round.decimals": _round,
    "aten.where.self": _where,
    "aten.where.ScalarSelf": _where,
    "aten.where.ScalarOther": _where,
    "aten.where.Scalar": _where,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp_min,
    "aten.clamp_min.Tensor": _clamp_min,
    "aten.clamp_max.default": _clamp_max,
    "aten.clamp_max.Tensor": _clamp_max,
    "aten.lerp.Tensor": _lerp,
    "aten.lerp.Scalar": _lerp,
    "aten.addcmul.default": _addcmul,
    "aten.addcdiv.default": _addcdiv,
    "aten.nan_to_num.default": _nan_to_num,
    "aten.logit.default": _logit,
    "aten.isclose.default": _isclose,
    "aten.angle.default": _angle,
    "aten.frexp.Tensor": _frexp,
    "aten.polygamma.default": _polygamma,
    "aten.ldexp.Tensor": _ldexp,
    "aten._to_copy.default": to_copy,
    "prims.convert_element_type.default": _convert_type,
    "prims.fma.default": _fma,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    "aten.detach.default": _same,
    "aten.lift_fresh_copy.default": _same,
    "aten.contiguous.default": _same,
    "aten.copy.default": _overwrite,
}
