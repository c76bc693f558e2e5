"""Passes that replace the results of some nodes: one walk over a graph for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, find_views
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

Replacement = Callable[[GraphRewriter, Node, Views], Value | None]
"""(rewriter, node of the old graph, where views of that lie) -> what stands for its result; None to keep the node."""


def replace_results(
    graph: Graph, ctx: CompileContext, concerns: Callable[[Node], bool], replacement: Replacement
) -> Graph:
    """One walk in graph order; `replacement` is asked for nodes that the pass concerns. The same graph if none is."""
    if not any(map(concerns, graph.nodes)):
        return graph
    rewriter, views = GraphRewriter(graph, ctx.registry.operators), find_views(graph)
    for node in graph.nodes:
        made = replacement(rewriter, node, views) if concerns(node) else None
        if made is None:
            rewriter.keep(node)
        else:
            rewriter.substitute(node.outputs[0], made)
    return rewriter.finish()


def repeated(rewriter: GraphRewriter, node: Node, inputs: Sequence[Value | None], **attrs: Any) -> Value:
    """The result of a node from other inputs or with other attributes; it lies in memory as it did."""
    (made,) = rewriter.emit_all(node.op, inputs, {**node.attrs, **attrs}, node, [node.outputs[0].tensor])
    return made
