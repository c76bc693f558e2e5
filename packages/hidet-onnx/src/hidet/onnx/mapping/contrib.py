"""Operators of domain com.microsoft that exporters, and ONNX Runtime's optimiser and quantiser write.

Their meaning: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.quantize import centred, dynamic_quantize


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {
        "Gelu": lambda e, x: e.emit("gelu", x),
        "BiasGelu": lambda e, x, bias: e.emit("gelu", e.emit("add", x, bias)),
        "FastGelu": _fast_gelu,
        "QuickGelu": _quick_gelu,
        "FusedMatMul": _fused_matmul,
        "SkipLayerNormalization": _skip_layer_norm,
        "SkipSimplifiedLayerNormalization": _skip_rms_norm,
        "MatMulIntegerToFloat": _integer_product_as_float,
        "DynamicQuantizeMatMul": _dynamic_product,
        "QLinearAdd": _quantized("add"),
        "QLinearMul": _quantized("mul"),
        "QLinearSigmoid": _quantized_function(lambda e, x, **_: e.emit("sigmoid", x)),
        "QLinearLeakyRelu": _quantized_function(lambda e, x, alpha=0.01: e.emit("leaky_relu", x, negative_slope=alpha)),
        "QLinearGlobalAveragePool": _quantized_function(_spatial_mean),
        "QLinearConcat": _quantized_concat,
    }
    return {
        **{(f"com.microsoft.{name}", 1): handler for name, handler in found.items()},
        ("SimplifiedLayerNormalization", 1): _rms_norm,
    }


def _fast_gelu(e: Emitter, x: Value, bias: Value | None = None) -> Value:
    return e.emit("gelu", x if bias is None else e.emit("add", x, bias), approximate="tanh")


def _quick_gelu(e: Emitter, x: Value, alpha: float = 1.702) -> Value:
    return e.emit("mul", x, e.emit("sigmoid", e.emit("mul", x, e.constant(alpha, x.tensor.dtype))))


def _fused_matmul(
    e: Emitter,
    a: Value,
    b: Value,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    if transBatchA or transBatchB:
        raise UnsupportedOp("FusedMatMul with transBatchA or transBatchB")
    product = e.emit("matmul", a, b, trans_a=bool(transA), trans_b=bool(transB))
    return product if alpha == 1 else e.emit("mul", product, e.constant(alpha, product.tensor.dtype))


def _rms_norm(e: Emitter, x: Value, scale: Value, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    if axis % x.tensor.rank != x.tensor.rank - 1 or stash_type != 1 or e.is_read(1):
        raise UnsupportedOp(
            "SimplifiedLayerNormalization of other than the last axis, in other than f32, or statistics"
        )
    return e.emit("rms_norm", x, scale, rank=1, eps=epsilon)


def _summed(e: Emitter, x: Value, skip: Value, bias: Value | None) -> Value:
    """What is normalised, which is the fourth output too; statistics of it are for training alone."""
    if e.is_read(1) or e.is_read(2):
        raise UnsupportedOp(f"{e.operator} with its mean or deviation as a result")
    total = e.emit("add", x, skip)
    return total if bias is None else e.emit("add", total, bias)


def _skip_layer_norm(
    e: Emitter,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    epsilon: float = 1e-12,
) -> tuple[Value | None, ...]:
    total = _summed(e, x, skip, bias)
    return e.emit("layer_norm", total, gamma, beta, rank=1, eps=epsilon), None, None, total


def _skip_rms_norm(
    e: Emitter, x: Value, skip: Value, gamma: Value, bias: Value | None = None, epsilon: float = 1e-12
) -> tuple[Value | None, ...]:
    total = _summed(e, x, skip, bias)
    return e.emit("rms_norm", total, gamma, rank=1, eps=epsilon), None, None, total


def _integer_product_as_float(
    e: Emitter,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """Scales are numbers, or that of `b` one a column."""
    total = e.emit("matmul", centred(e, a, a_zero, None), centred(e, b, b_zero, None))
    scale = e.emit("mul", a_scale, b_scale)
    real = e.emit("mul", e.cast(total, scale.tensor.dtype), scale)
    return real if bias is None else e.emit("add", real, bias)


def _dynamic_product(
    e: Emitter, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None, bias: Value | None = None
) -> Value:
    """`a` is quantised as DynamicQuantizeLinear does it, to 8 bits over its whole range."""
    codes, scale, zero = dynamic_quantize(e, a)
    return _integer_product_as_float(e, codes, b, scale, b_scale, zero, b_zero, bias)


def _dequantized(e: Emitter, x: Value, scale: Value, zero: Value | None) -> Value:
    codes = x if zero is None else centred(e, x, zero, ())
    return e.emit("mul", e.cast(codes, scale.tensor.dtype), scale)


def _requantized(e: Emitter, x: Value, scale: Value, zero: Value | None, like: Value) -> Value:
    dtype = like.tensor.dtype if zero is None else zero.tensor.dtype
    return e.emit("quantize", x, e.reshape(scale, ()), None if zero is None else e.reshape(zero, ()), dtype=dtype)


def _quantized(core: str) -> Handler:
    """An element-wise operator of two quantised tensors."""

    def handler(
        e: Emitter,
        a: Value,
        a_scale: Value,
        a_zero: Value | None,
        b: Value,
        b_scale: Value,
        b_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
    ) -> Value:
        real = e.emit(core, _dequantized(e, a, a_scale, a_zero), _dequantized(e, b, b_scale, b_zero))
        return _requantized(e, real, scale, zero, a)

    return handler


def _quantized_function(function: Callable[..., Value]) -> Handler:
    """An operator of one quantised tensor."""

    def handler(
        e: Emitter,
        x: Value,
        x_scale: Value,
        x_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
        **attributes: Any,
    ) -> Value:
        return _requantized(e, function(e, _dequantized(e, x, x_scale, x_zero), **attributes), scale, zero, x)

    return handler


def _spatial_mean(e: Emitter, x: Value, channels_last: int = 0) -> Value:
    if channels_last:
        raise UnsupportedOp("QLinearGlobalAveragePool with channels_last")
    return e.emit("mean", x, axes=tuple(range(2, x.tensor.rank)), keepdim=True)


def _quantized_concat(e: Emitter, scale: Value, zero: Value, *inputs: Value, axis: int) -> Value:
    """Inputs come as a tensor, its scale and its zero point each."""
    if not inputs or len(inputs) % 3:
        raise ImportFailed(f"QLinearConcat has {len(inputs)} inputs after the first two: expected three a tensor")
    parts = [_dequantized(e, *inputs[n : n + 3]) for n in range(0, len(inputs), 3)]
    return _requantized(e, e.emit("concat", *parts, axis=axis), scale, zero, inputs[0])
