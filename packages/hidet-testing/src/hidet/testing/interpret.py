"""Runs a graph with numpy: the reference that compiled graphs and graph passes are compared with.

Every value is a whole array; strides and devices of types are ignored. Eager operators need their framework and are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dims
from hidet.compute.bindings import bind_shape, check_shape, sole_symbol
from hidet.compute.evaluate import evaluate
from hidet.dims import DimExpr
from hidet.dtypes import from_numpy
from hidet.errors import DTypeError, HidetError, ShapeError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.operator import define_node
from hidet.graph.types import DimType, TensorType
from hidet.testing.interpret_control import run_control


def interpret(graph: Graph, inputs: Sequence[Any], bindings: Mapping[str, int] | None = None) -> list[Any]:
    """The outputs of `graph`, which never share memory with the inputs.

    inputs: one an input of the graph: numpy arrays, integers for sizes, any object for sequences and options.
    bindings: values of symbolic sizes that no input's shape gives.
    Raises ShapeError or DTypeError naming the value whose array does not fit its type, with the node's place.
    """
    if len(inputs) != len(graph.inputs):
        raise ShapeError(f"graph {graph.name} has {len(graph.inputs)} inputs, got {len(inputs)}")
    sizes = dict(bindings or {})
    arrays: dict[Value, Any] = {value: constant.numpy() for value, constant in graph.constants.items()}
    arrays.update(zip(graph.inputs, inputs, strict=True))
    for value in graph.inputs:
        _bind(value, arrays[value], sizes, f"input %{value.name}")
    for value in graph.inputs:
        _check(value, arrays[value], sizes, f"input %{value.name}")
    if graph.prepare is not None:
        arrays.update(zip(graph.prepare.results, interpret(graph.prepare.graph, [], sizes), strict=True))
    last_reader = {value: node for node in graph.nodes for value in (*node.values, *node.outputs)}
    kept = set(graph.outputs)
    for node in graph.nodes:
        try:
            results = _run(node, [None if v is None else arrays[v] for v in node.inputs], sizes)
            for value, result in zip(node.outputs, results, strict=True):
                what = f"%{value.name} of operator {node.op.name}"
                _bind(value, result, sizes, what)
                _check(value, result, sizes, what)
        except HidetError as error:
            error.loc = error.loc or node.loc
            raise
        arrays.update(zip(node.outputs, results, strict=True))
        for value in (*node.values, *node.outputs):
            if last_reader[value] is node and value not in kept:
                arrays.pop(value, None)
    return [_own(arrays[value], inputs) for value in graph.outputs]


def _run(node: Node, arrays: list[Any], sizes: Mapping[str, int]) -> Sequence[Any]:
    """The results of one node; `arrays` has None where an optional input is absent."""
    if node.op.kind == "control":
        return run_control(node, arrays, sizes, lambda graph, inputs: interpret(graph, inputs, sizes))
    if node.op.evaluate is not None:
        with np.errstate(all="ignore"):
            # Symbols that the results tell have no value yet.
            attrs = node.attrs if "defines" in node.attrs else concrete_attrs(node.attrs, sizes)
            return [_as_result(r) for r in node.op.evaluate(arrays, attrs)]
    types = [None if value is None else value.type for value in node.inputs]
    definition = node.definition or define_node(node.op, types, node.attrs)
    if definition is None:
        raise UnsupportedOp(
            f"operator {node.op.name} ({node.op.kind}) has no numpy meaning",
            hint="give its OperatorSpec a `define` or `evaluate` function",
        )
    return evaluate(
        definition, [a if isinstance(t, TensorType) else None for a, t in zip(arrays, types, strict=True)], sizes
    )


def concrete_attrs(attrs: Attrs, sizes: Mapping[str, int]) -> Attrs:
    """The attributes with symbolic sizes replaced by their values."""
    return Attrs({name: _concrete(value, sizes) for name, value in attrs.items()})


def _concrete(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, DimExpr):
        return dims.evaluate(value, sizes)
    return tuple(_concrete(v, sizes) for v in value) if isinstance(value, tuple) else value


def _as_result(result: Any) -> Any:
    """numpy functions give scalars for rank 0; values of tensors are arrays."""
    return np.asarray(result) if isinstance(result, np.generic) else result


def _bind(value: Value, actual: Any, sizes: dict[str, int], what: str) -> None:
    """Learn symbolic sizes from one value."""
    if isinstance(value.type, TensorType):
        bind_shape(sizes, value.type.shape, np.shape(actual), what)
    elif isinstance(value.type, DimType):
        symbol = sole_symbol(value.type.dim)
        if symbol is not None:
            sizes.setdefault(symbol.name, int(actual))


def _check(value: Value, actual: Any, sizes: Mapping[str, int], what: str) -> None:
    """Refuse a value that does not fit its type."""
    if isinstance(value.type, TensorType):
        check_shape(sizes, value.type.shape, np.shape(actual), what)
        if actual.dtype != value.type.dtype.numpy():
            raise DTypeError(f"{what} has dtype {from_numpy(actual.dtype)}, expected {value.type.dtype}")
    elif isinstance(value.type, DimType) and dims.evaluate(value.type.dim, sizes) != int(actual):
        raise ShapeError(f"{what} is {actual}, expected {value.type.dim} = {dims.evaluate(value.type.dim, sizes)}")


def _own(result: Any, inputs: Sequence[Any]) -> Any:
    """`result`, copied when it may lie in the memory of an input."""
    if not isinstance(result, np.ndarray):
        return result
    shared = any(isinstance(given, np.ndarray) and np.may_share_memory(result, given) for given in inputs)
    return result.copy() if shared else result
