"""Resize and Upsample: every axis that changes is resampled by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, floordiv
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "cubic": "cubic"}

# What versions before Resize-11 mean: they have no attributes for it.
_EARLY = {"transform": "asymmetric", "rounding": "floor"}


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Upsample", 7): _upsample_by_attribute,
        ("Upsample", 9): _resize_by_scales,
        ("Resize", 10): _resize_by_scales,
        ("Resize", 11): _resize,
    }


@dataclass(frozen=True, slots=True)
class _Change:
    """How one axis changes. scale: None is the new over the old extent. window: part of the axis that is read."""

    axis: int
    size: Dim
    scale: float | None
    window: tuple[float, float] = (0.0, 1.0)


def _upsample_by_attribute(e: Emitter, x: Value, *, scales: Sequence[float], mode: str = "nearest") -> Value:
    return _resampled(e, x, _scaled(e, x, range(x.tensor.rank), scales, None), mode, **_EARLY)


def _resize_by_scales(e: Emitter, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    factors = e.array_of(scales, "scales").reshape(-1).tolist()
    return _resampled(e, x, _scaled(e, x, range(x.tensor.rank), factors, None), mode, **_EARLY)


def _resize(
    e: Emitter,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Value:
    rank = x.tensor.rank
    places = range(rank) if axes is None else [axis % rank for axis in axes]
    is_cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    windows = _windows(e, roi, len(places)) if is_cropped else None
    if scales is not None and 0 in scales.tensor.shape:
        scales = None
    if (scales is None) == (sizes is None):
        raise ImportFailed(f"{e.operator} takes either scales or sizes")
    if sizes is not None:
        wanted = e.dims(sizes, "the sizes")
        changes = _sized(e, x, places, wanted, windows, keep_aspect_ratio_policy)
    else:
        changes = _scaled(e, x, places, e.array_of(scales, "scales").reshape(-1).tolist(), windows)  # type: ignore[arg-type]  # one is given
    return _resampled(
        e,
        x,
        changes,
        mode,
        transform=coordinate_transformation_mode,
        rounding=nearest_mode,
        cubic_coefficient=cubic_coeff_a,
        exclude_outside=bool(exclude_outside),
        antialias=bool(antialias),
        outside=extrapolation_value if is_cropped else None,
    )


def _windows(e: Emitter, roi: Value | None, count: int) -> list[tuple[float, float]]:
    """Start and end of the part of each axis that is read: all starts come first."""
    if roi is None:
        raise ImportFailed(f"{e.operator}: tf_crop_and_resize needs roi")
    ends = e.array_of(roi, "roi").astype(float).reshape(-1).tolist()
    if len(ends) != 2 * count:
        raise ImportFailed(f"{e.operator}: roi has {len(ends)} elements, expected {2 * count}")
    return list(zip(ends[:count], ends[count:], strict=True))


def _scaled(
    e: Emitter, x: Value, axes: Sequence[int], scales: Sequence[float], windows: Sequence[Any] | None
) -> list[_Change]:
    if len(scales) != len(axes):
        raise ImportFailed(f"{e.operator}: {len(scales)} scales for {len(axes)} axes")
    changes = []
    for number, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        if not 0 < scale < 1 << 20:
            raise ImportFailed(f"{e.operator}: scale {scale} of axis {axis}, expected a positive number")
        size = _times(x.tensor.shape[axis], scale)
        changes.append(_Change(axis, size, scale, (0.0, 1.0) if windows is None else windows[number]))
    return changes


def _times(extent: Dim, scale: float) -> Dim:
    """floor(extent * scale); of a symbolic extent by the fraction nearest to the scale."""
    if isinstance(extent, int):
        return int(extent * scale)
    exact = Fraction(scale).limit_denominator(4096)
    return floordiv(extent * exact.numerator, exact.denominator)


def _sized(
    e: Emitter,
    x: Value,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    windows: Sequence[Any] | None,
    policy: str,
) -> list[_Change]:
    if len(sizes) != len(axes):
        raise ImportFailed(f"{e.operator}: {len(sizes)} sizes for {len(axes)} axes")
    parts = [(0.0, 1.0)] * len(axes) if windows is None else windows
    rows = list(zip(axes, sizes, parts, strict=True))
    if policy == "stretch":
        return [_Change(axis, size, None, part) for axis, size, part in rows]
    if policy not in ("not_larger", "not_smaller"):
        raise UnsupportedOp(f"{e.operator}: keep_aspect_ratio_policy is {policy!r}")
    extents = [x.tensor.shape[axis] for axis in axes]
    if not all(isinstance(number, int) and number > 0 for number in (*extents, *sizes)):
        raise UnsupportedOp(f"{e.operator}: keep_aspect_ratio_policy {policy!r} of symbolic or empty axes")
    ratios = [int(size) / int(extent) for size, extent in zip(sizes, extents, strict=True)]  # type: ignore[arg-type]  # ints
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [_Change(axis, int(x.tensor.shape[axis] * scale + 0.5), scale, part) for axis, _, part in rows]  # type: ignore[operator]  # ints


def _resampled(e: Emitter, x: Value, changes: Sequence[_Change], mode: str, **options: Any) -> Value:
    if mode not in _MODES:
        raise UnsupportedOp(f"{e.operator}: mode is {mode!r}, expected nearest, linear or cubic")
    source = x.tensor.dtype
    is_nearest = _MODES[mode] == "nearest"
    # Every axis rounds, so that of narrow types the axes between are f32.
    is_wide = is_nearest or source in (dtypes.f32, dtypes.f64)
    result = x if is_wide else e.cast(x, dtypes.f32)
    for change in changes:
        extent = result.tensor.shape[change.axis]
        is_same = change.size == extent and change.scale in (None, 1.0) and change.window == (0.0, 1.0)
        if not is_same:
            result = e.emit(
                "resample",
                result,
                axis=change.axis,
                size=change.size,
                scale=change.scale,
                mode=_MODES[mode],
                window=change.window,
                **options,
            )
    if is_wide:
        return result
    if source.is_int:
        result = e.emit("clamp", e.emit("round", result), min=float(source.min), max=float(source.max))
    return e.cast(result, source)
