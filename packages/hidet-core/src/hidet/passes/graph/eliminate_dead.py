"""Dead code elimination: drop nodes whose results nobody reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.control import defined_sizes
from hidet.graph.graph import Graph, Value, foreign_nodes
from hidet.graph.symbols import names_used, symbol_names

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
    # Sizes are used by name: a node that defines one is live if a live node, or a result, has it.
    watched = any(map(defined_sizes, foreign_nodes(graph)))
    sizes = {name for value in graph.outputs for name in symbol_names(value.type)} if watched else set()
    kept = []
    for node in reversed(graph.nodes):
        is_live = node.op.has_effect or not live.isdisjoint(node.outputs)
        if watched and not is_live:
            is_live = not sizes.isdisjoint(symbol_names(defined_sizes(node)))
        if is_live:
            kept.append(node)
            live.update(node.values)
            if watched:
                sizes.update(names_used(node))
    constants = {value: data for value, data in graph.constants.items() if value in live}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)
