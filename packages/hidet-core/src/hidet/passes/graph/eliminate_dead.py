"""Dead code elimination: drop nodes whose results nobody reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Value

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class EliminateDead:
    """Drop nodes without effect whose results reach no output, and constants that nobody reads."""

    name: ClassVar[str] = "eliminate-dead"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk from the outputs back."""
        return without_dead(graph)


def without_dead(graph: Graph) -> Graph:
    """The graph without dead nodes and constants; the same object when there are none."""
    live: set[Value] = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if node.op.has_effect or any(value in live for value in node.outputs):
            kept.append(node)
            live.update(node.values)
    constants = {value: data for value, data in graph.constants.items() if value in live}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)
