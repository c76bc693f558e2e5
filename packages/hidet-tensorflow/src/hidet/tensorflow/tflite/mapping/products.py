"""Convolutions and products: in integers where both sides are codes of 8 bits, else in floats.

Sums of products of codes are i32, which a vector of scales makes codes of the result where they are stored. Weights
that are codes while what they meet is not ("dynamic range") are converted where they are read, so that the file's bytes
are what the compiled model holds. TensorFlow's interpreter rounds the other side to codes instead, which loses digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet import dims, dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.mapping import table as tensorflow_table
from hidet.tensorflow.mapping.conv import convolved
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.mapping.codes import (
    activated,
    code_of,
    is_small,
    number_of,
    on_numbers,
    quantisation_of,
    requantised,
)
from hidet.tensorflow.tflite.schema import PADDINGS


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "BATCH_MATMUL": _batched,
        "CONV_2D": _conv,
        "CONV_3D": on_numbers(_conv_3d),
        "DEPTHWISE_CONV_2D": _depthwise,
        "FULLY_CONNECTED": _linear,
        "TRANSPOSE_CONV": on_numbers(_transposed),
    }


def _is_integer(e: LiteEmitter) -> bool:
    """Whether operands 0 and 1, and the result, are codes of 8 bits, and a bias is in their units."""
    bias = e.operands[2] if len(e.operands) > 2 else None
    is_near = bias is None or bias.dtype == dtypes.i32
    return is_near and is_small(e.operands[0]) and is_small(e.operands[1]) and is_small(e.results[0])


def _centred(e: LiteEmitter, value: Value, number: int) -> Value:
    """Codes of an operand less the one of 0, i32."""
    quantisation = quantisation_of(e.operands[number])
    assert quantisation is not None
    wide = e.cast(value, dtypes.i32)
    if not quantisation.zero.any():
        return wide
    zero = quantisation.zero.astype("int32")
    shape = [1] * value.tensor.rank
    if zero.size > 1:
        shape[quantisation.axis] = zero.size
    return e.emit("sub", wide, e.array(zero.reshape(() if zero.size == 1 else shape)))


def _worth(e: LiteEmitter) -> Any:
    """What a product of codes of operands 0 and 1 is in units of the result's scale, one number or one a channel."""
    parts = [quantisation_of(tensor) for tensor in (e.operands[0], e.operands[1], e.results[0])]
    a, b, made = (part.scale.astype("float64") for part in parts if part is not None)
    if a.size > 1 or made.size > 1:
        raise UnsupportedOp(f"{e.operator} of codes with several scales: expected them of weights alone")
    worth = a * b / made
    return worth.reshape(()) if worth.size == 1 else worth


def _codes(e: LiteEmitter, total: Value, bias: Value | None, activation: int) -> Value:
    if bias is not None:
        total = e.emit("add", total, bias)
    return requantised(e, total, _worth(e), e.results[0], activation)


def _numbers(e: LiteEmitter, *operands: Value | None) -> list[Value | None]:
    pairs = zip(operands, e.operands, strict=False)
    return [None if value is None else number_of(e, value, tensor) for value, tensor in pairs]


# --- convolutions ----------------------------------------------------------------------------------------------------


def _window(padding: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int) -> dict[str, Any]:
    """Attributes of TensorFlow's convolutions."""
    return {
        "strides": (1, stride_h, stride_w, 1),
        "padding": PADDINGS[padding],
        "dilations": (1, dilation_h, dilation_w, 1),
    }


def _padded_in_integers(e: LiteEmitter, x: Value) -> Value:
    """Codes less the one of 0; zeros that were added around an image are added behind that, so that a convolution can
    do it."""
    quantisation = quantisation_of(e.operands[0])
    node = e.made_by(x, "pad")
    if node is None or quantisation is None or node.attrs["mode"] != "constant":
        return _centred(e, x, 0)
    if node.attrs["value"] != int(quantisation.zero.reshape(-1)[0]):
        return _centred(e, x, 0)
    return e.emit("pad", _centred(e, node.values[0], 0), pads=node.attrs["pads"], mode="constant", value=0)


def _convolution(
    e: LiteEmitter,
    x: Value,
    filters: Value,
    bias: Value | None,
    order: tuple[int, ...],
    groups: Any,
    window: dict[str, Any],
    activation: int,
) -> Value:
    """order: of the filters' axes that makes them [o, c / groups, h, w]."""
    is_integer = _is_integer(e)
    if is_integer:
        images, weight, offset = _padded_in_integers(e, x), _centred(e, filters, 1), bias
    else:
        numbers = _numbers(e, x, filters, bias)
        assert numbers[0] is not None and numbers[1] is not None
        images, weight, offset = numbers[0], numbers[1], numbers[2]
        weight = e.cast(weight, images.tensor.dtype)
    kernel = [filters.tensor.shape[axis] for axis in order[2:]]
    known = [extent for extent in kernel if isinstance(extent, int)]
    if len(known) != len(kernel):
        raise UnsupportedOp(f"{e.operator} with filters of symbolic extents, {filters.type}")
    made = convolved(e, images, e.transpose(weight, order), known, groups, **window)
    if is_integer:
        return _codes(e, made, offset, activation)
    made = made if offset is None else e.emit("add", made, offset)
    return code_of(e, activated(e, made, activation), e.results[0])


