"""Common sub-expression elimination: nodes with equal operator, inputs and attributes are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Graph, Node, Value

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class CommonSubexpr:
    """Value numbering in graph order. Random, foreign and effectful nodes are left alone."""

    name: ClassVar[str] = "common-subexpr"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Later duplicates are replaced by the first occurrence; output types must agree, strides included."""
        seen: dict[tuple[object, ...], Node] = {}
        mapping: dict[Value, Value] = {}
        outputs = set(graph.outputs)
        kept: list[Node] = []
        for original in graph.nodes:
            node = rebuild_node(original, mapping)
            if node.op.is_random or node.op.has_effect or node.op.kind in ("eager", "host"):
                kept.append(node)
                continue
            key = (node.op.name, node.inputs, node.attrs, tuple(v.type for v in node.outputs))
            first = seen.setdefault(key, node)
            if first is node or any(value in outputs for value in node.outputs):
                kept.append(node)
            else:
                mapping.update(zip(node.outputs, first.outputs, strict=True))
        return graph if not mapping else graph.with_nodes(tuple(kept))
