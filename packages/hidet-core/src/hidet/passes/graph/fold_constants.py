"""Constant folding: nodes on constants alone are evaluated by numpy at compile time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from hidet import dims
from hidet.compute.evaluate import evaluate
from hidet.dims import DimExpr
from hidet.graph.graph import Constant, Graph, Node, Value
from hidet.graph.operator import is_foreign
from hidet.graph.symbols import depends_on_sizes
from hidet.graph.types import TensorType

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class FoldConstants:
    """Evaluate nodes whose inputs are constants. Results above `max_bytes` are left to run time.

    Parameters are not constants: they may change between calls.
    """

    name: ClassVar[str] = "fold-constants"
    max_bytes: int = 1 << 20

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order. A node without inputs (full, arange) or a view is evaluated only for a reader that
        folds; for other readers it stays, because it costs them nothing."""
        known = dict(graph.constants)
        given = set(known)
        waiting: dict[Value, Node] = {}
        kept: list[Node] = []
        for node in graph.nodes:
            # Most nodes read something else, which is seen sooner than anything else.
            if not given.issuperset(node.values) or not self._is_foldable(node):
                kept.append(node)
                continue
            given.update(node.outputs)
            if not node.inputs or node.op.kind == "view":
                kept.append(node)
                waiting.update(dict.fromkeys(node.outputs, node))
            else:
                _evaluate(node, known, waiting)
        if len(kept) == len(graph.nodes):
            return graph
        computed = {value for node in kept for value in node.outputs}
        read = {v for node in kept for v in node.values} | set(graph.outputs)
        held = {v: c for v, c in known.items() if v in read and v not in computed}
        return replace(graph, nodes=tuple(kept), constants=held)

    def values(self, graph: Graph, wanted: Iterable[Value]) -> dict[Value, Constant]:
        """Those of the values `wanted` that constants and nothing else determine, evaluated."""
        known = dict(graph.constants)
        given = set(known)
        waiting: dict[Value, Node] = {}
        for node in graph.nodes:
            if given.issuperset(node.values) and self._is_foldable(node):
                given.update(node.outputs)
                waiting.update(dict.fromkeys(node.outputs, node))
        found: dict[Value, Constant] = {}
        for value in wanted:
            if value in waiting and value not in known:
                _evaluate(waiting[value], known, waiting)
            if value in known:
                found[value] = known[value]
        return found

    def _is_foldable(self, node: Node) -> bool:
        """Whether a node may be evaluated once everything it reads is known."""
        if node.op.is_random or node.op.has_effect or node.op.expands or is_foreign(node):
            return False
        if node.definition is None and node.op.evaluate is None:
            return False
        return not depends_on_sizes(node) and all(self._fits(value) for value in node.outputs)

    def _fits(self, value: Value) -> bool:
        """Constants are row-major: a result of the graph that has other strides is made at run time."""
        if not isinstance(value.type, TensorType) or not value.type.is_contiguous:
            return False
        count = dims.product(value.type.shape)
        return not isinstance(count, DimExpr) and count * value.type.dtype.nbytes <= self.max_bytes


def _evaluate(node: Node, known: dict[Value, Constant], waiting: dict[Value, Node]) -> None:
    """Add the results of a node to `known`, and first those of the waiting nodes it reads."""
    for value in node.values:
        if value not in known:
            _evaluate(waiting[value], known, waiting)
    arrays = [None if value is None else known[value].numpy() for value in node.inputs]
    results = _viewed(node, arrays)
    if results is None and node.op.evaluate is not None:
        results = list(node.op.evaluate(arrays, node.attrs))
    if results is None:
        assert node.definition is not None
        results = list(evaluate(node.definition, arrays))
    known.update((value, Constant(array)) for value, array in zip(node.outputs, results, strict=True))


def _viewed(node: Node, arrays: Sequence[Any]) -> list[Any] | None:
    """The result of a view operator: elements of its input at other places. None for other operators, and where strides
    cannot say it."""
    result = node.outputs[0].type
    if node.op.view is None or not isinstance(result, TensorType) or 0 in result.shape:
        return None
    assert node.inputs[0] is not None
    source = TensorType(node.inputs[0].tensor.dtype, node.inputs[0].tensor.shape)
    view = node.op.view(source, node.attrs, result)
    if view is None:
        return None
    elements = numpy.ascontiguousarray(arrays[0]).reshape(-1)
    if view.strides == result.element_strides and elements.size == dims.product(result.shape):
        return [elements.reshape(result.shape)]
    places = numpy.asarray(view.offset)
    for extent, stride in zip(result.shape, view.strides, strict=True):
        assert isinstance(extent, int) and isinstance(stride, int), "what folds has fixed sizes"
        places = numpy.add.outer(places, numpy.arange(extent) * stride)
    return [elements[places]]
