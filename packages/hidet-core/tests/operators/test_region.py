"""Boxes, deformed windows and affine grids against loops over every element, and torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hidet.errors import ShapeError

torch = pytest.importorskip("torch")

BOXES = [[0.0, 0.0, 6.0, 6.0], [1.5, 2.25, 4.75, 9.5], [-3.0, -2.0, 1.0, 20.0], [3.0, 3.0, 3.0, 3.0]]
IMAGES = [0, 1, 1, 0]


def between(plane: Any, y: float, x: float) -> float:
    """`plane` at a place, zeros around it, interpolated."""
    total = 0.0
    for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
            if 0 <= i < plane.shape[0] and 0 <= j < plane.shape[1]:
                total += plane[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def clipped(plane: Any, y: float, x: float) -> float:
    """`plane` at a place up to one element outside, where the outermost elements repeat; 0 further away."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    return between(plane, min(max(y, 0), height - 1), min(max(x, 0), width - 1))


def aligned(x: Any, size: tuple[int, int], scale: float, samples: int, centred: bool) -> Any:
    result = np.zeros((len(BOXES), x.shape[1], *size))
    for r, (box, image) in enumerate(zip(BOXES, IMAGES, strict=True)):
        left, top, right, bottom = (edge * scale - 0.5 * centred for edge in box)
        high, wide = bottom - top, right - left
        if not centred:
            high, wide = max(high, 1), max(wide, 1)
        step = (high / size[0], wide / size[1])
        counts = [samples or math.ceil(s) for s in step]
        for c, i, j in np.ndindex(x.shape[1], *size):
            places = [
                (top + (i + (a + 0.5) / counts[0]) * step[0], left + (j + (b + 0.5) / counts[1]) * step[1])
                for a in range(counts[0])
                for b in range(counts[1])
            ]
            result[r, c, i, j] = sum(clipped(x[image, c], *place) for place in places) / max(len(places), 1)
    return result


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("centred", (False, True))
@pytest.mark.parametrize("samples", (0, 1, 2))
def test_boxes_are_averaged_over_their_samples(
    samples: int, centred: bool, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x, boxes = make((2, 3, 8, 7), dtype), torch.tensor(BOXES, dtype=getattr(torch, dtype))
    for size, scale in (((2, 3), 1.0), ((4, 4), 0.5)):
        expected = torch.from_numpy(aligned(x.double().numpy(), size, scale, samples, centred)).to(x.dtype)
        attrs = {"size": size, "scale": scale, "samples": samples, "centred": centred}
        assert_matches(apply("roi_align", x, boxes, torch.tensor(IMAGES), **attrs), expected, scale=8)


def test_the_largest_share_of_a_box_is_the_largest_weighted_neighbour(apply: Any) -> None:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    images = torch.tensor([0])
    for box, expected in (([0.0, 0.0, 2.0, 2.0], 5.0), ([0.5, 0.0, 2.5, 2.0], 3.0)):
        got = apply("roi_align", x, torch.tensor([box]), images, size=(1, 1), samples=1, centred=False, mode="max")
        assert got.tolist() == [[[[expected]]]]


def pooled(x: Any, size: tuple[int, int], scale: float) -> Any:
    result = np.zeros((len(BOXES), x.shape[1], *size), x.dtype)
    for r, (box, image) in enumerate(zip(BOXES, IMAGES, strict=True)):
        left, top, right, bottom = (math.floor(edge * scale + 0.5) for edge in box)
        step = (max(bottom - top + 1, 1) / size[0], max(right - left + 1, 1) / size[1])
        for i, j in np.ndindex(*size):
            rows = slice(max(math.floor(i * step[0]) + top, 0), max(math.ceil((i + 1) * step[0]) + top, 0))
            columns = slice(max(math.floor(j * step[1]) + left, 0), max(math.ceil((j + 1) * step[1]) + left, 0))
            part = x[image, :, rows, columns]
            if part.size:
                result[r, :, i, j] = part.max(axis=(1, 2))
    return result


@pytest.mark.parametrize("scale", (1.0, 0.5))
def test_boxes_are_pooled_to_their_largest_elements(scale: float, apply: Any, make: Any) -> None:
    x = make((2, 3, 8, 7))
    for size in ((2, 2), (4, 8)):
        got = apply("roi_pool", x, torch.tensor(BOXES), torch.tensor(IMAGES), size=size, scale=scale)
        np.testing.assert_array_equal(got.numpy(), pooled(x.numpy(), size, scale))


@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
@pytest.mark.parametrize("align_corners", (False, True))
def test_affine_grids_agree_with_torch(
    align_corners: bool, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    for space in ((3, 4), (5, 1), (2, 3, 4)):
        if align_corners and 1 in space:
            continue  # torch warns that it changed its mind here
        theta = make((2, len(space), len(space) + 1), dtype)
        grid = torch.nn.functional.affine_grid(theta.double(), (2, 1, *space), align_corners=align_corners)
        assert_matches(
            apply("affine_grid", theta, space=space, align_corners=align_corners), grid.to(theta.dtype), scale=4
        )


@pytest.mark.parametrize("has_mask", (False, True))
@pytest.mark.parametrize("groups", (1, 2))
def test_deformed_columns_read_at_moved_places(groups: int, has_mask: bool, apply: Any, make: Any) -> None:
    x = make((2, 4, 6, 5), "float64")
    kernel, counts, stride = (3, 2), (3, 6), (2, 1)
    offset = make((2, groups * 12, *counts), "float64")
    mask = make((2, groups * 6, *counts), "float64", 0, 1) if has_mask else None
    expected = np.zeros((2, 4, *kernel, *counts))
    for n, c, a, b, i, j in np.ndindex(*expected.shape):
        tap = c // (4 // groups) * 6 + a * 2 + b
        dy, dx = offset[n, 2 * tap, i, j].item(), offset[n, 2 * tap + 1, i, j].item()
        value = between(x[n, c].numpy(), i * stride[0] + a - 1 + dy, j * stride[1] + b - 1 + dx)
        expected[n, c, a, b, i, j] = value * (1 if mask is None else mask[n, tap, i, j].item())
    got = apply("deform_columns", x, offset, mask, kernel=kernel, stride=stride, padding=(1, 1), groups=groups)
    np.testing.assert_allclose(got.numpy(), expected.reshape(2, 24, 18), rtol=1e-11, atol=1e-11)


def test_offsets_of_another_shape_are_refused(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="offset of shape"):
        apply("deform_columns", make((1, 2, 4, 4)), make((1, 8, 4, 4)), kernel=(2, 2))
    with pytest.raises(ShapeError, match=r"expected \[boxes, 4\]"):
        apply("roi_align", make((1, 1, 4, 4)), make((2, 5)), torch.tensor([0, 0]), size=(1, 1))
