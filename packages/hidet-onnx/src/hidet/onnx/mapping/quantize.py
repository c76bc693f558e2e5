"""Numbers with scales: quantising, products of quantised tensors, and conversion to floats of 8 bits.

Codes stay codes: a dequantised weight is computed where it is used, and is never folded into a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dims import ceildiv
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.conv import conv
from hidet.onnx.value_types import dtype_of


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("QuantizeLinear", 10): _quantize,
        ("DequantizeLinear", 10): _dequantize,
        ("DynamicQuantizeLinear", 11): dynamic_quantize,
        ("MatMulInteger", 10): _integer_product,
        ("QLinearMatMul", 10): _quantized_product,
        ("ConvInteger", 10): _integer_conv,
        ("QLinearConv", 10): _quantized_conv,
        ("com.microsoft.MatMulNBits", 1): _product_with_packed_weights,
    }


def _quantize(
    e: Emitter,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Value:
    """The codes have the type of the zero point, else `output_dtype`, else u8."""
    asked = dtype_of(output_dtype) if output_dtype else None
    dtype = zero.tensor.dtype if zero is not None else asked or dtypes.u8
    if asked is not None and asked != dtype:
        raise ImportFailed(f"QuantizeLinear: output_dtype is {asked}, but the zero point is of {dtype}")
    return e.emit(
        "quantize",
        x,
        scale,
        _like(e, zero, scale),
        dtype=dtype,
        axis=axis,
        block_size=block_size,
        saturate=bool(saturate),
        precision=dtype_of(precision) if precision else None,
    )


def _dequantize(
    e: Emitter,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    dtype = dtype_of(output_dtype) if output_dtype else None
    return e.emit("dequantize", x, scale, _like(e, zero, scale), axis=axis, block_size=block_size, dtype=dtype)


def _like(e: Emitter, zero: Value | None, scale: Value) -> Value | None:
    """A zero point that is one number in the shape of its scale, which may have an axis more or less."""
    is_one = zero is not None and zero.tensor.shape in ((), (1,)) and scale.tensor.shape in ((), (1,))
    return e.reshape(zero, scale.tensor.shape) if zero is not None and is_one else zero


def dynamic_quantize(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """Scale and zero point make 0 and the extremes of x codes of u8 (ONNX operator specification)."""
    dtype = x.tensor.dtype
    nothing = e.constant(0, dtype)
    low = e.emit("minimum", e.emit("amin", x), nothing)
    high = e.emit("maximum", e.emit("amax", x), nothing)
    scale = e.emit("div", e.emit("sub", high, low), e.constant(255, dtype))
    place = e.emit("clamp", e.emit("div", e.emit("neg", low), scale), min=0.0, max=255.0)
    zero = e.cast(e.emit("round", place), dtypes.u8)
    return e.emit("quantize", x, scale, zero, dtype=dtypes.u8), scale, zero


def centred(e: Emitter, codes: Value, zero: Value | None, shape: Sequence[int] | None) -> Value:
    """Codes minus their zero point, as i32; `shape` None leaves the zero point's shape, -1 is its one extent."""
    wide = e.cast(codes, dtypes.i32)
    if zero is None:
        return wide
    if shape is not None and zero.tensor.rank == 1:
        is_one = zero.tensor.shape == (1,)
        zero = e.reshape(zero, () if is_one else tuple(zero.tensor.shape[0] if n == -1 else n for n in shape))
    return e.emit("sub", wide, e.cast(zero, dtypes.i32))


def _integer_product(e: Emitter, a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None) -> Value:
    """Zero points are numbers, or one a row of `a` and one a column of `b`."""
    rows = (-1, 1) if a.tensor.rank > 1 else None
    return e.emit("matmul", *vectors_as_matrices(e, centred(e, a, a_zero, rows), centred(e, b, b_zero, None)))


