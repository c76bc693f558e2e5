"""Resampling against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import ShapeError, UnsupportedOp

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = ("float32", "float16", "bfloat16", "float64")
TORCH_MODES = {
    ("nearest", 1): "nearest",
    ("nearest", 2): "nearest",
    ("nearest", 3): "nearest",
    ("nearest_exact", 1): "nearest-exact",
    ("nearest_exact", 2): "nearest-exact",
    ("nearest_exact", 3): "nearest-exact",
    ("linear", 1): "linear",
    ("linear", 2): "bilinear",
    ("linear", 3): "trilinear",
    ("cubic", 2): "bicubic",
}
SIZES = {
    1: (((5,), (13,)), ((9,), (4,)), ((1,), (3,)), ((6,), (1,))),
    2: (((5, 7), (10, 14)), ((8, 9), (3, 5)), ((4, 4), (7, 1)), ((1, 6), (2, 6))),
    3: (((3, 4, 5), (6, 3, 7)),),
}


@pytest.mark.parametrize("align_corners", (False, True))
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("mode", "rank"), TORCH_MODES)
def test_interpolation_to_a_size_agrees_with_torch(
    mode: str, rank: int, dtype: str, align_corners: bool, apply: Any, make: Any, assert_matches: Any
) -> None:
    exact = "nearest" in mode
    corners = None if exact else align_corners
    for space, size in SIZES[rank]:
        x = make((2, 3, *space), dtype)
        wide = x if exact else x.double()
        theirs = F.interpolate(wide, size, mode=TORCH_MODES[mode, rank], align_corners=corners).to(x.dtype)
        ours = apply("interpolate", x, size=size, mode=mode, align_corners=align_corners)
        assert_matches(ours, theirs, scale=1 if exact else 8)


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
def test_interpolation_uses_given_scales(mode: str, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((1, 2, 7, 5), "float64")
    for scales in ((2.0, 1.7), (0.6, 3.1)):
        corners = None if mode == "nearest" else False
        theirs = F.interpolate(
            x, scale_factor=scales, mode=TORCH_MODES[mode, 2], align_corners=corners, recompute_scale_factor=False
        )
        ours = apply("interpolate", x, size=tuple(theirs.shape[2:]), mode=mode, scales=scales)
        assert_matches(ours, theirs, scale=8)


def test_nearest_interpolation_moves_any_element_type(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((1, 2, 3, 4), "uint8", 0, 255)
    assert_matches(apply("interpolate", x, size=(6, 5)), F.interpolate(x, (6, 5)))


@pytest.mark.parametrize("align_corners", (False, True))
@pytest.mark.parametrize("padding", ("zeros", "border", "reflection"))
@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
def test_grid_sampling_agrees_with_torch(
    mode: str, padding: str, align_corners: bool, apply: Any, make: Any, assert_matches: Any
) -> None:
    their_mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((2, 3, 5, 7), (2, 4, 6, 2)),
        ((1, 2, 1, 4), (1, 3, 3, 2)),
    ]
    if mode != "cubic":
        shapes.append(((2, 2, 3, 4, 5), (2, 2, 3, 4, 3)))
    for shape, out in shapes:
        x, grid = make(shape, "float64"), make(out, "float64", -1.9, 1.9, seed=1)
        theirs = F.grid_sample(x, grid, their_mode, padding, align_corners)
        ours = apply("grid_sample", x, grid, mode=mode, padding=padding, align_corners=align_corners)
        assert_matches(ours, theirs, scale=8)


def test_grid_sampling_far_outside_the_image_reads_padding(apply: Any, make: Any, assert_matches: Any) -> None:
    x, grid = make((1, 2, 4, 5)), torch.tensor([1e30, -1e30, 5.0, -7.0]).reshape(1, 1, 2, 2)
    for padding in ("zeros", "border"):
        theirs = F.grid_sample(x, grid, "bilinear", padding, False)
        assert_matches(apply("grid_sample", x, grid, padding=padding), theirs, scale=2)


def test_resampling_refuses_impossible_attributes_by_name(apply: Any, make: Any) -> None:
    with pytest.raises(UnsupportedOp, match="interpolate has no mode 'area'; it has: nearest"):
        apply("interpolate", make((1, 1, 4)), size=(2,), mode="area")
    with pytest.raises(ShapeError, match="takes a size and a scale an axis of 1"):
        apply("interpolate", make((1, 1, 4)), size=(2, 2))
    with pytest.raises(UnsupportedOp, match="grid_sample has no padding 'wrap'"):
        apply("grid_sample", make((1, 1, 4, 4)), make((1, 2, 2, 2)), padding="wrap")
