"""Batch norms as a multiplication and an addition, whose factors come from kernels that all norms of a graph share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node
from hidet.passes.rewriter import GraphRewriter
from hidet.schedule.cost import element_count

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class SplitBatchNorms:
    """Norms of graphs that normalise fewer than `least_elements` elements stay whole, in the epilogue of what is before
    them.

    Scale and offset are made of parameters alone, each by itself, so that fusion puts those of all norms together.
    """

    name: ClassVar[str] = "gpu-split-batch-norm"
    # Four operands and a root cost 0.8 ps an element more than two in the epilogue of a large convolution, two kernels
    # for the factors of all norms 4 us (H200).
    least_elements: int = 4 << 20

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """All norms, or none."""
        norms = [node for node in graph.nodes if node.op.name == "batch_norm"]
        if sum(element_count(node.outputs[0].tensor.shape) for node in norms) < self.least_elements:
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            if node.op.name == "batch_norm":
                _split(rewriter, node)
            else:
                rewriter.keep(node)
        return rewriter.finish()


def _split(rewriter: GraphRewriter, node: Node) -> None:
    x, mean, variance, gamma, beta = (*node.inputs, None, None)[:5]
    assert x is not None and mean is not None and variance is not None
    eps = node.attrs["eps"]
    scale = rewriter.emit("batch_norm_scale", variance, gamma, at=node, eps=eps)
    offset = rewriter.emit("batch_norm_offset", mean, variance, gamma, beta, at=node, eps=eps)
    rewriter.substitute(node.outputs[0], rewriter.emit("apply_batch_norm", x, scale, offset, at=node))
