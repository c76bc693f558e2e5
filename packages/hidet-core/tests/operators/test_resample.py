"""Resampling of one axis against torch, and against the formulas of ONNX Resize written out in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hidet.errors import ShapeError, UnsupportedOp

torch = pytest.importorskip("torch")
F = torch.nn.functional

TRANSFORMS = {
    "half_pixel": lambda i, n, m, s: (i + 0.5) / s - 0.5,
    "half_pixel_symmetric": lambda i, n, m, s: n / 2 * (1 - m / (s * n)) + (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, n, m, s: (i + 0.5) / s - 0.5 if s * n > 1 else 0.0,
    "align_corners": lambda i, n, m, s: 0.0 if s * n == 1 else i * (n - 1) / (s * n - 1),
    "asymmetric": lambda i, n, m, s: i / s,
    "tf_half_pixel_for_nn": lambda i, n, m, s: (i + 0.5) / s,
    "tf_crop_and_resize": lambda i, n, m, s: 0.2 * (n - 1) + (i * 0.9 * (n - 1) / (s * n - 1) if s * n != 1 else 0.45),
}
ROUNDINGS = {
    "round_prefer_floor": lambda p: math.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: math.floor(p + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def weight(mode: str, d: float, a: float = -0.75) -> float:
    d = abs(d)
    if mode == "linear":
        return max(0.0, 1 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def resampled(x: Any, size: int, scale: float | None, transform: str, mode: str, **options: Any) -> Any:
    """The last axis of x, one output element after the other."""
    n = x.shape[-1]
    ratio = size / n if scale is None else scale
    columns = []
    for i in range(size):
        place = TRANSFORMS[transform](i, n, size, ratio)
        if mode == "nearest":
            column = x[..., min(max(ROUNDINGS[options["rounding"]](place), 0), n - 1)]
        else:
            near = range(math.floor(place) - 1, math.floor(place) + 3)
            weights = {j: weight(mode, j - place) for j in near}
            if options.get("exclude_outside"):
                weights = {j: w for j, w in weights.items() if 0 <= j < n}
            column = sum(x[..., min(max(j, 0), n - 1)] * w for j, w in weights.items()) / sum(weights.values())
        if "outside" in options and not 0 <= place <= n - 1:
            column = np.full_like(column, options["outside"])
        columns.append(column)
    return np.stack(columns, axis=-1)


SIZES = ((4, 7, None), (5, 3, None), (4, 8, 2.0), (7, 4, 0.6), (3, 1, None), (1, 3, None))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ("linear", "cubic"))
def test_filtered_resampling_follows_the_formulas(mode: str, transform: str, apply: Any, make: Any) -> None:
    for extent, size, scale in SIZES:
        x = make((2, extent), "float64")
        options: dict[str, Any] = {"exclude_outside": mode == "cubic"}
        attrs: dict[str, Any] = {}
        if transform == "tf_crop_and_resize":
            if (size if scale is None else scale * extent) == 1:
                continue
            options["outside"] = attrs["outside"] = 10.0
            attrs["window"] = (0.2, 1.1)
        expected = resampled(x.numpy(), size, scale, transform, mode, **options)
        got = apply(
            "resample", x, axis=1, size=size, scale=scale, mode=mode, transform=transform,
            exclude_outside=options["exclude_outside"], **attrs,
        )  # fmt: skip
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("transform", [t for t in TRANSFORMS if t != "tf_crop_and_resize"])
def test_the_nearest_element_is_chosen_by_the_rounding(transform: str, rounding: str, apply: Any, make: Any) -> None:
    for extent, size, scale in SIZES:
        x = make((extent, 3), "uint8", 0, 255)
        expected = resampled(x.numpy().T, size, scale, transform, "nearest", rounding=rounding).T
        got = apply(
            "resample", x, axis=0, size=size, scale=scale, mode="nearest", transform=transform, rounding=rounding
        )
        np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
@pytest.mark.parametrize(("mode", "theirs"), (("linear", "bilinear"), ("cubic", "bicubic")))
def test_antialiasing_agrees_with_torch(mode: str, theirs: str, dtype: str, apply: Any, make: Any) -> None:
    for extent, size in ((9, 4), (7, 7), (5, 11), (16, 3), (8, 1)):
        x = make((1, 2, extent, 3), dtype)
        expected = F.interpolate(x.double(), (size, 3), mode=theirs, antialias=True)
        # torch's cubic filter is another one when it antialiases: Keys's own, of -0.5.
        got = apply(
            "resample", x, axis=2, size=size, mode=mode, antialias=True, exclude_outside=True, cubic_coefficient=-0.5
        )
        bound = 2e-3 if dtype == "float16" else 1e-5
        torch.testing.assert_close(got.double(), expected, rtol=bound, atol=bound)


def test_resampling_refuses_what_it_does_not_know(apply: Any, make: Any) -> None:
    x = make((2, 3))
    with pytest.raises(UnsupportedOp, match="no transform 'corners'"):
        apply("resample", x, axis=1, size=2, transform="corners")
    with pytest.raises(ShapeError, match="scale is 0"):
        apply("resample", x, axis=1, size=2, scale=0)
    with pytest.raises(ShapeError, match="without any"):
        apply("resample", make((2, 0)), axis=1, size=2)
