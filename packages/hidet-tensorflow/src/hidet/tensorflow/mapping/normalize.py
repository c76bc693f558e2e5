"""Softmax, normalisations, biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.windows import Layout, layout_of


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "BiasAdd": _add_bias,
        "BiasAddV1": _add_bias,
        "FusedBatchNorm": _batch_norm,
        "FusedBatchNormV2": _batch_norm,
        "FusedBatchNormV3": _batch_norm,
        "LRN": _local_response,
        "LogSoftmax": lambda e, x: e.emit("log_softmax", x, axis=-1),
        "SoftmaxCrossEntropyWithLogits": _cross_entropy,
        "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy_of_classes,
        "Softmax": lambda e, x: e.emit("softmax", x, axis=-1),
    }


def _add_bias(e: Emitter, x: Value, bias: Value, data_format: str = "NHWC") -> Value:
    if not layout_of(e, data_format).is_last and x.tensor.rank > 2:
        bias = e.unsqueeze(bias, tuple(range(1, x.tensor.rank - 1)))
    return e.emit("add", x, bias)


def _batch_norm(
    e: Emitter,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
    exponential_avg_factor: float = 1.0,
    **_: Any,
) -> tuple[Value, ...]:
    """The image normalised, then mean and variance, as they are, or were, and what gradients need of them.

    In training they are those of the batch; what is returned of the variance is the unbiased one.
    """
    layout = layout_of(e, data_format)
    images = layout.from_images(e, x)
    used, kept_mean, kept_variance = variance, mean, variance
    if is_training:
        axes = (0, *range(2, images.tensor.rank))
        wide = e.cast(images, scale.tensor.dtype)
        used, mean = e.emit_all("var_mean", (wide,), {"axes": axes, "correction": 0})
        kept_mean, kept_variance = mean, e.emit("var", wide, axes=axes, correction=1)
    dtype = x.tensor.dtype
    narrow = [e.cast(value, dtype) for value in (mean, used, scale, offset)]
    made = e.emit("batch_norm", images, *narrow, eps=epsilon)
    return layout.to_images(e, made), kept_mean, kept_variance, mean, used, e.constant(0.0, scale.tensor.dtype)


def _cross_entropy(e: Emitter, x: Value, labels: Value) -> tuple[Value, Value]:
    """-sum(labels * log(softmax(x))) a row, and its gradient."""
    logarithm = e.emit("log_softmax", x, axis=-1)
    loss = e.emit("neg", e.emit("sum", e.emit("mul", labels, logarithm), axes=(-1,)))
    return loss, e.emit("sub", e.emit("exp", logarithm), labels)


def _cross_entropy_of_classes(e: Emitter, x: Value, classes: Value) -> tuple[Value, Value]:
    numbers = e.emit("arange", start=0, stop=x.tensor.shape[-1], dtype=classes.tensor.dtype)
    is_here = e.emit("equal", e.unsqueeze(classes, (classes.tensor.rank,)), numbers)
    return _cross_entropy(e, x, e.cast(is_here, x.tensor.dtype))


def _local_response(
    e: Emitter, x: Value, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> Value:
    """x / (bias + alpha * sum of squares of 2 * depth_radius + 1 channels) ** beta."""
    dtype = x.tensor.dtype
    size = 2 * depth_radius + 1
    squares = e.emit("square", Layout(True).from_images(e, x))
    rows = e.emit("pad", squares, pads=((0, 0), (depth_radius, depth_radius), (0, 0), (0, 0)))
    total = e.emit("sum", e.emit("unfold", rows, axis=1, size=size, step=1), axes=(-1,))
    base = e.emit("add", e.emit("mul", total, e.constant(alpha, dtype)), e.constant(bias, dtype))
    return e.emit("div", x, Layout(True).to_images(e, e.emit("pow", base, e.constant(beta, dtype))))
