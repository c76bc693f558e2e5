"""Products and convolutions of f32 are marked for matrix units where the user allows tf32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims, dtypes
from hidet.graph.graph import Graph, Node
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class AllowTf32:
    """Sets the attribute `fp32_precision` from the options `tf32_products` and `tf32_convolutions`."""

    name: ClassVar[str] = "cuda-allow-tf32"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        allowed = {
            "matmul": ctx.options.tf32_products,
            "linear": ctx.options.tf32_products,
            "conv": ctx.options.tf32_convolutions,
        }
        marked = [node for node in graph.nodes if allowed.get(node.op.name) and _is_rounded(node)]
        if not marked:
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            if node not in marked:
                rewriter.keep(node)
                continue
            attrs = {**node.attrs, "fp32_precision": "tf32"}
            (new,) = rewriter.emit_all(node.op.name, node.inputs, attrs, node, [node.outputs[0].tensor])
            rewriter.substitute(node.outputs[0], new)
        return rewriter.finish()


def _is_rounded(node: Node) -> bool:
    """Whether torch rounds such a result. A product of one row or one column waits for memory: cuBLAS does not."""
    result = node.outputs[0].tensor
    is_vector = node.op.name != "conv" and 1 in (dims.product(result.shape[:-1]), *result.shape[-1:])
    return result.dtype is dtypes.f32 and not is_vector
