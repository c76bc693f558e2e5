"""Batch norms as a multiplication and an addition, whose factors are computed once a call instead of once an element.

A square root and a division an element take longer than what they are fused with leaves time for. This is also the
order in which torch computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class SplitBatchNorm:
    """All that `fold-conv-batch-norm` has left: norms by parameters, which may change, or behind other operators."""

    name: ClassVar[str] = "split-batch-norm"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Each norm becomes three nodes."""
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            if node.op.name != "batch_norm":
                rewriter.keep(node)
                continue
            x, mean, variance, gamma, beta = (*node.inputs, None, None)[:5]
            assert x is not None and variance is not None
            scale = rewriter.emit("batch_norm_scale", variance, gamma, at=node, eps=node.attrs["eps"])
            shift = rewriter.emit("batch_norm_shift", mean, scale, None, beta, at=node, dtype=scale.tensor.dtype)
            rewriter.substitute(node.outputs[0], rewriter.emit("apply_batch_norm", x, scale, shift, at=node))
        return rewriter.finish()
