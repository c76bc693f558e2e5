"""Convolutions: strides, padding, dilation, groups, ranks, memory orders, element types, fused operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import assert_compiles_right, build, context, random_array
from hidet.graph import GraphBuilder, TensorType, Value

LAST = "channels last"
FIRST = "channels first"
ORDERS = [LAST, FIRST]


def check(
    image: tuple[int, ...],
    weight: tuple[int, ...],
    order: str = LAST,
    *,
    activation: str | None = None,
    parameters: tuple[int, ...] = (1, 2),
    dtype: str = "float32",
    terms: int = 256,
    op: str = "conv",
    **attrs: Any,
) -> None:
    """`op`(x, w, b) on an image of logical shape [n, c, *space] that lies in memory in `order`."""
    filters = weight[0] if op == "conv" else weight[1] * attrs.get("groups", 1)
    x, w, b = (random_array(*shape, dtype=dtype) for shape in (image, weight, (filters,)))
    rank = len(image)

    def make(g: GraphBuilder, x: Value, w: Value, b: Value) -> Value:
        if order == LAST:
            x = g.emit("transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
        y = g.emit(op, x, w, b, **attrs)
        return y if activation is None else g.emit(activation, y)

    stored = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if order == LAST else x
    assert_compiles_right(make, stored, w, b, parameters=parameters, terms=terms)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("image", "weight", "attrs"),
    [
        ((1, 16, 9, 9), (24, 16, 3, 3), {"padding": 1}),
        ((2, 3, 17, 15), (20, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((2, 16, 9, 8), (33, 16, 1, 1), {}),
        ((2, 16, 9, 8), (33, 16, 1, 1), {"stride": 2}),
        ((2, 12, 11, 8), (18, 12, 3, 2), {"dilation": (2, 1), "padding": ((1, 0), (2, 1)), "stride": (1, 2)}),
    ],
    ids=["3x3", "few channels", "pointwise", "pointwise stride", "uneven"],
)
@pytest.mark.thorough(every=2)
def test_windows_of_every_kind_are_right(
    order: str, image: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    check(image, weight, order, **attrs)


@pytest.mark.parametrize(
    ("image", "weight", "attrs"),
    [
        ((2, 3, 9), (2, 3, 2), {"dilation": 2}),
        ((1, 2, 6), (18, 2, 3), {"dilation": 2, "padding": 1}),
        ((1, 4, 6, 5), (6, 2, 2, 2), {"groups": 2}),
    ],
    ids=["1d", "more filters than lanes", "groups"],
)
def test_filters_shorter_than_a_vector_that_are_arguments_are_read_tap_by_tap(
    image: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    """Found by tests/fuzz/torch_programs.py, seed 429."""
    check(image, weight, FIRST, parameters=(), **attrs)


@pytest.mark.parametrize("order", ORDERS)
def test_groups_are_products_of_their_own(order: str) -> None:
    check((2, 12, 9, 8), (18, 4, 3, 3), order, groups=3, padding=((1, 0), (2, 1)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("image", "weight", "attrs"),
    [((2, 6, 30), (7, 6, 5), {"padding": 2}), ((1, 5, 6, 7, 8), (9, 5, 3, 3, 3), {"padding": 1, "stride": (1, 2, 1)})],
    ids=["1d", "3d"],
)
def test_one_and_three_spatial_axes(
    order: str, image: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    check(image, weight, order, **attrs)


@pytest.mark.parametrize("order", ORDERS)
def test_weights_that_are_no_parameters_are_packed_on_the_way(order: str) -> None:
    check((2, 12, 9, 8), (18, 4, 3, 3), order, groups=3, padding=1, parameters=())


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_activations_are_fused(activation: str) -> None:
    check((1, 16, 9, 9), (24, 16, 3, 3), padding=1, activation=activation)


def test_a_residual_in_channels_last_order_is_fused() -> None:
    def make(g: GraphBuilder, x: Value, w: Value, b: Value) -> Value:
        x = g.emit("transpose", x, perm=(0, 3, 1, 2))
        y = g.emit("relu", g.emit("add", g.emit("conv", x, w, b, padding=1), x))
        return g.emit("transpose", y, perm=(0, 2, 3, 1))

    x, w, b = random_array(2, 9, 7, 20), random_array(20, 20, 3, 3), random_array(20)
    assert_compiles_right(make, x, w, b, parameters=(1, 2))
    graph = build(make, (x, w, b), parameters=(1, 2))
    assert compile_graph(graph, context()).report().kernels == 1


@pytest.mark.parametrize("width", [3, 5, 14, 16, 45])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.thorough(every=3)
def test_planes_of_every_width_are_turned(width: int, dtype: str) -> None:
    check((2, 21, 3, width), (9, 21, 1, 1), FIRST, dtype=dtype)
    check((2, 21, 3, width), (9, 21, 3, 3), FIRST, padding=((1, 2), (3, 0)), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int32"])
def test_every_element_type_accumulates_as_defined(dtype: str) -> None:
    check((1, 16, 9, 9), (24, 16, 3, 3), padding=1, dtype=dtype)


def test_a_long_sum_is_added_in_chunks_of_taps() -> None:
    check((1, 600, 7, 7), (70, 600, 3, 3), padding=1, terms=5400)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 4, 33])
@pytest.mark.thorough(every=2)
def test_one_kernel_serves_images_of_every_size(size: int, order: str) -> None:
    height = dims.symbol("height", 1, 512)
    shape = (1, height, height, 18) if order == LAST else (1, 18, height, height)

    def make(g: GraphBuilder, x: Value, w: Value) -> Value:
        x = g.emit("transpose", x, perm=(0, 3, 1, 2)) if order == LAST else x
        return g.emit("conv", x, w, stride=2, padding=1)

    image = (1, size, size, 18) if order == LAST else (1, 18, size, size)
    arrays = random_array(*image), random_array(9, 18, 3, 3)
    assert_compiles_right(make, *arrays, types=[TensorType(dtypes.f32, shape)], parameters=(1,))


def test_no_images_and_no_channels_give_empty_and_bias() -> None:
    check((0, 4, 5, 5), (3, 4, 3, 3), padding=1)


def test_infinities_and_nan_reach_only_their_neighbours() -> None:
    x, w = random_array(1, 6, 9, 9), random_array(8, 6, 3, 3)
    x[0, 2, 0, 0], x[0, 3, 5, 5] = np.inf, np.nan
    assert_compiles_right(lambda g, x, w: g.emit("conv", x, w, padding=1), x, w, parameters=(1,))


def test_an_image_and_filters_that_are_both_turned_share_a_function() -> None:
    """With more rows than work items pack filters for, and filters that are no parameters."""
    x, w = random_array(1, 16, 24, 24), random_array(20, 16, 1, 1)
    assert_compiles_right(lambda g, x, w: g.emit("conv", x, w), x, w)


def test_layers_of_a_network_share_kernels() -> None:
    """Sizes, strides and numbers of channels are run-time parameters."""

    def make(g: GraphBuilder, x: Value, *weights: Value) -> Value:
        x = g.emit("transpose", x, perm=(0, 3, 1, 2))
        for number, weight in enumerate(weights):
            x = g.emit("relu", g.emit("conv", x, weight, padding=1, stride=2 if number else 3))
        return g.emit("transpose", x, perm=(0, 2, 3, 1))

    arrays = [random_array(1, 40, 40, 64), *(random_array(o, i, 3, 3) for o, i in ((64, 64), (128, 64), (64, 128)))]
    compiled = compile_graph(build(make, arrays, parameters=(1, 2, 3)), context())
    assert compiled.report().kernels == 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("image", "weight", "attrs"),
    [
        ((2, 16, 7, 6), (16, 20, 4, 4), {"stride": 2, "padding": 1}),
        ((2, 16, 7, 6), (16, 20, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((2, 16, 7, 6), (16, 20, 3, 2), {"stride": (1, 3), "dilation": 2}),
        ((2, 12, 7, 6), (12, 5, 2, 2), {"stride": 2, "groups": 3}),
        ((2, 12, 9), (12, 5, 5), {"stride": 3}),
    ],
    ids=["4x4", "output padding", "uneven", "groups", "1d"],
)
@pytest.mark.thorough(every=2)
def test_transposed_convolutions(
    order: str, image: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    check(image, weight, order, op="conv_transpose", **attrs)


def test_transposed_convolutions_with_weights_that_are_no_parameters() -> None:
    check((2, 12, 7, 6), (12, 5, 3, 3), op="conv_transpose", stride=2, groups=3, parameters=())
