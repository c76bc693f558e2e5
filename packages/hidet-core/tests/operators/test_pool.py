"""Pooling against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import ShapeError
from hidet.graph import GraphBuilder, TensorType

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = ("float32", "float16", "bfloat16", "float64")
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}

# input, kernel, attributes that torch's max and average pooling share
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 9), (3,), {}),
    ((2, 3, 9), (2,), {"stride": 3, "padding": 1, "ceil_mode": True}),
    ((2, 3, 7, 9), (3, 2), {"stride": 2, "padding": 1}),
    ((1, 2, 8, 11), (3, 3), {"stride": (2, 3), "padding": (1, 0), "ceil_mode": True}),
    ((2, 112, 5), (2, 2), {"stride": 2}),
    ((0, 3, 6, 6), (2, 2), {}),
    ((1, 2, 5, 6, 7), (2, 3, 2), {"stride": 2, "padding": (1, 1, 0), "ceil_mode": True}),
    ((1, 1, 5, 5), (2, 2), {"stride": 4, "padding": 1, "ceil_mode": True}),
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "kernel", "attrs"), CASES)
def test_max_and_average_pooling_agree_with_torch(
    shape: Any, kernel: Any, attrs: dict[str, Any], dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x = make(shape, dtype)
    assert_matches(apply("max_pool", x, kernel=kernel, **attrs), MAX_POOL[len(kernel)](x, kernel, **attrs))
    for count_include_pad in (False, True):
        more = {**attrs, "count_include_pad": count_include_pad}
        theirs = AVG_POOL[len(kernel)](x.double(), kernel, **more).to(x.dtype)
        assert_matches(apply("avg_pool", x, kernel=kernel, **more), theirs, scale=4)


def test_max_pooling_dilates_and_returns_positions(apply_all: Any, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((2, 3, 9, 8), "int64", -9, 9).float()
    x[0, 0, 0, 0] = float("nan")
    x[1, 1] = float("-inf")
    for attrs in ({}, {"stride": 1, "padding": 1, "dilation": 2}, {"stride": (2, 3), "ceil_mode": True}):
        theirs = F.max_pool2d(x, (3, 2), **attrs, return_indices=True)
        for mine, other in zip(apply_all("max_pool_with_indices", x, kernel=(3, 2), **attrs), theirs, strict=True):
            assert_matches(mine, other)
        assert_matches(apply("max_pool", x, kernel=(3, 2), **attrs), theirs[0])


def test_average_pooling_divides_by_the_override(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((2, 3, 7, 7))
    theirs = F.avg_pool2d(x, 3, padding=1, divisor_override=5)
    assert_matches(apply("avg_pool", x, kernel=(3, 3), padding=1, divisor_override=5), theirs, scale=4)


@pytest.mark.parametrize("include_pad", (False, True))
@pytest.mark.parametrize("ceil_mode", (False, True))
def test_dilated_averages_divide_by_the_taps_on_the_input(
    ceil_mode: bool, include_pad: bool, apply: Any, make: Any, assert_matches: Any
) -> None:
    for extent, taps, step, spread, pad in ((9, 3, 2, 2, 2), (7, 2, 3, 3, 1), (6, 3, 1, 1, 1), (11, 2, 4, 2, 1)):
        x = make((1, 1, extent), "float64", 1, 2)
        got = apply(
            "avg_pool", x, kernel=(taps,), stride=step, padding=pad, dilation=spread,
            ceil_mode=ceil_mode, count_include_pad=include_pad,
        )  # fmt: skip
        averages = []
        for i in range(got.shape[2]):
            places = [i * step - pad + tap * spread for tap in range(taps)]
            inside = [p for p in places if 0 <= p < extent]
            counted = [p for p in places if -pad <= p < extent + pad] if include_pad else inside
            averages.append(sum(x[0, 0, p].item() for p in inside) / len(counted))
        assert_matches(got[0, 0], torch.tensor(averages, dtype=torch.float64))


def test_dilated_lp_pooling_takes_every_second_element(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((1, 2, 9))
    theirs = F.lp_pool1d(x[:, :, ::2].contiguous(), 2.0, 3, 1)
    assert_matches(apply("lp_pool", x, kernel=(3,), stride=2, dilation=2), theirs, scale=8)


def test_lp_pooling_agrees_with_torch(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((2, 3, 7, 8))
    for p in (2, 4):
        theirs = F.lp_pool2d(x, float(p), (3, 2), 2)
        assert_matches(apply("lp_pool", x, p=p, kernel=(3, 2), stride=2), theirs, scale=8)


@pytest.mark.parametrize("size", ((1, 1), (3, 2), (5, 7), (9, 4), (4, None), (12, 11)))
def test_adaptive_pooling_agrees_with_torch(
    size: Any, apply: Any, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for dtype in FLOATS:
        x = make((2, 3, 9, 7), dtype)
        theirs = F.adaptive_avg_pool2d(x.double(), size).to(x.dtype)
        assert_matches(apply("adaptive_avg_pool", x, size=size), theirs, scale=4)
    both = F.adaptive_max_pool2d(x, size, return_indices=True)
    for mine, other in zip(apply_all("adaptive_max_pool", x, size=size), both, strict=True):
        assert_matches(mine, other)


def test_adaptive_pooling_of_one_and_three_axes_agrees_with_torch(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((2, 3, 5, 6, 7))
    assert_matches(apply("adaptive_avg_pool", x, size=(2, 4, 7)), F.adaptive_avg_pool3d(x, (2, 4, 7)), scale=4)
    assert_matches(apply("adaptive_avg_pool", x[0, 0], size=(4,)), F.adaptive_avg_pool1d(x[0, 0], 4), scale=4)


def test_pooling_of_integers_keeps_the_lowest_as_padding(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((1, 2, 5, 5), "int32", -9, -1)
    theirs = F.max_pool2d(x.double(), 3, 2, 1).int()
    assert_matches(apply("max_pool", x, kernel=(3, 3), stride=2, padding=1), theirs)


def test_pooling_of_a_symbolic_image_has_symbolic_extents(operators: Any) -> None:
    s = symbol("s0", lower=8, divisor=2)
    builder = GraphBuilder(operators)
    x = builder.input(TensorType(dtypes.f32, (1, 3, s, s)))
    assert builder.emit("max_pool", x, kernel=(3, 3), stride=2, padding=1).tensor.shape == (1, 3, s // 2, s // 2)
    assert builder.emit("adaptive_avg_pool", x, size=(1, None)).tensor.shape == (1, 3, 1, s)


def test_windows_larger_than_the_input_are_refused(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="windows of 6 do not fit an axis of extent 5"):
        apply("max_pool", make((1, 1, 5, 5)), kernel=(6, 6))
