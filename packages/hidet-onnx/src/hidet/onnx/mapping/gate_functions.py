"""The activations that recurrent layers may use, by name, with their numbers alpha and beta (ONNX operator
specification, LSTM)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet.errors import UnsupportedOp, suggestion
from hidet.frontend import Emitter
from hidet.graph import GraphBuilder, Value

Activation = Callable[[GraphBuilder, Value], Value]


def number(b: GraphBuilder, value: float, like: Value) -> Value:
    """A number of the type of `like`."""
    return b.constant(value, like.tensor.dtype)


def _plain(core: str) -> Callable[[float, float], Activation]:
    return lambda alpha, beta: lambda b, x: b.emit(core, x)


def _line(b: GraphBuilder, x: Value, alpha: float, beta: float) -> Value:
    return b.emit("add", b.emit("mul", x, number(b, alpha, x)), number(b, beta, x))


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    def activation(b: GraphBuilder, x: Value) -> Value:
        return b.emit("mul", b.emit("tanh", b.emit("mul", x, number(b, beta, x))), number(b, alpha, x))

    return activation


@dataclass(frozen=True, slots=True)
class _Function:
    """An activation by name. alpha, beta: defaults; None where it has no such number."""

    make: Callable[[float, float], Activation]
    alpha: float | None = None
    beta: float | None = None


_FUNCTIONS: dict[str, _Function] = {
    "Sigmoid": _Function(_plain("sigmoid")),
    "Tanh": _Function(_plain("tanh")),
    "Relu": _Function(_plain("relu")),
    "Softsign": _Function(_plain("softsign")),
    "Softplus": _Function(_plain("softplus")),
    "Affine": _Function(lambda alpha, beta: lambda b, x: _line(b, x, alpha, beta), 1.0, 0.0),
    "LeakyRelu": _Function(lambda alpha, beta: lambda b, x: b.emit("leaky_relu", x, negative_slope=alpha), 0.01),
    "ThresholdedRelu": _Function(
        lambda alpha, beta: lambda b, x: b.emit("threshold", x, threshold=alpha, value=0.0), 1.0
    ),
    "ScaledTanh": _Function(_scaled_tanh, 1.0, 1.0),
    "HardSigmoid": _Function(
        lambda alpha, beta: lambda b, x: b.emit("clamp", _line(b, x, alpha, beta), min=0.0, max=1.0), 0.2, 0.5
    ),
    "Elu": _Function(lambda alpha, beta: lambda b, x: b.emit("elu", x, alpha=alpha), 1.0),
}
_BY_LOWER_NAME = {name.lower(): function for name, function in _FUNCTIONS.items()}


def gate_functions(
    e: Emitter, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """The functions of these names; those that have an alpha or beta take the given ones in order, else defaults.

    UnsupportedOp for a name that is unknown.
    """
    rest_alpha, rest_beta = list(alphas), list(betas)
    found = []
    for name in names:
        function = _BY_LOWER_NAME.get(name.lower())
        if function is None:
            raise UnsupportedOp(f"{e.operator}: activation {name!r}", hint=suggestion(name, _FUNCTIONS))
        alpha, beta = function.alpha, function.beta
        if alpha is not None and rest_alpha:
            alpha = rest_alpha.pop(0)
        if beta is not None and rest_beta:
            beta = rest_beta.pop(0)
        found.append(function.make(alpha or 0.0, beta or 0.0))
    return found
