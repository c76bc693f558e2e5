"""The numpy interpreter of graphs."""

from dataclasses import replace

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.graph import DimType, GraphBuilder, OperatorSpec, Prepare, TensorType, Value
from hidet.loc import Loc
from hidet.operators import all_operators
from hidet.testing.interpret import interpret

OPERATORS = {spec.name: spec for spec in all_operators()}
f32 = dtypes.f32


def tensor(*shape, dtype=f32):
    return TensorType(dtype, shape)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_nodes_run_in_order_on_symbolic_shapes():
    s = dims.symbol("s")
    b = GraphBuilder(OPERATORS)
    x, w = b.input(tensor(s, 8)), b.input(tensor(8, 4), is_parameter=True)
    y = b.emit("relu", b.emit("matmul", x, w))
    graph = b.build([b.emit("add", y, b.constant(np.ones(4, np.float32)))])
    left, right = random(5, 8), random(8, 4)
    assert np.allclose(interpret(graph, [left, right])[0], np.maximum(left @ right, 0) + 1, atol=1e-5)


def test_the_prepare_graph_runs_first():
    inner = GraphBuilder(OPERATORS, "prepare")
    prepared = inner.build([inner.emit("neg", inner.constant(np.full((4, 8), 3, np.float32)))])
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(4, 8))
    packed = Value("packed", tensor(4, 8))
    graph = replace(b.build([b.emit("add", x, packed)]), prepare=Prepare(prepared, (packed,)))
    assert np.allclose(interpret(graph, [np.ones((4, 8), np.float32)])[0], -2)


def test_dead_values_are_released():
    alive = []

    class Watched(np.ndarray):
        def __del__(self):
            alive.remove(id(self))

    def step(arrays, attrs):
        made = (np.asarray(arrays[0]) + 1).view(Watched)
        alive.append(id(made))
        assert len(alive) <= 2
        return [made]

    spec = OperatorSpec(name="step", inputs=("x",), infer=lambda types, attrs: [types[0]], evaluate=step)
    b = GraphBuilder({})
    value = b.input(tensor(2))
    for _ in range(6):
        value = b.emit(spec, value)
    assert interpret(b.build([value]), [np.zeros(2, np.float32)])[0].tolist() == [6, 6]


def test_outputs_do_not_share_memory_with_inputs():
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(3))
    graph = b.build([x])
    array = random(3)
    assert not np.shares_memory(interpret(graph, [array])[0], array)


def test_a_size_input_binds_its_symbol():
    s = dims.symbol("s")
    spec = OperatorSpec(
        name="fill",
        inputs=("n",),
        infer=lambda types, attrs: [tensor(types[0].dim)],
        evaluate=lambda arrays, attrs: [np.full(arrays[0], 2.0, np.float32)],
    )
    b = GraphBuilder({})
    n = b.input(DimType(dims.as_dim(s)))
    assert interpret(b.build([b.emit(spec, n)]), [3])[0].tolist() == [2, 2, 2]


def test_attributes_reach_numpy_with_sizes_filled_in():
    s = dims.symbol("s")
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(s, 2))
    graph = b.build([b.emit("reshape", x, shape=(2 * s,))])
    assert interpret(graph, [random(3, 2)])[0].shape == (6,)


def test_an_input_that_does_not_fit_is_refused_by_name():
    b = GraphBuilder(OPERATORS)
    x = b.input(tensor(2, 3), "image")
    graph = b.build([b.emit("relu", x)])
    with pytest.raises(ShapeError, match=r"input %image has shape \(3, 3\), expected"):
        interpret(graph, [random(3, 3)])
    with pytest.raises(DTypeError, match="input %image has dtype f64, expected f32"):
        interpret(graph, [np.zeros((2, 3))])
    with pytest.raises(ShapeError, match="has 1 inputs, got 2"):
        interpret(graph, [random(2, 3), random(2, 3)])


def test_an_operator_without_numpy_meaning_is_refused_where_it_stands():
    spec = OperatorSpec(name="mystery", inputs=("x",), kind="eager", infer=lambda types, attrs: [types[0]])
    b = GraphBuilder({})
    x = b.input(tensor(2))
    with b.at(Loc("model.py", 41, name="fc1")):
        y = b.emit(spec, x)
    with pytest.raises(UnsupportedOp, match=r"(?s)mystery \(eager\) has no numpy meaning.*model.py:41 \(fc1\)"):
        interpret(b.build([y]), [random(2)])


def test_a_result_that_contradicts_its_type_is_reported():
    spec = OperatorSpec(
        name="liar",
        inputs=("x",),
        infer=lambda types, attrs: [tensor(7)],
        evaluate=lambda arrays, attrs: [arrays[0]],
    )
    b = GraphBuilder({})
    x = b.input(tensor(2))
    with pytest.raises(ShapeError, match=r"of operator liar has shape \(2,\), expected"):
        interpret(b.build([b.emit(spec, x)]), [random(2)])
