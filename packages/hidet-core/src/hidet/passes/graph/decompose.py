"""Decomposition: operators that the target has no schedule for, in simpler ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.errors import CompileError
from hidet.graph.graph import Graph, Node
from hidet.passes.rewriter import GraphRewriter
from hidet.plugins.specs import ANY

if TYPE_CHECKING:
    from hidet.context import CompileContext

# Decompositions may be made of operators that decompose in turn; one that comes back to itself is an error.
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Decompose:
    """Take apart operators with a `decompose` rule that nothing schedules by name.

    Element-wise operators are kept: they need no schedule of their own.
    """

    name: ClassVar[str] = "decompose"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Rounds over the graph until no operator is left that ought to be taken apart."""
        for _ in range(_MAX_DEPTH):
            chosen = {node for node in graph.nodes if _is_taken_apart(node, ctx)}
            if not chosen:
                return graph
            rewriter = GraphRewriter(graph, ctx.registry.operators)
            for node in graph.nodes:
                if node in chosen:
                    for old, new in zip(node.outputs, rewriter.decompose(node), strict=True):
                        rewriter.substitute(old, new)
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
