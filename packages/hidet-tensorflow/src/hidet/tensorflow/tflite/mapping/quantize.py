"""Between numbers and codes, and between codes of two scales."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.mapping.codes import number_of, on_numbers


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "DEQUANTIZE": _dequantize,
        "QUANTIZE": on_numbers(lambda e, x: x),
    }


def _dequantize(e: LiteEmitter, x: Value) -> Value:
    """Codes, or weights of 16 bits, as f32."""
    return e.cast(number_of(e, x, e.operands[0]), dtypes.f32)
