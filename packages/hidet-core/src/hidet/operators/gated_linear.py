"""Gated linear units: two linears of the same rows, one of which goes through an activation and scales the other.

Shazeer, "GLU Variants Improve Transformer", 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hidet.compute.definition import Definition, Operand, compute, single
from hidet.errors import OptionError, suggestion
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir.expr import Expr
from hidet.operators.activation import activated
from hidet.operators.elementwise import narrow
from hidet.operators.matmul import weighted_sum
from hidet.operators.precision import FP32_PRECISION, require_precision
from hidet.operators.rules import present, require_dtype, require_rank, require_same_dtype, same_extent, widen

if TYPE_CHECKING:
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Value

_NAME = "gated_linear"
GATES: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "silu": ("silu", MappingProxyType({})),
        "gelu": ("gelu", MappingProxyType({"approximate": "none"})),
        "gelu_tanh": ("gelu", MappingProxyType({"approximate": "tanh"})),
        "relu": ("relu", MappingProxyType({})),
        "sigmoid": ("sigmoid", MappingProxyType({})),
    }
)
"""The operator and its attributes that each value of `activation` stands for."""


def _gated_linear(
    x: Operand,
    gate: Operand,
    up: Operand,
    gate_bias: Operand | None = None,
    up_bias: Operand | None = None,
    *,
    activation: str,
    fp32_precision: str,
) -> Definition:
    require_precision(_NAME, fp32_precision)
    if activation not in GATES:
        raise OptionError(
            f"operator {_NAME}: activation is {activation!r}, expected one of {', '.join(GATES)}",
            hint=suggestion(activation, GATES),
        )
    operands = present(x, gate, up, gate_bias, up_bias)
    for operand in operands:
        require_dtype(_NAME, operand, "float")
    require_rank(_NAME, x, at_least=1)
    dtype, n, k = require_same_dtype(_NAME, operands), gate.shape[0], x.shape[-1]
    for weight, bias in ((gate, gate_bias), (up, up_bias)):
        require_rank(_NAME, weight, at_least=2, at_most=2)
        n = same_extent(n, weight.shape[0], f"operator {_NAME}: rows of gate against rows of {weight.name}")
        k = same_extent(k, weight.shape[1], f"operator {_NAME}: last axis of x against columns of {weight.name}")
        if bias is not None:
            require_rank(_NAME, bias, at_least=1, at_most=1)
            same_extent(bias.shape[0], n, f"operator {_NAME}: {bias.name} against rows of gate")

    def value(*axes: Expr) -> Expr:
        *rows, j = axes

        def linear(weight: Operand, bias: Operand | None) -> Expr:
            total = weighted_sum(x, rows, k, lambda r: weight[j, r], None if bias is None else bias[j])
            return widen(narrow(total, dtype))

        name, attrs = GATES[activation]
        scale = widen(narrow(activated(name, linear(gate, gate_bias), **attrs), dtype))
        return narrow(scale * linear(up, up_bias), dtype)

    return single(operands, compute(_NAME, (*x.shape[:-1], n), value))


def _decompose(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    x, gate, up, *biases = inputs
    gate_bias, up_bias = (*biases, None, None)[:2]
    linears = [
        builder.emit("linear", x, weight, bias, fp32_precision=attrs["fp32_precision"])
        for weight, bias in ((gate, gate_bias), (up, up_bias))
    ]
    name, own = GATES[attrs["activation"]]
    return (builder.emit("mul", builder.emit(name, linears[0], **own), linears[1]),)


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name=_NAME,
        inputs=("x", "gate", "up", "gate_bias?", "up_bias?"),
        attributes=(Attribute("activation", "silu", f"of the gate: {', '.join(GATES)}"), FP32_PRECISION),
        kind="anchor",
        define=_gated_linear,
        decompose=_decompose,
        family="matmul",
        doc="activation(x[..., k] @ gate[n, k] transposed + gate_bias[n]) * (x @ up[n, k] transposed + up_bias[n]) -> "
        "[..., n], rounded as by the operators that it is made of. One element type.",
    ),
)
"""Gated linear units."""
