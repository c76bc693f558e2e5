"""Layers of `hidet.ops` that are made of several operators, and elements of complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet.api.flow import arithmetic
from hidet.api.flow.layers import clamp
from hidet.api.flow.movement import Numbers, cast, listed, reshape, unsqueeze
from hidet.api.flow.operation import apply_one, number_dtype
from hidet.api.tensors import create
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ShapeError, UnsupportedOp


def softmin(x: Tensor, axis: int = 1) -> Tensor:
    """`softmax` of -x."""
    return apply_one("softmax", apply_one("neg", x), axis=axis)


def batch_norm_infer(
    x: Tensor, running_mean: Tensor, running_var: Tensor, epsilon: float = 1e-5, axis: int = 1
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon), with a mean and a variance for each place along an axis."""
    place = axis % len(x.shape)
    extents = [extent if dim == place else 1 for dim, extent in enumerate(x.shape)]
    mean, variance = (reshape(statistic, extents) for statistic in (running_mean, running_var))
    scale = apply_one("rsqrt", arithmetic.compute("add", variance, epsilon))
    return arithmetic.compute("mul", arithmetic.compute("sub", x, mean), scale)


def lp_norm(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along a dim, which counts as `eps` where it is smaller."""
    norm = apply_one("norm", x, p=p, axes=[dim], keepdim=True)
    return arithmetic.compute("div", x, clamp(norm, min=eps))


def resize2d(
    data: Tensor,
    *,
    size: Sequence[int] | None = None,
    scale_factor: Any = None,
    method: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round_prefer_floor",
    roi: Any = None,
    cubic_alpha: float = -0.75,
    cubic_exclude: bool = False,
    extrapolation_value: float | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """Images [n, c, h, w] resampled to a size, or by factors, as ONNX Resize has it.

    method: "nearest", "linear" or "cubic". Words of modes and roundings are those of ONNX. recompute_scale_factor: the
    factors follow from the rounded size. UnsupportedOp for regions of interest.
    """
    if coordinate_transformation_mode == "tf_crop_and_resize":
        raise UnsupportedOp("resize2d of a region of interest", hint="slice the region first")
    if (size is None) == (scale_factor is None):
        raise ShapeError("resize2d takes one of size and scale_factor")
    factors = [None, None] if scale_factor is None else listed_floats(scale_factor)
    extents = data.shape[2:]
    sizes = size or [int(extent * factor) for extent, factor in zip(extents, factors, strict=True)]
    for axis, extent, factor in zip((2, 3), sizes, factors, strict=True):
        data = apply_one(
            "resample",
            data,
            axis=axis,
            size=extent,
            scale=None if recompute_scale_factor else factor,
            mode=method,
            transform=coordinate_transformation_mode,
            rounding=rounding_method,
            cubic_coefficient=cubic_alpha,
            exclude_outside=cubic_exclude,
        )
    return data


def listed_floats(factor: Any) -> list[Any]:
    """A factor for each of two axes."""
    return list(factor) if isinstance(factor, Sequence) else [float(factor)] * 2


def embedding_bag(indices: Tensor, weight: Tensor, offsets: Tensor | None = None, mode: str = "mean") -> Tensor:
    """The sum, mean or max of rows of `weight` a bag: a row of `indices`, or what lies between two `offsets`."""
    rows = apply_one("embedding", weight, indices)
    if offsets is None:
        return apply_one({"max": "amax"}.get(mode, mode), rows, axes=[1])
    end = create.full([1], indices.shape[0], offsets.dtype, offsets.device)
    stops = apply_one("concat", apply_one("slice", offsets, starts=[1], stops=offsets.shape), end, axis=0)
    return apply_one("segment_reduce", rows, offsets, stops, reduce_by=mode)


def symmetric_quantize(w: Tensor, quant_type: Any = "int8", dims: Numbers = -1) -> tuple[Tensor, Tensor]:
    """Integers, and the scale along dims by which they stand for w: the largest magnitude over the largest integer."""
    kind = number_dtype(quant_type)
    largest = float(kind.max)
    axes = [dim % len(w.shape) for dim in listed(dims)]
    scale = arithmetic.compute("div", apply_one("amax", apply_one("abs", w), axes=axes), largest)
    quotient = arithmetic.compute("div", w, unsqueeze(scale, sorted(axes)))
    return cast(apply_one("round", quotient), kind), scale


def symmetric_dequantize(wq: Tensor, scale: Tensor, dims: Numbers = -1) -> Tensor:
    """What `symmetric_quantize` was given, rounded."""
    axes = sorted(dim % len(wq.shape) for dim in listed(dims))
    return arithmetic.compute("mul", cast(wq, scale.dtype), unsqueeze(scale, axes))


def real(x: Tensor) -> Tensor:
    """The real parts of complex elements; x where it has others."""
    return create.asarray(_complex_elements(x).real.copy(), device=x.device) if x.dtype.is_complex else x


def imag(x: Tensor) -> Tensor:
    """The imaginary parts of complex elements."""
    return create.asarray(_complex_elements(x).imag.copy(), device=x.device)


def conj(x: Tensor) -> Tensor:
    """Complex elements with the sign of their imaginary parts changed; x where it has others."""
    return create.asarray(_complex_elements(x).conj(), device=x.device) if x.dtype.is_complex else x


def make_complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex elements of real and imaginary parts. They are stored; kernels compute with parts."""
    return create.asarray(real.numpy() + imag.numpy() * real.numpy().dtype.type(1) * 1j, device=real.device)


def _complex_elements(x: Tensor) -> Any:
    if not x.dtype.is_complex:
        raise UnsupportedOp(f"a part of complex elements was asked of a tensor of {x.dtype.name}")
    return x.numpy()
