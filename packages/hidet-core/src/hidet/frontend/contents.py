"""What is known of a value's elements while importing: shape arithmetic, and numbers that operators take as tensors.

ONNX and TensorFlow give shapes, axes and counts as tensors. `Contents.of` follows a value back through the nodes that
compute it: to constants, to sizes of inputs, or to an input whose elements the caller has given. The result is a numpy
array: of the value's own type where all elements are numbers, of objects (`Dim`) where some are symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from hidet import dims
from hidet.compute.evaluate import evaluate
from hidet.compute.sizes import evaluate_sizes
from hidet.dims import DimExpr
from hidet.graph import GraphBuilder, Node, TensorType, Value
from hidet.graph.symbols import depends_on_sizes

MAX_ELEMENTS = 1 << 16
"""Larger values are data, no shapes."""

MAX_SYMBOLIC = 1 << 12
"""Elements of larger values are not computed one by one, as those with symbolic sizes are."""

HINT = "hidet.compile takes {python}, the command line {shell}"
"""How users give what has to be known of a model's inputs."""


@dataclass(slots=True, eq=False)
class Contents:
    """Knowledge about the values of one graph.

    builder: of that graph. given: elements of inputs that may be used, which makes the graph right for these only.
    used: those inputs of `given` that were. inputs: names of the model's inputs.
    outer: for inputs of a sub-graph the value of the graph around it that they are, and what is known there.
    hint: how users give elements and shapes of inputs, with `{python}` and `{shell}` where examples of both belong.
    """

    builder: GraphBuilder
    given: Mapping[Value, Any] = field(default_factory=dict)
    used: set[Value] = field(default_factory=set)
    inputs: dict[Value, str] = field(default_factory=dict)
    outer: dict[Value, tuple[Contents, Value]] = field(default_factory=dict)
    hint: str = HINT
    _known: dict[Value, Any] = field(default_factory=dict)

    def around(self) -> list[Contents]:
        """This knowledge and that about the graphs around."""
        found: list[Contents] = []
        waiting = [self]
        while waiting:
            current = waiting.pop()
            if all(current is not other for other in found):
                found.append(current)
                waiting += [outer for outer, _ in current.outer.values()]
        return found

    def of(self, value: Value) -> Any | None:
        """The elements of a tensor; None when they depend on data, or are too many to be a shape."""
        if value not in self._known:
            found = self._find(value)
            if found is None:
                return None
            self._known[value] = found
        return self._known[value]

    def learn(self, value: Value, elements: Any) -> None:
        """Remember the elements of a value, sizes that were read back."""
        self._known[value] = elements

    def _find(self, value: Value) -> Any | None:
        if not isinstance(value.type, TensorType):
            return None
        constant = self.builder.constants.get(value)
        if constant is not None:
            return constant.numpy()
        count = dims.product(value.type.shape)
        if isinstance(count, DimExpr) or count > MAX_ELEMENTS:
            return None
        if value in self.given:
            self.used.add(value)
            return self.given[value]
        if value in self.inputs:
            return None
        if value in self.outer:
            around, source = self.outer[value]
            return around.of(source)
        node = self.builder.producer(value)
        return None if node is None else self._computed(node, value)

    def _computed(self, node: Node, value: Value) -> Any | None:
        if node.op.is_random or node.op.has_effect or node.op.kind in ("eager", "host"):
            return None
        arrays = []
        for source in node.inputs:
            array = None if source is None else self.of(source)
            if array is None and source is not None:
                return None
            arrays.append(array)
        try:
            is_symbolic = _is_symbolic(node, arrays)
            results = _symbolic(node, arrays) if is_symbolic else _evaluate(node, arrays)
        except (ArithmeticError, ValueError, IndexError):
            return None
        if results is None:
            return None
        self._known.update(zip(node.outputs, results, strict=True))
        return self._known[value]


def _is_symbolic(node: Node, arrays: Sequence[Any]) -> bool:
    return depends_on_sizes(node) or any(array is not None and _has_dims(array, node) for array in arrays)


def _has_dims(array: Any, node: Node) -> bool:
    return array.dtype == object and any(isinstance(item, DimExpr) for item in array.flat)


def _evaluate(node: Node, arrays: Sequence[Any]) -> Sequence[Any]:
    """The results of a node on numbers, by the operator's meaning."""
    exact = [
        array if source is None or array.dtype == source.tensor.dtype.numpy() else array.astype(_numpy_type(source))
        for array, source in zip(arrays, node.inputs, strict=True)
    ]
    if node.op.evaluate is not None:
        return [numpy.asarray(result) for result in node.op.evaluate(exact, node.attrs)]
    if node.definition is None:
        raise ValueError(f"operator {node.op.name} has no definition")
    return evaluate(node.definition, exact)


def _numpy_type(value: Value) -> Any:
    return value.tensor.dtype.numpy()


def _may_be_sizes(type_: TensorType) -> bool:
    count = dims.product(type_.shape)
    return not (type_.dtype.is_float or isinstance(count, DimExpr) or count > MAX_SYMBOLIC)


def _symbolic(node: Node, arrays: Sequence[Any]) -> Sequence[Any] | None:
    """The results of a node on symbolic sizes, by the operator's meaning; None where sizes do not decide them."""
    types = [value.type for value in node.outputs]
    if node.definition is None or not all(isinstance(type_, TensorType) and _may_be_sizes(type_) for type_ in types):
        return None
    objects = [None if array is None else numpy.asarray(array, dtype=object) for array in arrays]
    return evaluate_sizes(node.definition, objects)
