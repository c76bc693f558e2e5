"""Gated linear units (SwiGLU, GEGLU) become one operator: two linears of the same rows, of which one goes through an
activation and scales the other.

One kernel multiplies the rows with both weights. Nothing in between is written, and a step with few rows has one kernel
less to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.passes.linears import is_by_aligned_weight
from hidet.fusion.fuse import foreign_rule_for
from hidet.gpu.passes.replace import replace_results
from hidet.graph.graph import Graph, Node, Value, producers, readers, stored_values
from hidet.graph.storage import Views
from hidet.graph.types import same_shape
from hidet.operators.gated_linear import GATES
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class GateLinears:
    """Of 16-bit floats, with weights of the caller's whose rows are aligned."""

    name: ClassVar[str] = "cuda-gate-linears"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        if not ctx.option("cuda.matrix_units"):
            return graph
        search = _Search(graph, ctx, stored_values(graph), frozenset(graph.outputs))

        def gated(rewriter: GraphRewriter, node: Node, _: Views) -> Value | None:
            found = search.unit(node)
            if found is None:
                return None
            activation, gate, up = found
            biases = [(*linear.inputs, None)[2] for linear in (gate, up)]
            given = [*gate.inputs[:2], up.inputs[1], *biases]
            return rewriter.emit("gated_linear", *given, at=node, activation=activation, **gate.attrs)

        return replace_results(graph, ctx, lambda node: node.op.name == "mul", gated)


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for gated linear units. stored: what no step writes. outputs: the graph's."""

    graph: Graph
    ctx: CompileContext
    stored: frozenset[Value]
    outputs: frozenset[Value]

    def unit(self, node: Node) -> tuple[str, Node, Node] | None:
        """The activation, the gate and what it scales, of a product that is a gated linear unit."""
        for scale, other in (node.inputs, node.inputs[::-1]):
            activated = self._made_for(scale, node)
            activation = None if activated is None else _activation_of(activated)
            if activated is None or activation is None:
                continue
            gate, up = self._linear_for(activated.inputs[0], activated), self._linear_for(other, node)
            if gate is not None and up is not None and _are_alike(gate, up):
                return activation, gate, up
        return None

    def _linear_for(self, value: Value | None, reader: Node) -> Node | None:
        """The linear that computes a value for this reader alone, and that no rule of others takes."""
        node = self._made_for(value, reader)
        if node is None or not is_by_aligned_weight(node, self.stored) or node.values[1].tensor.shape[0] == 0:
            return None
        return node if foreign_rule_for(node, self.ctx) is None else None

    def _made_for(self, value: Value | None, reader: Node) -> Node | None:
        """The node that computes a value, its only result, for this reader alone."""
        if value is None or value in self.outputs or list(readers(self.graph).get(value, ())) != [reader]:
            return None
        node = producers(self.graph).get(value)
        return node if node is not None and len(node.outputs) == 1 else None


def _activation_of(node: Node) -> str | None:
    """What the operator calls an activation; None for other nodes."""
    attrs = dict(node.attrs.items())
    return next((name for name, (op, own) in GATES.items() if node.op.name == op and attrs == dict(own)), None)


def _are_alike(gate: Node, up: Node) -> bool:
    """Whether two linears multiply the same rows with weights that lie alike."""
    weights = [node.values[1].tensor for node in (gate, up)]
    has_same_rows = gate.inputs[0] is up.inputs[0] and gate.attrs == up.attrs
    lie_alike = weights[0].element_strides == weights[1].element_strides
    return has_same_rows and lie_alike and same_shape(weights[0].shape, weights[1].shape)
