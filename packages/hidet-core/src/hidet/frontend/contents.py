"""What is known of a value's elements while importing: shape arithmetic, and numbers that operators take as tensors.

ONNX and TensorFlow give shapes, axes and counts as tensors. `Contents.of` follows a value back through the nodes that
compute it: to constants, to sizes of inputs, or to an input whose elements the caller has given. The result is a numpy
array: of the value's own type where all elements are numbers, of objects (`Dim`) where some are symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from hidet import dims
from hidet.compute.evaluate import evaluate
from hidet.dims import Dim, DimExpr
from hidet.graph import GraphBuilder, Node, TensorType, Value
from hidet.graph.symbols import depends_on_sizes

MAX_ELEMENTS = 1 << 16
"""Larger values are data, no shapes."""

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
            if _is_symbolic(node, arrays):
                return _symbolic(node, arrays, value)
            results = _evaluate(node, arrays)
        except (ArithmeticError, ValueError, IndexError):
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


def _symbolic(node: Node, arrays: Sequence[Any], value: Value) -> Any | None:
    """The result of a node on symbolic sizes; None for an operator that sizes are not computed with."""
    rule = _RULES.get(node.op.name)
    if rule is None or not (value.tensor.dtype.is_int or value.tensor.dtype.is_bool):
        return None
    objects = [None if array is None else numpy.asarray(array, dtype=object) for array in arrays]
    result = rule(node.attrs, *objects)
    return None if result is None else numpy.asarray(result, dtype=object)


Rule = Callable[..., Any]


def _elementwise(function: Callable[[Dim, Dim], Dim | None]) -> Rule:
    def rule(attrs: Mapping[str, Any], a: Any, b: Any) -> Any:
        left, right = numpy.broadcast_arrays(a, b)
        result = numpy.empty(left.shape, object)
        for place in numpy.ndindex(left.shape):
            found = function(left.item(*place), right.item(*place))
            if found is None:
                return None
            result[place] = found
        return result

    return rule


def _divide(a: Dim, b: Dim) -> Dim | None:
    """Division rounded towards zero, which is that towards minus infinity where nothing is negative."""
    low_a, low_b = dims.bounds(a)[0], dims.bounds(b)[0]
    if low_a is None or low_a < 0 or low_b is None or low_b < 1:
        return None
    return dims.floordiv(a, b)


def _positive_divisor(function: Callable[[Dim, Dim], Dim]) -> Callable[[Dim, Dim], Dim | None]:
    def rule(a: Dim, b: Dim) -> Dim | None:
        low = dims.bounds(b)[0]
        return None if low is None or low < 1 else function(a, b)

    return rule


def _where(attrs: Mapping[str, Any], condition: Any, x: Any, y: Any) -> Any:
    if any(isinstance(item, DimExpr) for item in condition.flat):
        return None
    return numpy.where(condition.astype(bool), x, y)


def _sliced(attrs: Mapping[str, Any], x: Any) -> Any:
    ranges = zip(attrs["starts"], attrs["stops"], attrs["steps"] or (1,) * x.ndim, strict=True)
    return x[tuple(slice(*ends) for ends in ranges)]


def _folded(function: Callable[[Sequence[Dim]], Dim]) -> Rule:
    def rule(attrs: Mapping[str, Any], x: Any) -> Any:
        axes = attrs["axes"]
        folded = tuple(range(x.ndim)) if not axes else tuple(axis % x.ndim for axis in axes)
        kept = [axis for axis in range(x.ndim) if axis not in folded]
        rows = numpy.transpose(x, (*kept, *folded)).reshape(*(x.shape[axis] for axis in kept), -1)
        result = numpy.empty(rows.shape[:-1], object)
        for place in numpy.ndindex(result.shape):
            result[place] = function(list(rows[place]))
        return numpy.expand_dims(result, folded) if attrs["keepdim"] else result

    return rule


def _cast(attrs: Mapping[str, Any], x: Any) -> Any:
    return x if attrs["dtype"].is_int else None


def _full(attrs: Mapping[str, Any]) -> Any:
    return numpy.full(attrs["shape"], attrs["value"], dtype=object)


def _joined(name: str) -> Rule:
    def rule(attrs: Mapping[str, Any], *arrays: Any) -> Any:
        return getattr(numpy, name)(arrays, axis=attrs["axis"])

    return rule


def _scaled_sum(sign: int) -> Rule:
    return lambda attrs, a, b: a + b * (sign * attrs["alpha"])


# What core operators mean on sizes; the arrays hold objects.
_RULES: dict[str, Rule] = {
    "add": _scaled_sum(1),
    "sub": _scaled_sum(-1),
    "mul": lambda attrs, a, b: a * b,
    "neg": lambda attrs, x: -x,
    "trunc_divide": _elementwise(_divide),
    "floor_divide": _elementwise(_positive_divisor(dims.floordiv)),
    "remainder": _elementwise(_positive_divisor(dims.mod)),
    "minimum": _elementwise(dims.minimum),
    "maximum": _elementwise(dims.maximum),
    "equal": _elementwise(dims.prove_equal),
    "less": _elementwise(dims.prove_lt),
    "less_equal": _elementwise(dims.prove_le),
    "greater": _elementwise(lambda a, b: dims.prove_lt(b, a)),
    "greater_equal": _elementwise(lambda a, b: dims.prove_le(b, a)),
    "where": _where,
    "sum": _folded(lambda items: sum(items)),
    "prod": _folded(dims.product),
    "cast": _cast,
    "full": _full,
    "concat": _joined("concatenate"),
    "stack": _joined("stack"),
    "copy": lambda attrs, x: x,
    "positive": lambda attrs, x: x,
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "flatten": lambda attrs, x: x.reshape(-1) if x.ndim <= 1 else None,
    "transpose": lambda attrs, x: x.transpose(attrs["perm"]),
    "squeeze": lambda attrs, x: x.squeeze(None if attrs["axes"] is None else tuple(attrs["axes"])),
    "unsqueeze": lambda attrs, x: _expand_dims(x, attrs["axes"]),
    "expand": lambda attrs, x: _broadcast(x, attrs["shape"]),
    "slice": _sliced,
    "select": lambda attrs, x: x.take(attrs["index"], axis=attrs["axis"]),
    "index_select": lambda attrs, x, index: _taken(x, index, attrs["axis"]),
}


def _expand_dims(x: Any, axes: Sequence[int]) -> Any:
    return numpy.expand_dims(x, tuple(axes))


def _broadcast(x: Any, shape: Sequence[int]) -> Any:
    added = len(shape) - x.ndim
    full = [n if n != -1 else x.shape[axis - added] for axis, n in enumerate(shape)]
    return numpy.broadcast_to(x, full)


def _taken(x: Any, index: Any, axis: int) -> Any:
    if any(isinstance(item, DimExpr) for item in index.flat):
        return None
    return x.take(index.astype(int), axis=axis)
