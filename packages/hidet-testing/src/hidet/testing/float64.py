"""What a graph means in float64: the yardstick for what rounds to shorter types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType, from_numpy
from hidet.errors import HidetError
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Value
from hidet.graph.types import TensorType, ValueType
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]


def interpret_in_float64(
    graph: Graph, arrays: Sequence[Array], bindings: Mapping[str, int] | None = None
) -> list[Array]:
    """The outputs of `graph` with all floats in between, and those of the result, in float64.

    arrays, bindings: as `interpret` takes them; floats are widened exactly. Where an operator of the graph takes no
    float64, the graph is interpreted in the types that it has.
    """
    try:
        wide = _widened(graph)
    except HidetError:
        return [_wide_array(array) for array in interpret(graph, arrays, bindings)]
    return [np.asarray(array) for array in interpret(wide, list(map(_wide_array, arrays)), bindings)]


def _widened(graph: Graph) -> Graph:
    """The graph with float64 in the place of every shorter float. HidetError where an operator does not take it."""
    builder = GraphBuilder({}, graph.name)
    mapping: dict[Value | None, Value | None] = {None: None}
    for value in graph.inputs:
        mapping[value] = builder.input(_wide_type(value.type), value.name)
    for value, constant in graph.constants.items():
        mapping[value] = builder.constant(_wide_array(constant.numpy()))
    for node in graph.nodes:
        inputs = [mapping[value] for value in node.inputs]
        attrs = {name: _wide_dtype(attr) if isinstance(attr, DType) else attr for name, attr in node.attrs.items()}
        mapping.update(zip(node.outputs, builder.emit_all(node.op, inputs, attrs), strict=True))
    return builder.build([made for value in graph.outputs if (made := mapping[value]) is not None])


def _wide_type(type_: ValueType) -> ValueType:
    return TensorType(_wide_dtype(type_.dtype), type_.shape) if isinstance(type_, TensorType) else type_


def _wide_dtype(dtype: DType) -> DType:
    return dtypes.f64 if dtype.is_float else dtype


def _wide_array(array: Any) -> Array:
    given = np.asarray(array)
    return given.astype(np.float64) if from_numpy(given.dtype).is_float else given
