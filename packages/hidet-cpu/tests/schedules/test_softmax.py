"""Softmax on the CPU: lengths, axes, strides, element types, fused operators, and values that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import assert_close, assert_compiles_right, build, context, numpy_dtype, random_array
from hidet.graph import GraphBuilder, TensorType, Value
from hidet.testing.interpret import interpret

OPERATORS = ("softmax", "log_softmax")


@pytest.mark.parametrize("name", OPERATORS)
def test_one_program_serves_rows_of_every_length(name: str) -> None:
    rows, length = dims.symbol("rows", 0, 4096), dims.symbol("length", 0, 1 << 20)
    shape = TensorType(dtypes.f32, (rows, length))
    graph = build(lambda g, x: g.emit(name, x), [random_array(1, 1)], [shape])
    compiled = compile_graph(graph, context())
    assert compiled.report().nodes.fallback == 0
    for size in [(1, 1), (3, 2), (5, 15), (4, 16), (2, 33), (3, 64), (7, 197), (300, 49), (2, 9000), (0, 5), (3, 0)]:
        x = random_array(*size) * 3
        assert_close(compiled(x), interpret(graph, [x])[0])


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [37, 9001])
def test_every_float_type_is_computed_wide_and_rounded_once(name: str, dtype: str, length: int) -> None:
    assert_compiles_right(lambda g, x: g.emit(name, x), random_array(3, length, dtype=dtype))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(5, 7, 9), (2, 19, 40), (33, 1, 20)])
@pytest.mark.thorough(every=2)
def test_any_axis(axis: int, shape: tuple[int, ...]) -> None:
    assert_compiles_right(lambda g, x: g.emit("softmax", x, axis=axis), random_array(*shape))


@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
@pytest.mark.parametrize("axis", [1, 3])
def test_inputs_of_any_memory_order(perm: tuple[int, ...], axis: int) -> None:
    x = random_array(2, 5, 3, 18)
    assert_compiles_right(lambda g, a: g.emit("softmax", g.emit("transpose", a, perm=perm), axis=axis), x)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("axis", [0, 1])
def test_values_that_are_not_finite_act_as_in_the_definition(name: str, axis: int) -> None:
    x = random_array(12, 50)
    x[0] = -np.inf
    x[1, 3] = np.nan
    x[2, 49] = np.inf
    x[3, :40] = -np.inf
    x[4, 7:9] = np.inf
    x[5] = 3e38
    x[6, 1:] = -3e38
    assert_compiles_right(lambda g, a: g.emit(name, a, axis=axis), x if axis == 1 else np.ascontiguousarray(x.T))


def test_probabilities_are_accurate_down_to_subnormal_numbers() -> None:
    x = -np.linspace(0, 110, 4000, dtype=np.float32)[None]
    graph = build(lambda g, a: g.emit("softmax", a), [x])
    got = compile_graph(graph, context())(x).astype(np.float64)
    wide = np.exp(x.astype(np.float64))
    want = wide / wide.sum()
    normal = want > 2.0**-126
    assert np.abs(got / want - 1)[normal].max() < 6 * 2.0**-24
    assert np.abs(got - want)[~normal].max() <= 2.0**-149
    assert got[0, -1] == 0


def _scores(g: GraphBuilder, x: Value, mask: Value) -> Value:
    return g.emit("softmax", g.emit("add", g.emit("mul", x, g.constant(np.float32(0.125))), mask))


@pytest.mark.parametrize("mask", [(2, 1, 1, 20), (5, 20), (2, 3, 5, 20), (1, 3, 1, 1)])
def test_scaling_and_masks_are_fused(mask: tuple[int, ...]) -> None:
    hidden = np.where(random_array(*mask) > 1, np.float32(-np.inf), np.float32(0))
    assert_compiles_right(_scores, random_array(2, 3, 5, 20), hidden)


def test_a_condition_on_positions_is_fused() -> None:
    def causal(g: GraphBuilder, x: Value) -> Value:
        return g.emit("softmax", g.emit("tril", x))

    assert_compiles_right(causal, random_array(3, 24, 24))


@pytest.mark.parametrize("length", [70, 8500])
def test_what_follows_is_fused(length: int) -> None:
    def weighted(g: GraphBuilder, x: Value, w: Value) -> Value:
        return g.emit("cast", g.emit("mul", g.emit("softmax", x), w), dtype=dtypes.f16)

    graph = build(weighted, [random_array(4, length), random_array(length)])
    assert compile_graph(graph, context()).report().kernels == 1
    assert_compiles_right(weighted, random_array(4, length), random_array(length))


def test_an_exponential_before_the_softmax_keeps_its_own_range() -> None:
    x = random_array(3, 40, dtype="float32")
    assert_compiles_right(lambda g, a: g.emit("softmax", g.emit("exp", a)), np.abs(x).astype(numpy_dtype("float32")))
