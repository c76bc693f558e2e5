"""Attention: blocks of queries and keys at every edge, masks, grouped heads, layouts, element types, special values.

Cases that share kernels are compiled together, because LLVM takes far longer than the cases themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import Array, assert_close, assert_compiles_right, build, context, random_array
from hidet.dtypes import from_numpy
from hidet.errors import FallbackWarning
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.graph import Value
from hidet.runtime.adapter import NumpyAdapter
from hidet.testing.interpret import interpret

Case = tuple[tuple[Array, ...], Mapping[str, Any]]

# queries, keys, elements of a row of q and k, elements of a row of v: one and several blocks of 64 queries and of 128
# keys, with and without a remainder; rows shorter than a vector, and with a rest of a vector
MANY_QUERIES = [
    (64, 128, 64, 64),
    (65, 129, 64, 64),
    (17, 200, 33, 40),
    (130, 3, 80, 16),
    (197, 197, 64, 64),
    (40, 300, 96, 130),
    (5, 9, 7, 11),
]
FEW_QUERIES = [(1, 128, 64, 64), (1, 301, 64, 64), (3, 300, 70, 40), (4, 9, 7, 11), (2, 257, 128, 17)]


def attend(builder: GraphBuilder, *inputs: Value, **attrs: object) -> Value:
    """The operator, with its attributes."""
    return builder.emit("attention", *inputs, **attrs)


def operands(queries: int, keys: int, depth: int, width: int, dtype: str = "float32") -> tuple[Array, ...]:
    """q, k and v of two sequences with three heads."""
    shapes = ((2, 3, queries, depth), (2, 3, keys, depth), (2, 3, keys, width))
    return tuple(random_array(*shape, dtype=dtype, seed=n) for n, shape in enumerate(shapes))


def assert_attention_right(cases: Iterable[Case], operator: str = "attention") -> None:
    """One compiled graph gives what the definition says for each of (arrays, attributes); nothing falls back."""
    builder = GraphBuilder(context().registry.operators)
    arrays: list[Array] = []
    outputs: list[Value] = []
    for given, attrs in cases:
        inputs = []
        for array in given:
            inputs.append(builder.input(TensorType(from_numpy(array.dtype), array.shape), f"x{len(arrays)}"))
            arrays.append(array)
        outputs += builder.emit_all(operator, inputs, attrs)
    graph = builder.build(outputs)
    compiled = compile_graph(graph, context())
    assert compiled.report().nodes.fallback == 0
    results = compiled(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    for actual, expected in zip(results, interpret(graph, arrays), strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("sizes", [MANY_QUERIES, FEW_QUERIES], ids=["many queries", "few queries"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["all keys", "causal"])
def test_every_remainder_of_queries_keys_and_rows_is_right(
    sizes: list[tuple[int, int, int, int]], is_causal: bool
) -> None:
    assert_attention_right((operands(*size), {"is_causal": is_causal}) for size in sizes)


@pytest.mark.parametrize("queries", [2, 70])
@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_masks_of_every_shape_hide_or_add(kind: str, queries: int) -> None:
    keys = 150
    shapes = [(2, 3, queries, keys), (1, 1, queries, keys), (2, 1, 1, keys), (queries, keys), (1, keys), (queries, 1)]
    cases: list[Case] = []
    for shape in shapes:
        values = random_array(*shape)
        mask = values > 0 if kind == "bool" else values
        cases.append(((*operands(queries, keys, 32, 32), mask), {"is_causal": len(shape) == 2}))
    assert_attention_right(cases)


@pytest.mark.parametrize("is_causal", [False, True], ids=["all keys", "causal"])
def test_heads_of_a_group_share_keys(is_causal: bool) -> None:
    k, v = random_array(2, 4, 90, 64, seed=1), random_array(2, 4, 90, 64, seed=2)
    assert_attention_right(
        ((random_array(2, 8, queries, 64), k, v), {"enable_gqa": True, "is_causal": is_causal})
        for queries in (1, 2, 33, 70)
    )


def test_a_mask_may_differ_between_heads_of_a_group() -> None:
    q, k, v = random_array(2, 8, 33, 64), random_array(2, 2, 90, 64, seed=1), random_array(2, 2, 90, 64, seed=2)
    assert_attention_right([((q, k, v, random_array(2, 8, 33, 90) > 0), {"enable_gqa": True})])


def test_leading_axes_broadcast_or_are_absent() -> None:
    rows = random_array(20, 16), random_array(30, 16, seed=1), random_array(30, 16, seed=2)
    broadcast = random_array(2, 3, 20, 16), random_array(3, 30, 16, seed=1), random_array(2, 1, 30, 16, seed=2)
    assert_attention_right([(rows, {}), (broadcast, {})])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_every_floating_type_is_computed_as_defined(dtype: str) -> None:
    """With 270 queries half precision is converted in advance, with 40 block by block."""
    assert_attention_right((operands(queries, 140, 32, 48, dtype), {}) for queries in (1, 40, 270))


def test_the_scale_is_given_or_follows_from_the_depth() -> None:
    assert_attention_right((operands(20, 30, 24, 16), {"scale": scale}) for scale in (None, 0.3, -1.0, 0.0))


@pytest.mark.parametrize("queries", [1, 20, 300])
def test_heads_of_one_projection_are_read_and_written_in_place(queries: int) -> None:
    """q, k and v are views of [batch, position, head, 3, element], the result is one of [batch, position, head, e]."""
    x = random_array(2, max(queries, 40), 3, 3, 32)

    def heads(g: GraphBuilder, whole: Value, part: int, length: int) -> Value:
        one = g.emit("select", whole, axis=3, index=part)
        cut = g.emit("slice", one, starts=(0, 0, 0, 0), stops=(2, length, 3, 32))
        return g.emit("transpose", cut, perm=(0, 2, 1, 3))

    def model(g: GraphBuilder, whole: Value) -> Value:
        q, k, v = heads(g, whole, 0, queries), heads(g, whole, 1, 40), heads(g, whole, 2, 40)
        return g.emit("transpose", attend(g, q, k, v), perm=(0, 2, 1, 3))

    assert_compiles_right(model, x)


@pytest.mark.parametrize("axis", [1, 2], ids=["heads", "positions"])
@pytest.mark.parametrize("queries", [1, 30])
def test_any_axis_may_be_the_contiguous_one(axis: int, queries: int) -> None:
    arrays = operands(queries, 40, 24, 24)
    order = [n for n in range(4) if n != axis] + [axis]
    stored = [np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order)) for array in arrays]
    types = [TensorType(dtypes.f32, x.shape, tuple(s // x.itemsize for s in x.strides)) for x in stored]
    graph = build(attend, arrays, types)
    (result,) = compile_graph(graph, context()).run(stored, NumpyAdapter())
    assert_close(result, interpret(graph, list(arrays))[0])


def test_one_program_serves_every_number_of_queries_and_keys() -> None:
    types = [TensorType(dtypes.f32, (2, 3, dims.symbol(name, 1, 1000), 16)) for name in ("s", "t", "t")]
    graph = build(attend, operands(1, 1, 16, 16), types)
    compiled = compile_graph(graph, context())
    for queries, keys in ((1, 75), (5, 300), (100, 1), (400, 129)):
        arrays = operands(queries, keys, 16, 16)
        assert_close(compiled(*arrays), interpret(graph, list(arrays))[0])


@pytest.mark.parametrize("queries", [2, 70])
def test_rows_without_any_key_are_zero(queries: int) -> None:
    q, k, v = operands(queries, 40, 16, 16)
    mask = np.ones((queries, 40), bool)
    mask[1] = False
    added = np.where(mask, 0, -np.inf).astype("f")
    assert_attention_right([((q, k, v, mask), {}), ((q, k, v, added), {}), ((q, k[:, :, :0], v[:, :, :0]), {})])


@pytest.mark.parametrize("queries", [1, 2, 70])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_rows_that_see_keys_hidden_by_the_least_number_alone_weigh_them_equally(dtype: str, queries: int) -> None:
    q, k, v = operands(queries, 40, 16, 16, dtype=dtype)
    least = float((ml_dtypes.finfo if dtype == "bfloat16" else np.finfo)(dtype).min)
    mask = np.zeros((queries, 40))
    mask[:, 30:], mask[-1] = least, least
    shared = np.full((1, 40), least)
    assert_attention_right([((q, k, v, each.astype(q.dtype)), {}) for each in (mask, shared)])


@pytest.mark.parametrize("queries", [2, 70])
def test_nan_infinities_and_large_scores_act_as_defined(queries: int) -> None:
    q, k, v = operands(queries, 300, 16, 16)
    large = (q * 100, k * 100, v)
    q, k, v = q.copy(), k.copy(), v.copy()
    q[0, 0, 1, 3], q[0, 1, 0, 2] = np.nan, np.inf
    k[1, 0, 5, 0] = -np.inf
    v[1, 2, 7, 4], v[1, 2, 8, 5] = np.inf, np.nan
    assert_attention_right([(large, {}), ((q, k, v), {})])


@pytest.mark.parametrize("queries", [2, 70])
def test_what_a_bool_mask_hides_in_k_does_not_matter(queries: int) -> None:
    """Rows of a cache that were never written may hold anything."""
    q, k, v = operands(queries, 40, 16, 16)
    k[:, :, 30:] = np.nan
    assert_attention_right([((q, k, v, np.arange(40)[None, :] < 30), {})])


def test_the_logarithm_of_the_sum_is_a_second_result() -> None:
    assert_attention_right(
        ((operands(queries, 200, 16, 24), {}) for queries in (2, 70)), operator="attention_with_logsumexp"
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_first_result_may_be_of_the_type_of_arithmetic(dtype: str) -> None:
    assert_attention_right(
        ((operands(queries, 200, 16, 24, dtype), {"dtype": dtypes.f32}) for queries in (2, 70)),
        operator="attention_with_logsumexp",
    )


def test_sizes_and_scales_are_not_compiled_in() -> None:
    def model(g: GraphBuilder, a: Value, b: Value) -> Value:
        return g.emit("add", attend(g, a, a, a), attend(g, b, b, b, scale=0.5))

    arrays = random_array(2, 3, 70, 32), random_array(2, 1, 70, 32)
    assert compile_graph(build(model, arrays), context()).report().kernels == 2


def test_rows_longer_than_the_local_arrays_are_left_to_the_fallback_nest() -> None:
    graph = build(attend, operands(3, 5, 1030, 8))
    with pytest.warns(FallbackWarning, match="attention"):
        compiled = compile_graph(graph, context())
    assert compiled.report().nodes.fallback == 1
