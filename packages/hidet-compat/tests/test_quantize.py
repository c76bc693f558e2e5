"""Weights as integers of 8 bits, by rules of a `PassContext`."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import ops
from hidet.graph import quant
from hidet.graph.transforms.rewriting import changes_by, rewrite_graph
from hidet.plugins.host import load_registry


def operators(graph):
    """Operators of a graph with its weights quantised, before they are fused."""
    inner = rewrite_graph(graph.graph, load_registry().operators, changes_by(quant.default_patterns()))
    return [node.op.name for node in inner.nodes], {c.numpy().dtype.name for c in inner.constants.values()}


def optimized(graph, **settings):
    with hidet.graph.PassContext() as context:
        for name, value in settings.items():
            getattr(context, name)(value)
        return hidet.graph.optimize(graph)


@pytest.fixture
def weight():
    np.random.seed(0)
    return hidet.randn([24, 16])


PRODUCTS = {
    "x @ w": (lambda x, w: ops.matmul(x, w), [3, 24], lambda x, w: x @ w),
    "x @ w.T": (lambda x, w: ops.matmul_nt(x, w), [3, 16], lambda x, w: x @ w.T),
    "w @ x": (lambda x, w: ops.matmul(w, x), [16, 3], lambda x, w: w @ x),
    "rows of w": (lambda x, w: ops.take(w, ops.cast(x, "int64"), axis=0), [3], lambda x, w: w[x.astype(int)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_weight_is_kept_as_integers_with_a_scale_a_channel(name, weight) -> None:
    apply, shape, expected = PRODUCTS[name]
    symbol = hidet.symbol(shape)
    graph = hidet.trace_from(apply(symbol, weight))
    names, kinds = operators(graph)
    assert "dequantize" in names and "int8" in kinds
    x = hidet.asarray(np.arange(3, dtype=np.float32)) if shape == [3] else hidet.randn(shape)
    found = optimized(graph, add_quantize_rules=quant.default_patterns())(x).numpy()
    exact = expected(x.numpy(), weight.numpy())
    assert 0 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()
    np.testing.assert_allclose(graph(x).numpy(), exact, rtol=1e-5, atol=1e-5)  # without the context as it was


def test_a_weight_that_is_no_constant_stays(weight) -> None:
    x, w = hidet.symbol([3, 24]), hidet.symbol_like(weight)
    assert operators(hidet.trace_from(ops.matmul(x, w), inputs=[x, w]))[0] == ["matmul"]
    batched = hidet.trace_from(ops.matmul(hidet.symbol([2, 3, 4]), hidet.ones([2, 4, 5])))
    assert operators(batched)[0] == ["matmul"]


def test_int8_means_integers_for_weights_and_halves_for_the_rest(weight) -> None:
    graph = hidet.trace_from(ops.matmul(hidet.symbol([3, 24]), weight))
    text = str(optimized(graph, set_precision="int8"))
    assert "int8[24, 16]" in text and "float16" in text
