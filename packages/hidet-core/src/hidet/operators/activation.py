"""Activation functions of neural networks: element-wise, of one input."""

from __future__ import annotations

import math
from typing import Any

from hidet.compute.definition import number
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.elementwise import ElementwiseRow, clamp, spec_of

# Klambauer et al., "Self-Normalizing Neural Networks", 2017.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x); the exponential may overflow, which gives the right 0."""
    return 1 / (build.unary("exp", -x) + 1)


def _log_sigmoid(x: Expr) -> Expr:
    return build.minimum(x, 0) - build.unary("log1p", build.unary("exp", -build.unary("abs", x)))


def _softplus(x: Expr, beta: float, threshold: float) -> Expr:
    scaled = x if beta == 1 else x * beta
    smooth = build.unary("log1p", build.unary("exp", scaled))
    return build.select(scaled > threshold, x, smooth if beta == 1 else smooth / beta)


def _gelu(x: Expr, approximate: str) -> Expr:
    """Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016."""
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (build.unary("tanh", inner) + 1)
    return x * 0.5 * (build.unary("erf", x * math.sqrt(0.5)) + 1)


def _elu(x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    factor = alpha if scale == 1 else alpha * scale
    negative = build.unary("expm1", x if input_scale == 1 else x * input_scale) * factor
    return build.select(x > 0, x if scale == 1 else x * scale, negative)


def _celu(x: Expr, alpha: float) -> Expr:
    return build.select(x > 0, x, build.unary("expm1", x / alpha) * alpha)


def _relu6_of_shifted(x: Expr) -> Expr:
    return clamp(x + 3, 0, 6)


def _leaky_relu(x: Expr, negative_slope: float) -> Expr:
    return build.select(x > 0, x, x * negative_slope)


def _shrunk(x: Expr, lambd: float, otherwise: Expr) -> Expr:
    """0 within lambd of zero, else `otherwise`; NaN stays NaN."""
    inside = build.logical_and(x >= -lambd, x <= lambd)
    return build.select(inside, build.const(0, x.dtype), otherwise)


def _softshrink(x: Expr, lambd: float) -> Expr:
    return _shrunk(x, lambd, build.select(x > 0, x - lambd, x + lambd))


def _threshold(x: Expr, threshold: float, value: float) -> Expr:
    return build.select(x <= threshold, number(value, x.dtype), x)


def _clamp(x: Expr, min: float | None, max: float | None) -> Expr:
    return clamp(x, min, max)


_ROWS = (
    ElementwiseRow("sigmoid", sigmoid, "1 / (1 + e ** -x)."),
    ElementwiseRow("log_sigmoid", _log_sigmoid, "log(sigmoid(x)), without overflow."),
    ElementwiseRow("relu", lambda x: build.maximum(x, 0), "max(x, 0); NaN stays NaN.", "number"),
    ElementwiseRow("relu6", lambda x: clamp(x, 0, 6), "min(max(x, 0), 6).", "number"),
    ElementwiseRow(
        "gelu",
        _gelu,
        "x times the normal distribution function of x: exactly, or by tanh when approximate is 'tanh'.",
        attributes=(Attribute("approximate", "none"),),
    ),
    ElementwiseRow("silu", lambda x: x / (build.unary("exp", -x) + 1), "x * sigmoid(x)."),
    ElementwiseRow("mish", lambda x: x * build.unary("tanh", _softplus(x, 1, 20)), "x * tanh(softplus(x))."),
    ElementwiseRow(
        "elu",
        _elu,
        "scale * x above 0, else scale * alpha * (e ** (input_scale * x) - 1).",
        attributes=(Attribute("alpha", 1.0), Attribute("scale", 1.0), Attribute("input_scale", 1.0)),
    ),
    ElementwiseRow("selu", lambda x: _elu(x, _SELU_ALPHA, _SELU_SCALE, 1), "elu with the self-normalising constants."),
    ElementwiseRow(
        "celu",
        _celu,
        "x above 0, else alpha * (e ** (x / alpha) - 1).",
        attributes=(Attribute("alpha", 1.0),),
    ),
    ElementwiseRow(
        "softplus",
        _softplus,
        "log(1 + e ** (beta * x)) / beta; x where beta * x is above the threshold.",
        attributes=(Attribute("beta", 1.0), Attribute("threshold", 20.0)),
    ),
    ElementwiseRow("softsign", lambda x: x / (build.unary("abs", x) + 1), "x / (1 + |x|)."),
    ElementwiseRow("hardswish", lambda x: x * _relu6_of_shifted(x) / 6, "x * relu6(x + 3) / 6."),
    ElementwiseRow("hardsigmoid", lambda x: _relu6_of_shifted(x) / 6, "relu6(x + 3) / 6."),
    ElementwiseRow(
        "clamp",
        _clamp,
        "min(max(x, min), max) with numbers as limits; None is no limit; NaN stays NaN. hardtanh is clamp.",
        "number",
        attributes=(Attribute("min", None), Attribute("max", None)),
    ),
    ElementwiseRow(
        "leaky_relu",
        _leaky_relu,
        "x above 0, else negative_slope * x.",
        attributes=(Attribute("negative_slope", 0.01),),
    ),
    ElementwiseRow("tanhshrink", lambda x: x - build.unary("tanh", x), "x - tanh(x)."),
    ElementwiseRow(
        "hardshrink",
        lambda x, lambd: _shrunk(x, lambd, x),
        "0 where |x| <= lambd, else x.",
        attributes=(Attribute("lambd", 0.5),),
    ),
    ElementwiseRow(
        "softshrink",
        _softshrink,
        "0 where |x| <= lambd, else x moved by lambd towards 0.",
        attributes=(Attribute("lambd", 0.5),),
    ),
    ElementwiseRow(
        "threshold",
        _threshold,
        "value where x <= threshold, else x.",
        "number",
        attributes=(Attribute("threshold"), Attribute("value")),
    ),
)

_VALUES = {row.name: row.value for row in _ROWS}


def activated(name: str, x: Expr, **attrs: Any) -> Expr:
    """The formula of an activation of this name and with these attributes, on an element of its arithmetic type."""
    return _VALUES[name](x, **attrs)


SPECS: tuple[OperatorSpec, ...] = tuple(map(spec_of, _ROWS))
