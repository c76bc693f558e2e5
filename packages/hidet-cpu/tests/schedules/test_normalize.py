"""Normalisations on the CPU: lengths, strides, element types, parameters, statistics, fused operators."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import assert_close, assert_compiles_right, build, context, random_array
from hidet.graph import GraphBuilder, TensorType, Value
from hidet.testing.interpret import interpret

LENGTHS = [(1, 1), (3, 2), (5, 15), (4, 16), (2, 63), (300, 40), (3, 768), (2, 9000), (0, 5), (3, 0)]


@pytest.mark.parametrize(
    ("name", "attributes"),
    [("layer_norm", {"rank": 1}), ("rms_norm", {"rank": 1}), ("l2_normalize", {"axis": 1})],
)
def test_one_program_serves_rows_of_every_length(name: str, attributes: dict[str, int]) -> None:
    rows, length = dims.symbol("rows", 0, 4096), dims.symbol("length", 0, 1 << 20)
    graph = build(
        lambda g, x: g.emit(name, x, **attributes), [random_array(1, 1)], [TensorType(dtypes.f32, (rows, length))]
    )
    compiled = compile_graph(graph, context())
    assert compiled.report().nodes.fallback == 0
    for size in LENGTHS:
        x = random_array(*size) + 2
        assert_close(compiled(x), interpret(graph, [x])[0], 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [37, 9001])
def test_layer_norm_with_parameters_in_every_float_type(dtype: str, length: int) -> None:
    arrays = [random_array(*shape, dtype=dtype) for shape in ((3, length), (length,), (length,))]
    assert_compiles_right(lambda g, x, w, b: g.emit("layer_norm", x, w, b, rank=1), *arrays, terms=length)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_layer_norm_over_several_axes(rank: int) -> None:
    shape = (4, 5, 6)
    arrays = random_array(*shape), random_array(*shape[3 - rank :])
    assert_compiles_right(lambda g, x, w: g.emit("layer_norm", x, w, rank=rank), *arrays)


def _deviations(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True)


@pytest.mark.parametrize("ratio", [1e1, 1e3, 1e5, 1e6, -1e6])
@pytest.mark.parametrize("deviation", [1.0, 1e-3, 300.0])
@pytest.mark.thorough(every=2)
def test_a_mean_that_is_large_beside_the_deviation_costs_no_digits(ratio: float, deviation: float) -> None:
    """red-team.md finding 7."""
    mean = ratio * deviation
    rows, image = (
        (random_array(*shape).astype(np.float64) * deviation + mean).astype(np.float32)
        for shape in ((5, 1000), (2, 8, 10, 10))
    )
    last = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    grouped = _deviations(image.reshape(2, 2, 400), (2,)).reshape(image.shape)
    graph = build(
        lambda g, x, y, z: (
            g.emit("layer_norm", x, rank=1, eps=0.0),
            g.emit("group_norm", y, groups=2, eps=0.0),
            g.emit("instance_norm", y, eps=0.0),
            g.emit("group_norm", _channels_first(g, z, 4), groups=2, eps=0.0),
        ),
        [rows, image, last],
    )
    compiled = compile_graph(graph, context())
    assert compiled.report().nodes.fallback == 0
    wanted = [_deviations(rows, (1,)), grouped, _deviations(image, (2, 3)), grouped]
    for results in (compiled(rows, image, last), interpret(graph, [rows, image, last])):
        for found, right in zip(results, wanted, strict=True):
            assert np.abs(found - right).max() <= 1e-6 * np.abs(right).max()


def test_rows_of_equal_elements_have_no_deviation() -> None:
    x = np.repeat(np.float32([[0.1], [1e-3], [123456.7], [-3e7]]), 777, axis=1)
    compiled = compile_graph(build(lambda g, a: g.emit("layer_norm", a, rank=1, eps=1e-5), [x]), context())
    assert np.abs(compiled(x)).max() <= 1e-6


def _channels_first(g: GraphBuilder, x: Value, rank: int) -> Value:
    """A view with the last axis moved to the second place, so that channels lie next to each other."""
    return g.emit("transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))


GROUPED = [
    *(((2, 6, 5, 7), groups) for groups in (1, 2, 6)),
    *[
        ((1, 12, 9), 2),
        ((2, 24, 4, 4), 6),
        ((3, 6), 2),
        ((1, 64, 10, 11), 2),
        ((1, 64, 10, 11), 32),
        ((1, 6, 90, 100), 1),
    ],
]


@pytest.mark.parametrize(("shape", "groups"), GROUPED)
def test_group_norm_in_both_memory_orders(shape: tuple[int, ...], groups: int) -> None:
    x, parameters = random_array(*shape) + 1, [random_array(shape[1], seed=n) for n in (1, 2)]

    def make(g: GraphBuilder, x: Value, w: Value, b: Value) -> Value:
        return g.emit("group_norm", x, w, b, groups=groups)

    terms = x.size // shape[0] // groups
    assert_compiles_right(make, x, *parameters, terms=terms)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    assert_compiles_right(
        lambda g, x, w, b: make(g, _channels_first(g, x, len(shape)), w, b), last, *parameters, terms=terms
    )


@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (1, 20, 33), (2, 40, 5, 5)])
def test_instance_norm_in_both_memory_orders(shape: tuple[int, ...]) -> None:
    x, weight = random_array(*shape), random_array(shape[1])
    assert_compiles_right(lambda g, x, w: g.emit("instance_norm", x, w), x, weight)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    assert_compiles_right(lambda g, x, w: g.emit("instance_norm", _channels_first(g, x, len(shape)), w), last, weight)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_l2_normalize_along_any_axis(axis: int) -> None:
    x = random_array(4, 9, 18)
    x[:, 0] = 0
    assert_compiles_right(lambda g, a: g.emit("l2_normalize", a, axis=axis), x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["layer_norm_with_statistics", "group_norm_with_statistics"])
def test_statistics_are_results_too(name: str, dtype: str) -> None:
    x = random_array(3, 8, 20, dtype=dtype)
    attributes = {"rank": 1} if name.startswith("layer") else {"groups": 2}
    builder = GraphBuilder(context().registry.operators)
    value = builder.input(TensorType(dtypes.dtype(dtype), x.shape), "x")
    graph = builder.build(list(builder.emit_all(name, [value], attributes)))
    compiled = compile_graph(graph, context())
    assert compiled.report().nodes.fallback == 0
    for got, want in zip(compiled(x), interpret(graph, [x]), strict=True):
        assert_close(got, want)


@pytest.mark.parametrize("length", [48, 9000])
def test_a_sum_before_and_an_activation_after_are_fused(length: int) -> None:
    def block(g: GraphBuilder, x: Value, y: Value, w: Value) -> Value:
        return g.emit("gelu", g.emit("layer_norm", g.emit("add", x, y), w, rank=1))

    arrays = random_array(2, 3, length), random_array(3, length), random_array(length)
    assert_compiles_right(block, *arrays, terms=length)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_values_that_are_not_finite_act_as_in_the_definition(value: float) -> None:
    x = random_array(4, 30)
    x[1, 29] = value
    x[2] = value
    assert_compiles_right(lambda g, a: g.emit("layer_norm", a, rank=1), x)
