"""Decomposition: operators that the target has no schedule for, in simpler ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.errors import CompileError
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Place, add_view, handed_out, layout_of
from hidet.graph.types import TensorType
from hidet.passes.rewriter import GraphRewriter
from hidet.plugins.specs import ANY

if TYPE_CHECKING:
    from hidet.context import CompileContext

# Decompositions may be made of operators that decompose in turn; one that comes back to itself is an error.
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Decompose:
    """Take apart operators with a `decompose` rule that nothing schedules by name.

    Element-wise operators are kept: they need no schedule of their own. Whoever sees the memory of a result finds it
    laid out as it was: what is now a part of something larger is copied.
    """

    name: ClassVar[str] = "decompose"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Rounds over the graph until no operator is left that ought to be taken apart."""
        for _ in range(_MAX_DEPTH):
            chosen = {node for node in graph.nodes if _is_taken_apart(node, ctx)}
            if not chosen:
                return graph
            rewriter = GraphRewriter(graph, ctx.registry.operators)
            seen = handed_out(graph)
            for node in graph.nodes:
                if node in chosen:
                    for old, new in zip(node.outputs, rewriter.decompose(node), strict=True):
                        is_moved = old in seen and _is_moved(old, new, rewriter)
                        rewriter.substitute(old, rewriter.copy(new, old.tensor, node) if is_moved else new)
                else:
                    rewriter.keep(node)
            graph = rewriter.finish()
        stuck = next(node for node in graph.nodes if _is_taken_apart(node, ctx))
        raise CompileError(f"operator {stuck.op.name} decomposes without end", loc=stuck.loc)


def _is_taken_apart(node: Node, ctx: CompileContext) -> bool:
    if node.op.decompose is None:
        return False
    if node.definition is None:
        return True
    if node.definition.is_injective:
        return False
    return all(ANY in spec.ops for spec in ctx.registry.schedules_for(node.op.name, ctx.target.name))


def _is_moved(old: Value, new: Value, rewriter: GraphRewriter) -> bool:
    """Whether a value of the new graph lies otherwise than the one it stands for, by the views that make it."""
    if not isinstance(old.type, TensorType):
        return False
    chain: list[Node] = []
    root = new
    while (node := rewriter.producer(root)) is not None and node.op.kind == "view":
        chain.append(node)
        root = node.values[0]
    views: dict[Value, Place] = {}
    for node in reversed(chain):
        add_view(node, views)
    return layout_of(new, views).element_strides != old.type.element_strides
