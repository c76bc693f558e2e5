"""Resampling of images. Sizes are those of the result; scales count only where the user gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.operators.rules import arithmetic_dtype
from hidet.torch.emitter import TorchEmitter

# aten name without its number of axes -> core mode, whether corners may be aligned, numbers of axes
_MODES = {
    "upsample_nearest{}d": ("nearest", False, (1, 2, 3)),
    "_upsample_nearest_exact{}d": ("nearest_exact", False, (1, 2, 3)),
    "upsample_linear{}d": ("linear", True, (1,)),
    "upsample_bilinear{}d": ("linear", True, (2,)),
    "upsample_trilinear{}d": ("linear", True, (3,)),
    "upsample_bicubic{}d": ("cubic", True, (2,)),
}
# aten name -> core mode; torch's cubic filter is another one when it antialiases: that of Keys, with -0.5.
_ANTIALIASED = {"aten._upsample_bilinear2d_aa": "linear", "aten._upsample_bicubic2d_aa": "cubic"}
# Numbers that torch gives these modes in grid_sampler.
_GRID_MODES = ("linear", "nearest", "cubic")
_GRID_PADDINGS = ("zeros", "border", "reflection")


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {}
    for name, mode, aligns in resampling_modes():
        found[f"{name}.default"] = _by_scales(mode, aligns)
        found[f"{name}.vec"] = _by_factors(mode, aligns)
    for name, mode in _ANTIALIASED.items():
        found[f"{name}.default"] = _antialiased_by_scales(mode)
        found[f"{name}.vec"] = _antialiased_by_factors(mode)
    return found | {"aten.grid_sampler_2d.default": _grid_sample, "aten.grid_sampler_3d.default": _grid_sample}


def resampling_modes() -> list[tuple[str, str, bool]]:
    """aten name, core mode, and whether the operator takes `align_corners`."""
    return [
        (f"aten.{pattern.format(count)}", mode, aligns)
        for pattern, (mode, aligns, axes) in _MODES.items()
        for count in axes
    ]


def _resample(e: TorchEmitter, x: Value, mode: str, align_corners: bool, scales: Sequence[float | None]) -> Value:
    given = tuple(scales) if scales and None not in scales else None
    return e.emit("interpolate", x, size=e.result.shape[2:], mode=mode, align_corners=align_corners, scales=given)


def _by_scales(mode: str, aligns: bool) -> Handler:
    """Overloads that end with one scale an axis."""

    def aligned(e: TorchEmitter, x: Value, size: object, align_corners: bool, *scales: float | None) -> Value:
        return _resample(e, x, mode, align_corners, scales)

    def plain(e: TorchEmitter, x: Value, size: object, *scales: float | None) -> Value:
        return _resample(e, x, mode, False, scales)

    return aligned if aligns else plain


def _by_factors(mode: str, aligns: bool) -> Handler:
    """Overloads with a list of scale factors, or None."""

    def aligned(
        e: TorchEmitter, x: Value, size: object, align_corners: bool, scale_factors: Sequence[float] | None
    ) -> Value:
        return _resample(e, x, mode, align_corners, scale_factors or ())

    def plain(e: TorchEmitter, x: Value, size: object, scale_factors: Sequence[float] | None) -> Value:
        return _resample(e, x, mode, False, scale_factors or ())

    return aligned if aligns else plain


def _antialiased_by_scales(mode: str) -> Handler:
    def handler(e: TorchEmitter, x: Value, size: object, align_corners: bool, *scales: float | None) -> Value:
        return _antialias(e, x, mode, align_corners, scales)

    return handler


def _antialiased_by_factors(mode: str) -> Handler:
    def handler(
        e: TorchEmitter, x: Value, size: object, align_corners: bool, scale_factors: Sequence[float] | None
    ) -> Value:
        return _antialias(e, x, mode, align_corners, scale_factors or ())

    return handler


def _antialias(e: TorchEmitter, x: Value, mode: str, align_corners: bool, scales: Sequence[float | None]) -> Value:
    """One axis after the other; between them in f32."""
    dtype = x.tensor.dtype
    if align_corners or not dtype.is_float:
        raise UnsupportedOp(f"antialiasing of {dtype} images, align_corners={align_corners}")
    given = tuple(scales) or (None,) * (x.tensor.rank - 2)
    result = e.cast(x, arithmetic_dtype(dtype))
    for axis, (size, scale) in enumerate(zip(e.result.shape[2:], given, strict=True), 2):
        result = e.emit(
            "resample",
            result,
            axis=axis,
            size=size,
            scale=scale,
            mode=mode,
            cubic_coefficient=-0.5,
            exclude_outside=True,
            antialias=True,
        )
    return e.cast(result, dtype)


def _grid_sample(
    e: TorchEmitter, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    return e.emit(
        "grid_sample",
        x,
        grid,
        mode=_GRID_MODES[interpolation_mode],
        padding=_GRID_PADDINGS[padding_mode],
        align_corners=align_corners,
    )