def vectors_as_matrices(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """The operands of a product of matrices. UnsupportedOp for vectors, which quantised products do not take."""
    if a.tensor.rank < 2 or b.tensor.rank < 2:
        raise UnsupportedOp(f"{e.operator} of vectors: {a.type} and {b.type}")
    return a, b


def requantized(
    e: Emitter, total: Value, scales: Sequence[Value], scale: Value, zero: Value | None, dtype: DType
) -> Value:
    """Sums of products of codes, i32, as codes: the product of `scales` over `scale` is what one is worth."""
    worth = e.cast(scales[0], dtypes.f32)
    for factor in scales[1:]:
        worth = e.emit("mul", worth, e.cast(factor, dtypes.f32))
    worth = e.emit("div", worth, e.cast(scale, dtypes.f32))
    real = e.emit("mul", e.cast(total, dtypes.f32), worth)
    one = e.constant(1, dtypes.f32)
    return e.emit("quantize", real, one, None if zero is None else e.reshape(zero, ()), dtype=dtype)


def _quantized_product(
    e: Emitter,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    total = _integer_product(e, a, b, a_zero, b_zero)
    if a_scale.tensor.rank == 1 and a_scale.tensor.shape != (1,):
        a_scale = e.reshape(a_scale, (*a_scale.tensor.shape, 1))
    if y_zero.tensor.rank > 1 or y_zero.tensor.shape not in ((), (1,)):
        raise UnsupportedOp(f"QLinearMatMul with a zero point of the result of {y_zero.type}: expected one number")
    return requantized(e, total, (a_scale, b_scale), y_scale, y_zero, y_zero.tensor.dtype)


def _integer_conv(
    e: Emitter,
    x: Value,
    weight: Value,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    group: int = 1,
    **window: Any,
) -> Value:
    """i32 sums; padding is of the zero point, which becomes 0 before it is added."""
    filters = (-1, *(1,) * (weight.tensor.rank - 1))
    return conv(e, centred(e, x, x_zero, ()), centred(e, weight, weight_zero, filters), None, group, **window)


def _quantized_conv(
    e: Emitter,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    weight: Value,
    weight_scale: Value,
    weight_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    **attributes: Any,
) -> Value:
    """The bias is i32, in units of the product of both scales."""
    total = _integer_conv(e, x, weight, x_zero, weight_zero, **attributes)
    channels = (weight.tensor.shape[0], *(1,) * (weight.tensor.rank - 2))
    if bias is not None:
        total = e.emit("add", total, e.reshape(bias, channels))
    if weight_scale.tensor.rank == 1 and weight_scale.tensor.shape != (1,):
        weight_scale = e.reshape(weight_scale, channels)
    return requantized(e, total, (x_scale, weight_scale), y_scale, y_zero, y_zero.tensor.dtype)


def _product_with_packed_weights(
    e: Emitter,
    a: Value,
    b: Value,
    scales: Value,
    zeros: Value | None = None,
    group_index: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
) -> Value:
    """a[..., k] times weights of `bits` bits packed in b[n, blocks, bytes], a scale a block, transposed.

    ONNX Runtime contrib operators, MatMulNBits. `accuracy_level` permits less than the precision of `a`, which is kept.
    """
    if group_index is not None:
        raise UnsupportedOp("MatMulNBits with g_idx: weights in another order than their scales")
    if bits not in (2, 4, 8):
        raise UnsupportedOp(f"MatMulNBits with {bits} bits: expected 2, 4 or 8")
    code = dtypes.dtype(f"u{bits}")
    blocks = ceildiv(K, block_size)
    weight = e.reshape(_unpacked(e, b, code), (N, blocks * block_size))
    weight = e.emit("slice", weight, starts=(0, 0), stops=(N, K), steps=(1, 1))
    if zeros is None:
        zeros = e.emit("full", shape=(N, blocks), value=1 << (bits - 1), dtype=code)
    elif zeros.tensor.dtype == dtypes.u8:
        row = ceildiv(blocks * bits, 8)
        whole = _unpacked(e, e.reshape(zeros, (N, row)), code)
        zeros = e.emit("slice", whole, starts=(0, 0), stops=(N, blocks), steps=(1, 1))
    else:
        zeros = e.reshape(zeros, (N, blocks))
    spread = e.emit("dequantize", weight, e.reshape(scales, (N, blocks)), zeros, axis=1, block_size=block_size)
    return e.emit("linear", a, e.cast(spread, a.tensor.dtype), bias)


def _unpacked(e: Emitter, packed: Value, code: DType) -> Value:
    return packed if code == dtypes.u8 else e.emit("unpack", packed, dtype=code)


def to_small_float(e: Emitter, x: Value, dtype: DType, saturate: bool, round_mode: str) -> Value:
    """`x` as a float of 8 bits: what is too large becomes the largest with `saturate`, else as the format has it.

    round_mode: "up", "down" or "nearest", of powers of two (float8_e8m0fnu) alone; ONNX operator specification, Cast.
    """
    if dtype.mantissa_bits == 0:
        return _to_power(e, e.cast(x, dtypes.f32), saturate, round_mode)
    if not saturate:
        return e.emit("cast", x, dtype=dtype)
    if not (x.tensor.dtype.is_float and x.tensor.dtype.is_compute) or x.tensor.dtype == dtypes.f16:
        x = e.cast(x, dtypes.f32)
    return e.emit("cast", e.emit("clamp", x, min=dtype.min, max=dtype.max), dtype=dtype)


def _to_power(e: Emitter, x: Value, saturate: bool, round_mode: str) -> Value:
    """The exponent field of |x| rounded as asked; NaN and infinities are NaN, which is 255."""
    word = dtypes.i32
    bits = e.emit("bitcast", x, dtype=word)

    def masked(mask: int) -> Value:
        return e.emit("bitwise_and", bits, e.constant(mask, word))

    exponent = e.emit("shift_right", masked(0x7F800000), e.constant(23, word))
    if round_mode == "up":
        is_up = e.emit("greater", masked(0x7FFFFF), e.constant(0, word))
    elif round_mode == "nearest":
        half = e.emit("greater", masked(0x400000), e.constant(0, word))
        beyond = e.emit("greater", e.emit("bitwise_or", masked(0x3FFFFF), exponent), e.constant(0, word))
        is_up = e.emit("logical_and", half, beyond)
    elif round_mode == "down":
        is_up = e.constant(False, dtypes.boolean)
    else:
        raise UnsupportedOp(f"{e.operator}: round_mode is {round_mode!r}, expected 'up', 'down' or 'nearest'")
    most = e.constant(254 if saturate else 255, word)
    code = e.emit("minimum", e.emit("add", exponent, e.cast(is_up, word)), most)
    code = e.emit("where", e.emit("equal", exponent, e.constant(255, word)), exponent, code)
    return e.emit("bitcast", e.cast(code, dtypes.u8), dtype=dtypes.f8e8m0)
