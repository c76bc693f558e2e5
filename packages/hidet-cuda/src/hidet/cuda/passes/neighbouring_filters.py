"""Convolutions of few channels a filter read the same tap of neighbouring filters at once, which then lie together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.passes.neighbouring_channels import is_product
from hidet.graph.graph import Graph, Node
from hidet.graph.storage import find_views, layout_of
from hidet.graph.types import strides_of_order
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class NeighbouringFilters:
    """Copies the weights of depthwise convolutions with the filters innermost, where they lie otherwise.

    A copy of parameters is made once, because `split-prepare` moves it out of the call.
    """

    name: ClassVar[str] = "cuda-neighbouring-filters"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        if not any(_is_narrow(node) for node in graph.nodes):
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        views = find_views(graph)
        for node in graph.nodes:
            weight = node.inputs[1] if _is_narrow(node) else None
            if weight is None or layout_of(weight, views).element_strides[0] == 1:
                rewriter.keep(node)
                continue
            shape = weight.tensor.shape
            wanted = weight.tensor.with_strides(strides_of_order(shape, (*range(1, len(shape)), 0)))
            copy = rewriter.copy(weight, wanted, node)
            rewriter.changed = True
            old = node.outputs[0]
            inputs = (node.inputs[0], copy, *node.inputs[2:])
            rewriter.keep(Node(node.op, inputs, node.attrs, (old,), node.loc, node.definition))
        return rewriter.finish()


def _is_narrow(node: Node) -> bool:
    """Whether a node is a convolution in groups of fewer channels than make a matrix."""
    return node.op.name == "conv" and not is_product(node)
