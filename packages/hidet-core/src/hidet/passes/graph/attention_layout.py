"""Memory order of attention results: heads next to each other within a position.

Nearly every model merges the heads right after attention. In the order (batch, position, head, feature) that merge is a
view, and each head writes whole vectors either way. Operators say so (`OperatorSpec.layout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import strides_of_order

if TYPE_CHECKING:
    from hidet.context import CompileContext


_LEAST_RANK = 4
"""Below it an axis is batch and heads at once, which nobody merges with the last."""


@dataclass(frozen=True)
class AttentionLayout:
    """First results [..., h, s, d] of attention that are not results of the graph lie in memory as [..., s, h, d]."""

    name: ClassVar[str] = "attention-layout"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        fixed = set(graph.outputs)
        mapping: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            new = rebuild_node(node, mapping)
            outputs = node.outputs
            rank = outputs[0].tensor.rank if node.op.layout == "bshd" else 0
            if rank >= _LEAST_RANK and outputs[0] not in fixed:
                old = outputs[0]
                order = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
                type_ = old.tensor.with_strides(strides_of_order(old.tensor.shape, order))
                if old.type != type_:
                    mapping[old] = Value(old.name, type_)
                    outputs = (mapping[old], *outputs[1:])
                    new = Node(node.op, new.inputs, node.attrs, outputs, node.loc, node.definition)
            nodes.append(new)
        return graph.with_nodes(tuple(nodes)) if mapping else graph