def _conv(
    e: LiteEmitter,
    x: Value,
    filters: Value,
    bias: Value | None = None,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    activation: int,
    dilation_w: int,
    dilation_h: int,
) -> Value:
    """filters[o, h, w, c / groups]."""
    window = _window(padding, stride_h, stride_w, dilation_h, dilation_w)
    return _convolution(e, x, filters, bias, (0, 3, 1, 2), None, window, activation)


def _depthwise(
    e: LiteEmitter,
    x: Value,
    filters: Value,
    bias: Value | None = None,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    depth_multiplier: int,
    activation: int,
    dilation_w: int,
    dilation_h: int,
) -> Value:
    """filters[1, h, w, c * m]: channel c gives channels c * m to c * m + m - 1."""
    window = _window(padding, stride_h, stride_w, dilation_h, dilation_w)
    return _convolution(e, x, filters, bias, (3, 0, 1, 2), x.tensor.shape[-1], window, activation)


def _transposed(
    e: LiteEmitter,
    sizes: Value,
    filters: Value,
    x: Value,
    bias: Value | None = None,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
) -> Value:
    """filters[o, h, w, c]."""
    weight = e.cast(e.transpose(filters, (1, 2, 0, 3)), x.tensor.dtype)
    made = tensorflow_table()["Conv2DBackpropInput"](
        e, sizes, weight, x, strides=(1, stride_h, stride_w, 1), padding=PADDINGS[padding]
    )
    assert isinstance(made, Value)
    return made if bias is None else e.emit("add", made, bias)


def _conv_3d(
    e: LiteEmitter,
    x: Value,
    filters: Value,
    bias: Value | None = None,
    *,
    padding: int,
    stride_d: int,
    stride_w: int,
    stride_h: int,
    dilation_d: int,
    dilation_w: int,
    dilation_h: int,
) -> Value:
    made = tensorflow_table()["Conv3D"](
        e,
        x,
        filters,
        strides=(1, stride_d, stride_h, stride_w, 1),
        padding=PADDINGS[padding],
        dilations=(1, dilation_d, dilation_h, dilation_w, 1),
        data_format="NDHWC",
    )
    assert isinstance(made, Value)
    return made if bias is None else e.emit("add", made, bias)


# --- products --------------------------------------------------------------------------------------------------------


def _linear(
    e: LiteEmitter,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    activation: int,
    weights_format: int,
    keep_num_dims: bool,
) -> Value:
    """x[..., k] or x[anything] as rows of k, weight[n, k] -> [..., n] or [rows, n]."""
    if weights_format:
        raise UnsupportedOp(f"{e.operator} with weights in a shuffled order")
    if weight.tensor.rank != 2:
        raise ImportFailed(f"{e.operator}: weights are {weight.type}, expected two axes")
    n, k = weight.tensor.shape
    outer = x.tensor.shape[:-1]
    rows = x
    if not keep_num_dims or x.tensor.rank < 2:
        count = dims.floordiv_unchecked(dims.product(x.tensor.shape), k) if k != 0 else 0
        # Rows stay what they are where the last axis is one already.
        same = x.tensor.rank == 2 and dims.prove_equal(x.tensor.shape[1], k) is True
        rows = x if same else e.reshape(x, (count, k))
        outer = rows.tensor.shape[:-1]
    if _is_integer(e):
        total = e.emit("matmul", _centred(e, rows, 0), _centred(e, weight, 1), trans_b=True)
        return _codes(e, total, bias, activation)
    numbers = _numbers(e, rows, weight, bias)
    assert numbers[0] is not None and numbers[1] is not None
    made = e.emit("linear", numbers[0], e.cast(numbers[1], numbers[0].tensor.dtype), numbers[2])
    return code_of(e, e.reshape(activated(e, made, activation), (*outer, n)), e.results[0])


def _batched(e: LiteEmitter, a: Value, b: Value, adj_x: bool, adj_y: bool) -> Value:
    transposed = {"trans_a": adj_x, "trans_b": adj_y}
    if _is_integer(e):
        total = e.emit("matmul", _centred(e, a, 0), _centred(e, b, 1), **transposed)
        return _codes(e, total, None, 0)
    left, right = _numbers(e, a, b)
    assert left is not None and right is not None
    return code_of(e, e.emit("matmul", left, e.cast(right, left.tensor.dtype), **transposed), e.results[0])
