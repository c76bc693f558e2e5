"""Windows: averages, largest elements, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet import dtypes
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.mapping import table as tensorflow_table
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.mapping.codes import is_small, limits, on_codes, on_numbers, quantisation_of
from hidet.tensorflow.tflite.schema import PADDINGS


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "AVERAGE_POOL_2D": _average,
        "L2_POOL_2D": on_numbers(
            lambda e, x, **window: e.emit("sqrt", _pooled(e, "AvgPool", e.emit("square", x), **window))
        ),
        "MAX_POOL_2D": on_codes(lambda e, x, **window: _pooled(e, "MaxPool", x, **window)),
    }


def _pooled(
    e: LiteEmitter, name: str, x: Value, padding: int, stride_w: int, stride_h: int, filter_w: int, filter_h: int
) -> Value:
    window = {"ksize": (1, filter_h, filter_w, 1), "strides": (1, stride_h, stride_w, 1), "padding": PADDINGS[padding]}
    made = tensorflow_table()[name](e, x, **window)
    assert isinstance(made, Value)
    return made


def _average(e: LiteEmitter, x: Value, activation: int = 0, **window: Any) -> Any:
    """Averages of codes are rounded, halves away from zero, where their scale stays."""
    quantisation = quantisation_of(e.operands[0])
    if quantisation is None or not is_small(e.operands[0]) or not quantisation.equals(quantisation_of(e.results[0])):
        return on_numbers(lambda e, x, **options: _pooled(e, "AvgPool", x, **options))(
            e, x, activation=activation, **window
        )
    mean = _pooled(e, "AvgPool", e.cast(x, dtypes.f32), **window)
    size = e.emit("floor", e.emit("add", e.emit("abs", mean), e.constant(0.5, dtypes.f32)))
    code = e.emit("mul", e.emit("sign", mean), size)
    least, greatest = limits(e, e.results[0], activation)
    return e.cast(e.emit("clamp", code, min=float(least), max=float(greatest)), x.tensor.dtype)
