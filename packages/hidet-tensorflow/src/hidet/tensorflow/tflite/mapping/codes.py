"""Codes and the numbers that they stand for: handlers of numbers made handlers of codes."""

from __future__ import annotations

from typing import Any, cast

import numpy

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.loader import LiteTensor, Quantisation
from hidet.tensorflow.tflite.schema import ACTIVATIONS


def quantisation_of(tensor: LiteTensor | None) -> Quantisation | None:
    """What a tensor's elements stand for, where they are codes."""
    if tensor is None or tensor.dtype is None or not tensor.dtype.is_int:
        return None
    return tensor.quantisation


def is_small(tensor: LiteTensor | None) -> bool:
    """Whether a tensor holds codes of 8 bits."""
    return quantisation_of(tensor) is not None and tensor is not None and tensor.dtype in (dtypes.i8, dtypes.u8)


def number_of(e: LiteEmitter, value: Value, tensor: LiteTensor | None) -> Value:
    """The numbers that a tensor stands for, f32; the tensor itself where it holds no codes."""
    quantisation = quantisation_of(tensor)
    if quantisation is None:
        return value
    scale, zero = quantisation.scale, quantisation.zero.astype(numpy.int32)
    if scale.size == 1:
        scale, zero = scale.reshape(()), zero.reshape(())
    offset = e.array(zero) if zero.any() else None
    return e.emit("dequantize", value, e.array(scale), offset, axis=quantisation.axis)


def code_of(e: LiteEmitter, value: Value, tensor: LiteTensor) -> Value:
    """Numbers as the codes that a tensor has; the numbers themselves where it has none."""
    quantisation = quantisation_of(tensor)
    if quantisation is None or not value.tensor.dtype.is_float:
        return value
    return e.emit("quantize", value, e.array(_one(e, quantisation.scale)), zero_of(e, tensor), dtype=tensor.dtype)


def zero_of(e: LiteEmitter, tensor: LiteTensor) -> Value:
    """The code of a tensor that stands for 0, in the tensor's type."""
    quantisation, dtype = quantisation_of(tensor), tensor.dtype
    if quantisation is None or dtype is None or dtype.bits > 16:
        raise UnsupportedOp(f"{e.operator} makes codes of {dtype}: expected 8 or 16 bits")
    zero = int(_one(e, quantisation.zero))
    if not dtype.min <= zero <= dtype.max:
        raise ImportFailed(f"{e.operator}: the zero point {zero} is no {dtype.name}")
    return e.constant(zero, dtype)


def _one(e: LiteEmitter, entries: Any) -> Any:
    if entries.size != 1:
        raise UnsupportedOp(f"{e.operator} makes codes with {entries.size} scales: expected one")
    return entries.reshape(())


def activated(e: LiteEmitter, x: Value, activation: int) -> Value:
    """The function that a node applies to its result."""
    name = ACTIVATIONS[activation] if 0 <= activation < len(ACTIVATIONS) else str(activation)
    if name == "NONE":
        return x
    if name == "RELU_N1_TO_1":
        return e.emit("clamp", x, min=-1.0, max=1.0)
    if name not in ("RELU", "RELU6", "TANH"):
        raise UnsupportedOp(f"{e.operator} with the activation {name}")
    return e.emit(name.lower(), x)


def on_numbers(handler: Handler) -> Handler:
    """A handler of numbers as one of tensors that may hold codes: they are converted before and behind it, in one
    kernel with it. Its option `activation` is applied to the result."""

    def wrapped(e: LiteEmitter, *operands: Value | None, activation: int = 0, **options: Any) -> tuple[Value, ...]:
        given = [
            None if value is None else number_of(e, value, tensor)
            for value, tensor in zip(operands, e.operands, strict=True)
        ]
        made = handler(e, *given, **options)
        values = cast("tuple[Value, ...]", made if isinstance(made, tuple) else (made,))
        pairs = zip(values, e.results, strict=False)
        return tuple(code_of(e, activated(e, value, activation), tensor) for value, tensor in pairs)

    return wrapped


def on_codes(handler: Handler) -> Handler:
    """A handler that moves elements, which moves codes where all that are codes stand for the same numbers."""
    converting = on_numbers(handler)

    def wrapped(e: LiteEmitter, *operands: Value | None, activation: int = 0, **options: Any) -> Any:
        found = [quantisation_of(tensor) for tensor in (*e.operands, *e.results)]
        kinds = [quantisation for quantisation in found if quantisation is not None]
        # Without axes of scales: these lie elsewhere behind the move.
        if activation == 0 and all(kind.scale.size == 1 and kind.equals(kinds[0]) for kind in kinds):
            return handler(e, *operands, **options)
        return converting(e, *operands, activation=activation, **options)

    return wrapped


def limits(e: LiteEmitter, tensor: LiteTensor, activation: int) -> tuple[int, int]:
    """The least and the greatest code of a result behind an activation that cuts it off."""
    quantisation, dtype = quantisation_of(tensor), tensor.dtype
    assert quantisation is not None and dtype is not None
    low, high = _ENDS.get(activation, (None, None)) if activation else (None, None)
    if activation and activation not in _ENDS:
        raise UnsupportedOp(f"{e.operator} of codes with the activation {activation}")
    scale, zero = float(_one(e, quantisation.scale)), int(_one(e, quantisation.zero))

    def code(number: float) -> int:
        return zero + round(number / scale)

    least = int(dtype.min) if low is None else max(int(dtype.min), code(low))
    greatest = int(dtype.max) if high is None else min(int(dtype.max), code(high))
    return min(least, int(dtype.max)), max(greatest, int(dtype.min))


_ENDS: dict[int, tuple[float | None, float | None]] = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def requantised(
    e: LiteEmitter, total: Value, worth: Any, tensor: LiteTensor, activation: int, dtype: DType = dtypes.f32
) -> Value:
    """Sums of products of codes, i32, as codes. worth: what one of them is in units of the result's scale, f32."""
    real = e.emit("mul", e.cast(total, dtype), e.array(worth.astype(dtype.numpy())))
    code = e.emit("quantize", real, e.constant(1.0, dtype), zero_of(e, tensor), dtype=tensor.dtype)
    if activation == 0:
        return code
    least, greatest = limits(e, tensor, activation)
    return e.emit("clamp", code, min=least, max=greatest)
