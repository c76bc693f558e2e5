"""What a graph computes by numpy: in float64, or as it is written, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.compute.evaluate import evaluate
from hidet.dtypes import DType
from hidet.errors import HidetError
from hidet.graph.attrs import Attrs
from hidet.graph.builder import node_meaning
from hidet.graph.graph import Graph, Node, Value, producers
from hidet.graph.types import TensorType
from hidet.report.table import Array


class Unknown(Exception):
    """A value that numpy cannot be asked for: of an operator without a definition, or of one that was not given."""


class Reference:
    """Values of a graph, made of those that it is given. is_wide: in float64, and complex128, instead of the types that
    the graph has. sizes: values of symbols."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int], *, is_wide: bool) -> None:
        self._made_by = producers(graph)
        self._sizes = sizes
        self._is_wide = is_wide
        self._known: dict[Value, Array] = {}

    def give(self, value: Value, array: Array) -> None:
        """Let a value be these elements."""
        self._known[value] = self._widened(array)

    def knows(self, value: Value) -> bool:
        """Whether a value was given or computed."""
        return value in self._known

    def value(self, value: Value) -> Array:
        """The elements of a value. Unknown where they do not follow from what was given."""
        # A stack instead of recursion: views and what is inlined may be long chains.
        stack = [value]
        while stack:
            wanted = stack[-1]
            if wanted in self._known:
                stack.pop()
                continue
            node = self._made_by.get(wanted)
            if node is None or node.op.is_random:
                raise Unknown(f"%{wanted.name}")
            missing = [each for each in node.values if each not in self._known]
            if missing:
                stack += missing
                continue
            self._run(node)
            stack.pop()
        return self._known[value]

    def _run(self, node: Node) -> None:
        arrays = [None if each is None else self._known[each] for each in node.inputs]
        try:
            results = self._evaluate(node, arrays)
        except (HidetError, ArithmeticError, MemoryError, NotImplementedError) as error:
            raise Unknown(f"{node.op.name}: {error}") from error
        self._known.update(zip(node.outputs, results, strict=True))

    def _evaluate(self, node: Node, arrays: Sequence[Array | None]) -> list[Array]:
        definition = node.definition
        if definition is None:
            raise Unknown(f"{node.op.name} has no definition")
        if self._is_wide:
            values = [None if each is None else Value(each.name, _wide_type(each.type)) for each in node.inputs]
            attrs = Attrs({name: _wide(value) for name, value in node.attrs.items()})
            definition, _ = node_meaning(node.op, values, attrs)
            if definition is None:
                raise Unknown(f"{node.op.name} has no definition")
        with np.errstate(all="ignore"):
            return evaluate(definition, arrays, self._sizes)

    def _widened(self, array: Array) -> Array:
        if not self._is_wide:
            return array
        kind = dtypes.from_numpy(array.dtype)
        return array.astype(_wide(kind).numpy()) if _wide(kind) is not kind else array


def _wide(value: Any) -> Any:
    """float64 for a smaller type of floats, complex128 for one of complex numbers; anything else as it is."""
    if not isinstance(value, DType) or value.is_host_only:
        return value
    if value.is_float and value.nbytes < 8:
        return dtypes.f64
    return dtypes.c128 if value.is_complex and value.nbytes < 16 else value


def _wide_type(type_: Any) -> Any:
    if not isinstance(type_, TensorType):
        return type_
    return TensorType(_wide(type_.dtype), type_.shape, device=type_.device)
