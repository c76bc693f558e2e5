"""Compiled scans against their definitions, over shapes, axes, directions and element types."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.graph import GraphBuilder, TensorType
from hidet.testing.interpret import interpret

CONTEXT = make_context("cpu", {"cache": False})
SHAPES = [
    ((7, 33), 0),
    ((7, 33), 1),
    ((3, 5, 17), 1),
    ((1000,), 0),
    ((2, 300, 70), 1),
    ((0, 4), 1),
    ((4, 0), 1),
    ((1, 5), 0),
]
DIRECTIONS = [{}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}]


def graph_of(op, x, *, type_=None, before=None, after=None, **attributes):
    builder = GraphBuilder(CONTEXT.registry.operators)
    value = builder.input(type_ or TensorType(dtypes.from_numpy(x.dtype), x.shape), "x")
    value = value if before is None else before(builder, value)
    results = builder.emit_all(op, [value], attributes)
    return builder.build(results if after is None else [after(builder, results[0])])


def check(graph, x, tolerance):
    compiled = compile_graph(graph, CONTEXT)
    results = compiled(x)
    assert compiled.report().nodes.fallback == 0
    with np.errstate(all="ignore"):
        expected = interpret(graph, [x])
    for got, wanted in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
        assert got.dtype == wanted.dtype
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, wanted)
        else:
            got, wanted = got.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    return compiled


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.thorough(every=3)
def test_running_sums_go_in_every_direction_along_every_axis(direction, shape, axis):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(graph_of("cumsum", x, axis=axis, **direction), x, 2e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["cumprod", "logcumsumexp"])
def test_running_products_and_logarithms_of_sums(op, axis):
    x = 0.05 * np.random.default_rng(0).standard_normal((9, 40)).astype(np.float32)
    check(graph_of(op, np.exp(x), axis=axis), np.exp(x), 2e-5)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("op", ["cummax", "cummin"])
@pytest.mark.thorough(every=2)
def test_running_extremes_know_the_latest_position(op, shape, axis):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    check(graph_of(op, x, axis=axis), x, 0)


@pytest.mark.parametrize("dtype", ["bool", "u8", "i32", "i64", "f64", "f16", "bf16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_type_is_summed_in_a_wider_one(dtype, axis):
    x = np.random.default_rng(0).integers(0, 3, (20, 30)).astype(dtypes.dtype(dtype).numpy())
    check(graph_of("cumsum", x, axis=axis), x, 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_operators_before_and_after_are_part_of_the_kernel(axis):
    x = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    graph = graph_of(
        *("cumsum", x),
        before=lambda builder, value: builder.emit("mul", value, value),
        after=lambda builder, value: builder.emit("sqrt", value),
        axis=axis,
    )
    assert check(graph, x, 1e-6).report().kernels == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_sizes_may_be_known_only_when_called(axis):
    rows = dims.symbol("rows", 1, 4096)
    x = np.random.default_rng(0).standard_normal((13, 21)).astype(np.float32)
    compiled = compile_graph(graph_of("cumsum", x, type_=TensorType(dtypes.f32, (rows, 21)), axis=axis), CONTEXT)
    for count in (1, 4, 13):
        part = np.ascontiguousarray(x[:count])
        np.testing.assert_allclose(compiled(part), part.astype(np.float64).cumsum(axis), rtol=1e-5, atol=1e-5)


def test_long_running_sums_keep_their_digits():
    x = np.random.default_rng(0).random((1, 200000)).astype(np.float32)
    compiled = compile_graph(graph_of("cumsum", x, axis=1), CONTEXT)
    np.testing.assert_allclose(compiled(x), x.astype(np.float64).cumsum(1), rtol=1e-7)
