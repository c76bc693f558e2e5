"""Control flow for the numpy interpreter: operator name -> what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dims
from hidet.errors import ShapeError, UnsupportedOp
from hidet.graph.graph import Graph, Node
from hidet.graph.types import TensorType

Run = Callable[[Graph, Sequence[Any]], list[Any]]
"""Runs a sub-graph on values."""


def run_control(node: Node, arrays: Sequence[Any], sizes: Mapping[str, int], run: Run) -> list[Any]:
    """The results of a control operator. UnsupportedOp for one that is not core's."""
    control = _CONTROL.get(node.op.name)
    if control is None:
        raise UnsupportedOp(f"the interpreter does not know the control operator {node.op.name}")
    return control(node, arrays, sizes, run)


def _read_sizes(node: Node, arrays: Sequence[Any], sizes: Mapping[str, int], run: Run) -> list[Any]:
    found = [int(value) for value in np.ravel(arrays[0])]
    for size, value in zip(node.attrs["defines"], found, strict=True):
        (symbol,) = dims.symbols(size)
        if not symbol.admits(value):
            raise ShapeError(f"read_sizes reads {symbol.name} = {value}, expected {symbol.facts()}")
    return found


def _if(node: Node, arrays: Sequence[Any], sizes: Mapping[str, int], run: Run) -> list[Any]:
    condition, *captures = arrays
    return run(node.attrs["then" if bool(condition) else "otherwise"], captures)


def _while(node: Node, arrays: Sequence[Any], sizes: Mapping[str, int], run: Run) -> list[Any]:
    limit, condition, *values = arrays
    attrs = node.attrs
    carried: int = attrs["carried"]
    most = limit if attrs["count"] is None else dims.evaluate(attrs["count"], sizes)
    state, captures = values[:carried], values[carried:]
    stacks: list[list[Any]] = [[] for _ in attrs["types"][carried:]]
    goes_on = condition is None or bool(condition)
    iteration = 0
    while goes_on and (most is None or iteration < most):
        made = run(attrs["body"], [np.array(iteration, np.int64), *state, *captures])
        if attrs["tests"]:
            goes_on = bool(made.pop(0))
        state = made[:carried]
        for stack, value in zip(stacks, made[carried:], strict=True):
            stack.append(value)
        iteration += 1
    types = attrs["types"][carried:]
    return [*state, *(_stacked(stack, type_, sizes) for stack, type_ in zip(stacks, types, strict=True))]


def _stacked(stack: Sequence[Any], type_: TensorType, sizes: Mapping[str, int]) -> Any:
    """Elements along a new axis 0. ShapeError when their shapes differ."""
    if not stack:
        known = [all(s.name in sizes for s in dims.symbols(extent)) for extent in type_.shape]
        shape = [dims.evaluate(n, sizes) if k else 0 for n, k in zip(type_.shape, known, strict=True)]
        return np.empty([0, *shape[1:]], type_.dtype.numpy())
    if len({value.shape for value in stack}) > 1:
        shapes = ", ".join(map(str, dict.fromkeys(value.shape for value in stack)))
        raise ShapeError(f"a loop cannot stack results of different shapes: {shapes}")
    return np.stack(stack)


def _scan(node: Node, arrays: Sequence[Any], sizes: Mapping[str, int], run: Run) -> list[Any]:
    carried, scanned = node.attrs["carried"], node.attrs["scanned"]
    state, captures = list(arrays[:carried]), arrays[carried + scanned :]
    stacks: list[list[Any]] = [[] for _ in node.outputs[carried:]]
    for slices in zip(*arrays[carried : carried + scanned], strict=True):
        made = run(node.attrs["body"], [*state, *map(np.asarray, slices), *captures])
        state = made[:carried]
        for stack, value in zip(stacks, made[carried:], strict=True):
            stack.append(value)
    types = [value.tensor for value in node.outputs[carried:]]
    return [*state, *(_stacked(stack, type_, sizes) for stack, type_ in zip(stacks, types, strict=True))]


def _call(node: Node, arrays: Sequence[Any], sizes: Mapping[str, int], run: Run) -> list[Any]:
    return run(node.attrs["body"], arrays)


_CONTROL: Mapping[str, Callable[[Node, Sequence[Any], Mapping[str, int], Run], list[Any]]] = {
    "read_sizes": _read_sizes,
    "if": _if,
    "while": _while,
    "scan": _scan,
    "call": _call,
}
