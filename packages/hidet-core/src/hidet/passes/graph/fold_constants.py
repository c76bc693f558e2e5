"""Constant folding: nodes on constants alone are evaluated by numpy at compile time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.dims import DimExpr
from hidet.graph.graph import Constant, Graph, Node, Value
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
        """One walk in graph order. A node without inputs (full, arange) is evaluated only for a reader that folds;
        for other readers it stays, because it costs them nothing when it is fused."""
        constants = dict(graph.constants)
        sources: dict[Value, Node] = {}
        kept: list[Node] = []
        for node in graph.nodes:
            if not self._is_foldable(node, constants, sources):
                kept.append(node)
                continue
            if not node.inputs:
                kept.append(node)
                sources.update(dict.fromkeys(node.outputs, node))
                continue
            for value in node.values:
                if value not in constants:
                    constants.update(_evaluated(sources[value], constants))
            constants.update(_evaluated(node, constants))
        if len(kept) == len(graph.nodes):
            return graph
        computed = {value for node in kept for value in node.outputs}
        read = {v for node in kept for v in node.values} | set(graph.outputs)
        held = {v: c for v, c in constants.items() if v in read and v not in computed}
        return replace(graph, nodes=tuple(kept), constants=held)

    def _is_foldable(self, node: Node, constants: dict[Value, Constant], sources: dict[Value, Node]) -> bool:
        if node.op.is_random or node.op.has_effect or node.op.kind in ("eager", "host"):
            return False
        if not all(value in constants or value in sources for value in node.values):
            return False
        if node.definition is None and node.op.evaluate is None:
            return False
        return all(self._is_small(value) for value in node.outputs)

    def _is_small(self, value: Value) -> bool:
        if not isinstance(value.type, TensorType):
            return False
        count = dims.product(value.type.shape)
        return not isinstance(count, DimExpr) and count * value.type.dtype.nbytes <= self.max_bytes


def _evaluated(node: Node, constants: dict[Value, Constant]) -> dict[Value, Constant]:
    """The results of a node on constants."""
    from hidet.compute.evaluate import evaluate

    arrays = [None if value is None else constants[value].numpy() for value in node.inputs]
    if node.op.evaluate is not None:
        results = list(node.op.evaluate(arrays, node.attrs))
    else:
        assert node.definition is not None
        results = list(evaluate(node.definition, arrays))
    return {value: Constant(array) for value, array in zip(node.outputs, results, strict=True)}
