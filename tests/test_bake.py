"""Models whose weights are constants: what is computed from weights alone is computed once, when they are compiled."""

import numpy as np
import pytest

import hidet
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.dtypes import f32
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.testing.interpret import interpret

GENERATOR = np.random.default_rng(0)


@pytest.fixture(scope="module")
def ctx():
    return make_context("cpu", {"cache": False})


def model(ctx) -> Graph:
    """A convolution with batch norm and a linear layer on constant weights."""
    b = GraphBuilder(ctx.registry.operators, "model")

    def weights(*shape: int, low: float = -0.5):
        return b.constant(GENERATOR.uniform(low, 1.5, shape).astype(np.float32))

    x = b.input(TensorType(f32, (1, 3, 8, 8)), "x")
    y = b.emit("conv", x, weights(16, 3, 3, 3), None, padding=1)
    y = b.emit("relu", b.emit("batch_norm", y, weights(16), weights(16, low=0.5), weights(16), weights(16)))
    rows = b.emit("reshape", b.emit("mean", y, axes=(2, 3)), shape=(1, 16))
    return b.build([b.emit("linear", rows, weights(10, 16), weights(10))])


def test_nothing_is_left_to_prepare(ctx):
    graph = model(ctx)
    compiled = compile_graph(graph, ctx)
    assert compiled.bundle.program.prepare is None
    assert compiled.bundle.prepare_constants == ()
    x = GENERATOR.standard_normal((1, 3, 8, 8)).astype(np.float32)
    (expected,) = interpret(graph, [x])
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-4, atol=1e-4)


def test_a_saved_model_holds_what_calls_read_and_nothing_else(ctx, tmp_path):
    compiled = compile_graph(model(ctx), ctx)
    compiled.save(tmp_path / "model.hidet")
    loaded = hidet.load(tmp_path / "model.hidet")
    x = GENERATOR.standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(loaded(x), compiled(x))
    assert len(loaded.bundle.constants) == len(compiled.bundle.constants)
    used = {constant.index for constant in loaded.bundle.program.constants}
    assert used == set(range(len(loaded.bundle.constants)))


def test_nothing_is_kept_that_was_computed_from_parameters(ctx):
    b = GraphBuilder(ctx.registry.operators)
    x, w = b.input(TensorType(f32, (4,)), "x"), b.input(TensorType(f32, (4,)), "w", is_parameter=True)
    compiled = compile_graph(b.build([b.emit("mul", x, b.emit("exp", w))]), ctx)
    given, weight = np.ones(4, np.float32), np.zeros(4, np.float32)
    np.testing.assert_array_equal(compiled(given, weight), np.ones(4))
    weight[:] = 1
    np.testing.assert_allclose(compiled(given, weight), np.full(4, np.e), rtol=1e-6)
