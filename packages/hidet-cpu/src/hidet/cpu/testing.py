"""For tests of schedules: compile a small graph around one operator and compare with the numpy reference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.dtypes import from_numpy
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.graph import Graph, Value
from hidet.graph.types import strides_of_order
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]
Make = Callable[..., Value | tuple[Value, ...]]

# Relative to the largest result: rounding of the result type, and in f32 and f64 of a sum of 256 products.
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def numpy_dtype(name: str) -> Any:
    """The numpy dtype called `name`, with the half types of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def random_array(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Numbers of either sign; integers are small."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (values * 3 if "int" in dtype else values).astype(numpy_dtype(dtype))


@functools.cache
def context() -> CompileContext:
    """A context that compiles everything anew."""
    return make_context("cpu", {"cache": False, "threads": 2})


def build(
    make: Make,
    arrays: Sequence[Array],
    types: Sequence[TensorType | None] = (),
    parameters: Sequence[int] = (),
    *,
    is_frozen: bool = False,
) -> Graph:
    """The graph of `make(builder, *inputs)`; `types` replace those of the arrays, `parameters` are input numbers.

    is_frozen: parameters are constants, and no inputs.
    """
    builder = GraphBuilder(context().registry.operators)
    inputs = []
    for number, array in enumerate(arrays):
        given = types[number] if number < len(types) else None
        type_ = given or TensorType(from_numpy(array.dtype), array.shape)
        if is_frozen and number in parameters and given is None:
            inputs.append(builder.constant(array, type_.dtype))
        else:
            inputs.append(builder.input(type_, f"x{number}", is_parameter=number in parameters))
    made = make(builder, *inputs)
    return builder.build(made if isinstance(made, tuple) else [made])


def assert_compiles_right(
    make: Make,
    *arrays: Array,
    types: Sequence[TensorType | None] = (),
    parameters: Sequence[int] = (),
    terms: int = 256,
) -> None:
    """The compiled graph gives what the definition says, and no operator runs on the fallback nest.

    Parameters are tried as inputs and as constants, which are prepared. terms: length of the longest sum; rounding
    errors of random data grow with its root.
    """
    assert_graph_is_right(build(make, arrays, types, parameters), arrays, terms)
    if parameters:
        frozen = build(make, arrays, types, parameters, is_frozen=True)
        bound = [array for number, array in enumerate(arrays) if f"x{number}" in {v.name for v in frozen.inputs}]
        assert_graph_is_right(frozen, bound, terms)


def assert_graph_is_right(graph: Graph, arrays: Sequence[Array], terms: int = 256) -> None:
    """As `assert_compiles_right`, for a graph of any number of outputs."""
    compiled = compile_graph(graph, context())
    nodes = compiled.report().nodes
    assert nodes.fallback == nodes.eager == nodes.host == 0, nodes
    results = compiled(*arrays)
    expected = interpret(graph, list(arrays))
    for actual, wanted in zip(results if isinstance(results, tuple) else [results], expected, strict=True):
        assert_close(actual, wanted, max(1.0, (terms / 256) ** 0.5))


def channels_last(graph: Graph, op: str) -> Graph:
    """The graph with results of operator `op` laid out channels-last, as layout assignment does behind a conv."""
    mapping: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        outputs = node.outputs
        if node.op.name == op:
            outputs = tuple(_channels_last(value) for value in outputs)
            mapping.update(zip(node.outputs, outputs, strict=True))
        inputs = tuple(None if v is None else mapping.get(v, v) for v in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=outputs))
    return graph.with_nodes(tuple(nodes), tuple(mapping.get(v, v) for v in graph.outputs))


def _channels_last(value: Value) -> Value:
    shape = value.tensor.shape
    order = [0, *range(2, len(shape)), 1]
    return Value(value.name, value.tensor.with_strides(strides_of_order(shape, order)))


def assert_close(actual: Array, expected: Array, factor: float = 1.0) -> None:
    """Equal up to `factor` times rounding; integers exactly; NaN and infinities in the same places."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    tolerance = TOLERANCE.get(actual.dtype.name)
    if tolerance is None:
        np.testing.assert_array_equal(actual, expected)
        return
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    np.testing.assert_allclose(a, b, rtol=0, atol=factor * tolerance * scale, equal_nan=True)
