"""Pooling in both memory orders: every kind, windows over the edge, element types, fused operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import assert_graph_is_right, build, channels_last, context, random_array
from hidet.graph import Graph, GraphBuilder, Value

ORDERS = pytest.mark.parametrize("is_last", [True, False], ids=["channels last", "channels first"])


def graph_of(
    op: str, x: np.ndarray[Any, Any], is_last: bool, activation: str | None = None, **attrs: Any
) -> tuple[Graph, np.ndarray[Any, Any]]:
    """The operator on an image in a memory order, which its result has too; and the image as it is stored."""
    rank = x.ndim

    def make(g: GraphBuilder, x: Value) -> tuple[Value, ...]:
        if is_last:
            x = g.emit("transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
        first, *others = g.emit_all(op, [x], attrs)
        results = (first if activation is None else g.emit(activation, first), *others)
        return tuple(g.emit("transpose", y, perm=(0, *range(2, rank), 1)) for y in results) if is_last else results

    stored = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if is_last else x
    graph = build(make, [stored])
    return (channels_last(graph, op) if is_last else graph), stored


def check(op: str, x: np.ndarray[Any, Any], is_last: bool, activation: str | None = None, **attrs: Any) -> None:
    graph, stored = graph_of(op, x, is_last, activation, **attrs)
    assert_graph_is_right(graph, [stored])


@ORDERS
@pytest.mark.parametrize("channels", [3, 16, 20, 64])
def test_any_number_of_channels(channels: int, is_last: bool) -> None:
    check("max_pool", random_array(2, channels, 11, 13), is_last, kernel=(3, 3), stride=2, padding=1)


@ORDERS
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("avg_pool", {"kernel": (3, 2), "stride": (2, 1), "padding": 1, "count_include_pad": False}),
        ("avg_pool", {"kernel": (3, 3), "stride": 2, "padding": 1, "ceil_mode": True}),
        ("max_pool_with_indices", {"kernel": (3, 3), "stride": 2, "padding": 1, "dilation": 2}),
        ("lp_pool", {"p": 2.0, "kernel": (3, 3), "stride": 2}),
        ("adaptive_avg_pool", {"size": (1, 1)}),
        ("adaptive_avg_pool", {"size": (3, 4)}),
        ("adaptive_max_pool", {"size": (3, 4)}),
    ],
)
def test_every_kind_of_pooling(op: str, attrs: dict[str, Any], is_last: bool) -> None:
    check(op, random_array(2, 32, 11, 13), is_last, **attrs)


@ORDERS
@pytest.mark.parametrize(("size", "kernel"), [((31,), (3,)), ((5, 6, 7), (2, 3, 2))], ids=["1d", "3d"])
def test_one_and_three_axes(size: tuple[int, ...], kernel: tuple[int, ...], is_last: bool) -> None:
    check("avg_pool", random_array(1, 20, *size), is_last, kernel=kernel)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int8", "int64"])
def test_every_element_type(dtype: str) -> None:
    check("max_pool", random_array(1, 20, 9, 9, dtype=dtype), True, kernel=(2, 2))


def test_averages_of_half_types_are_rounded_once() -> None:
    check("avg_pool", random_array(1, 20, 9, 9, dtype="bfloat16"), True, kernel=(3, 3))


def test_activations_are_fused() -> None:
    graph, stored = graph_of("avg_pool", random_array(1, 32, 9, 9), True, "silu", kernel=(3, 3))
    assert_graph_is_right(graph, [stored])
    assert compile_graph(graph, context()).report().kernels == 1


def test_nan_wins_and_padding_does_not() -> None:
    x = random_array(1, 16, 8, 8) - 10
    x[0, 3, 0, 0] = np.nan
    check("max_pool", x, True, kernel=(3, 3), stride=2, padding=1)


def test_windows_of_different_sizes_share_one_kernel() -> None:
    def make(g: GraphBuilder, x: Value) -> Value:
        x = g.emit("transpose", x, perm=(0, 3, 1, 2))
        for size in (2, 3):
            x = g.emit("max_pool", x, kernel=(size, size), stride=2, padding=1)
        return g.emit("transpose", x, perm=(0, 2, 3, 1))

    graph = channels_last(build(make, [random_array(1, 20, 20, 64)]), "max_pool")
    assert compile_graph(graph, context()).report().kernels == 1
