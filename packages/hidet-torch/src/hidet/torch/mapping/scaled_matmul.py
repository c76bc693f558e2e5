"""Products of 8-bit numbers: of floats with scales (`torch.nn.functional.scaled_mm`), and of integers.

Scales are numbers, or one of each row and of each column, with which a product's sum is multiplied; or those of blocks
of 128 along the sum: of each row of the left matrix, and of 128 columns of the right one. Others are left to torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.graph.types import same_shape
from hidet.torch.emitter import TorchEmitter
from hidet.torch.mapping.matmul import as_stored, multiply

_OF_MATRICES = (0, 1)
"""`torch.nn.functional.ScalingType`: TensorWise and RowWise."""
_OF_BLOCKS = (4, 5)
"""BlockWise1x128 and BlockWise128x128."""
_BLOCK = 128


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten._scaled_mm.default": _scaled_mm,
        "aten._scaled_mm_v2.default": _scaled_mm_v2,
        "aten._int_mm.default": _int_mm,
    }


def _scaled_mm(
    e: TorchEmitter,
    a: Value,
    b: Value,
    scale_a: Value,
    scale_b: Value,
    bias: Value | None = None,
    scale_result: Value | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Value:
    if scale_result is not None:
        raise UnsupportedOp("a product whose result has a scale")
    return _scaled(e, a, b, (scale_a, scale_b), bias, use_fast_accum)


def _scaled_mm_v2(
    e: TorchEmitter,
    a: Value,
    b: Value,
    scale_a: Sequence[Value],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Value],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Value | None = None,
    out_dtype: DType | None = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Value:
    recipes, scales = (*recipe_a, *recipe_b), (*scale_a, *scale_b)
    are_usual = recipes == _OF_BLOCKS or (len(scales) == 2 and set(recipes) <= set(_OF_MATRICES))
    if not are_usual or contraction_dim or any((*swizzle_a, *swizzle_b)):
        raise UnsupportedOp(f"a product whose matrices are scaled by ScalingType {recipes}")
    return _scaled(e, a, b, scales, bias, use_fast_accum)


def _scaled(
    e: TorchEmitter, a: Value, b: Value, scales: Sequence[Value], bias: Value | None, use_fast_accum: bool
) -> Value:
    """(a @ b) * scale_a * scale_b + bias, in f32, as the result's type."""
    (m, k), (_, n) = a.tensor.shape, b.tensor.shape
    blocks = dims.ceildiv(k, _BLOCK)
    if any(scale.tensor.dtype is not dtypes.f32 for scale in scales):
        raise UnsupportedOp(f"a product with scales of {' and '.join(str(scale.tensor.dtype) for scale in scales)}")
    if all(_is_any_of(scale, one) for scale, one in zip(scales, ((m, 1), (1, n)), strict=True)):
        total = multiply(e, a, b, dtype=dtypes.f32, fast_accum=use_fast_accum)
        for scale in scales:
            total = e.emit("mul", total, e.reshape(scale, (1, 1)) if _is_number(scale) else scale)
    elif same_shape(scales[0].tensor.shape, (m, blocks)) and same_shape(
        scales[1].tensor.shape, (blocks, dims.ceildiv(n, _BLOCK))
    ):
        right, trans_b = as_stored(e, b)
        total = e.emit("block_scaled_matmul", a, right, *scales, trans_b=trans_b, dtype=dtypes.f32)
    else:
        shapes = " and ".join(str(list(scale.tensor.shape)) for scale in scales)
        raise UnsupportedOp(f"a product with scales of shapes {shapes}")
    if bias is not None:
        total = e.emit("add", total, e.cast(bias, dtypes.f32))
    dtype = e.result.dtype
    if dtype.bits == 8:
        # Hardware saturates such results, where a cast has no number for them.
        total = e.emit("clamp", total, min=dtype.min, max=dtype.max)
    return e.cast(total, dtype)


def _is_number(scale: Value) -> bool:
    return all(extent == 1 for extent in scale.tensor.shape)


def _is_any_of(scale: Value, shape: Sequence[Dim]) -> bool:
    """Whether a scale is one number, or has a shape."""
    return _is_number(scale) or same_shape(scale.tensor.shape, shape)


def _int_mm(e: TorchEmitter, a: Value, b: Value) -> Value:
    return multiply(e, a, b, dtype=dtypes.i32)
