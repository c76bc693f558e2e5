"""Depthwise convolutions: windows over the edge, channels that fill no vector, memory orders, element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dims
from hidet.compiler.graphs import compile_graph
from hidet.cpu.schedules.depthwise import item_rows
from hidet.cpu.testing import assert_compiles_right, build, context, random_array
from hidet.graph import GraphBuilder, Value


def check(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    is_last: bool = True,
    dtype: str = "float32",
    parameters: tuple[int, ...] = (1, 2),
    **attrs: Any,
) -> None:
    """A depthwise conv and relu on an image of logical shape [n, c, *space], channels innermost or not."""
    channels, rank = image[1], len(image)
    shapes = (image, (channels, 1, *kernel), (channels,))
    x, w, b = (random_array(*shape, dtype=dtype) for shape in shapes)

    def make(g: GraphBuilder, x: Value, w: Value, b: Value) -> Value:
        if is_last:
            x = g.emit("transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
        return g.emit("relu", g.emit("conv", x, w, b, groups=channels, **attrs))

    stored = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if is_last else x
    assert_compiles_right(make, stored, w, b, parameters=parameters)


@pytest.mark.parametrize("is_last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("channels", [5, 24, 64, 130])
def test_any_number_of_channels(channels: int, is_last: bool) -> None:
    check((2, channels, 11, 13), (3, 3), is_last=is_last, padding=1)


@pytest.mark.parametrize(
    ("size", "kernel", "attrs"),
    [
        ((14, 14), (7, 7), {"padding": 3, "stride": 2}),
        ((7, 7), (7, 7), {"padding": 3}),
        ((9, 12), (3, 2), {"padding": ((2, 1), (0, 3)), "dilation": (2, 3)}),
        ((3, 3), (3, 3), {"padding": 4}),
        ((20,), (3,), {"padding": 1}),
    ],
    ids=["stride", "wide window", "uneven", "windows off the image", "1d"],
)
def test_windows_of_every_kind(size: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check((1, 48, *size), kernel, **attrs)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int32"])
def test_every_element_type(dtype: str) -> None:
    check((1, 40, 9, 9), (3, 3), dtype=dtype, padding=1)


def test_weights_that_are_no_parameters() -> None:
    check((1, 48, 9, 9), (3, 3), parameters=(), padding=1)


@pytest.mark.parametrize(("image", "kernel", "filters"), [((1, 8, 5, 6, 7), (3, 3, 3), 8), ((1, 8, 5, 6), (3, 3), 16)])
def test_what_is_not_one_filter_a_channel_over_two_axes_is_a_product(
    image: tuple[int, ...], kernel: tuple[int, ...], filters: int
) -> None:
    arrays = random_array(*image), random_array(filters, 1, *kernel)
    assert_compiles_right(lambda g, x, w: g.emit("conv", x, w, groups=8, padding=1), *arrays, parameters=(1,))


def test_layers_share_one_kernel() -> None:
    def make(g: GraphBuilder, x: Value, *weights: Value) -> Value:
        x = g.emit("transpose", x, perm=(0, 3, 1, 2))
        for stride, weight in zip((1, 2, 2), weights, strict=True):
            size = weight.tensor.shape[2]
            assert isinstance(size, int)
            x = g.emit("conv", x, weight, padding=size // 2, stride=stride, groups=64)
        return g.emit("transpose", x, perm=(0, 2, 3, 1))

    arrays = [random_array(1, 20, 20, 64), *(random_array(64, 1, k, k) for k in (3, 5, 3))]
    assert compile_graph(build(make, arrays, parameters=(1, 2, 3)), context()).report().kernels == 1


@pytest.mark.parametrize(
    ("height", "row_work", "rows"), [(112, 9_000, 14), (112, 500_000, 2), (7, 9_000, 1), (28, 9_000, 3)]
)
def test_threads_get_neighbouring_rows_of_images_that_are_soon_computed(height: int, row_work: int, rows: int) -> None:
    assert item_rows(height, row_work) == rows
    assert item_rows(dims.symbol("height", hint=height), row_work) == rows
    assert item_rows(dims.symbol("height"), row_work) == 1_000_000 // row_work
