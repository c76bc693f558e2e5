"""Activation functions."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import Operand, TorchEmitter
from hidet.torch.mapping.elementwise import arithmetic


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    plain = ("silu", "mish", "selu", "hardswish", "hardsigmoid", "log_sigmoid")
    return {f"aten.{name}.default": _plain(name) for name in plain} | _SINGLE


def _plain(core: str) -> Handler:
    return lambda e, x: e.emit(core, x)


def _gelu(e: TorchEmitter, x: Value, *, approximate: str = "none") -> Value:
    return e.emit("gelu", x, approximate=approximate)


def _elu(e: TorchEmitter, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    return e.emit("elu", x, alpha=alpha, scale=scale, input_scale=input_scale)


def _celu(e: TorchEmitter, x: Value, alpha: float = 1.0) -> Value:
    return e.emit("celu", x, alpha=alpha)


def _softplus(e: TorchEmitter, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    return e.emit("softplus", x, beta=beta, threshold=threshold)


def _hardtanh(e: TorchEmitter, x: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    return e.emit("clamp", x, min=min_val, max=max_val)


def _leaky_relu(e: TorchEmitter, x: Value, negative_slope: float = 0.01) -> Value:
    return e.emit("leaky_relu", x, negative_slope=negative_slope)


def _hardshrink(e: TorchEmitter, x: Value, lambd: float = 0.5) -> Value:
    return e.emit("hardshrink", x, lambd=lambd)


def _softshrink(e: TorchEmitter, x: Value, lambd: float = 0.5) -> Value:
    return e.emit("softshrink", x, lambd=lambd)


def _threshold(e: TorchEmitter, x: Value, threshold: float, value: float) -> Value:
    return e.emit("threshold", x, threshold=threshold, value=value)


def _prelu(e: TorchEmitter, x: Value, weight: Operand) -> Value:
    """aten._prelu_kernel: the weight is broadcast against x already."""
    return arithmetic(e, "prelu", x, weight)


def _log_sigmoid_forward(e: TorchEmitter, x: Value) -> tuple[Value, Value]:
    """The second result is a work buffer of the CPU kernel: exp(-|x|), which only its own backward reads."""
    return e.emit("log_sigmoid", x), e.emit("exp", e.emit("neg", e.emit("abs", x)))


_SINGLE: dict[str, Handler] = {
    "aten.gelu.default": _gelu,
    "aten.elu.default": _elu,
    "aten.celu.default": _celu,
    "aten.softplus.default": _softplus,
    "aten.hardtanh.default": _hardtanh,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.hardshrink.default": _hardshrink,
    "aten.softshrink.default": _softshrink,
    "aten.threshold.default": _threshold,
    "aten._prelu_kernel.default": _prelu,
    "aten.log_sigmoid_forward.default": _log_sigmoid_forward,
}
