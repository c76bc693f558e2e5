"""Products and convolutions of f32 are marked for matrix units where the user allows tf32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims, dtypes
from hidet.gpu.passes.replace import repeated, replace_results
from hidet.graph.graph import Graph, Node

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class AllowTf32:
    """Sets the attribute `fp32_precision`, of operators that have it, from the options `tf32_products` and
    `tf32_convolutions`."""

    name: ClassVar[str] = "cuda-allow-tf32"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        options = {"matmul": ctx.options.tf32_products, "convolution": ctx.options.tf32_convolutions}
        families = {family for family, is_allowed in options.items() if is_allowed}
        return replace_results(
            graph,
            ctx,
            lambda node: node.op.family in families and "fp32_precision" in node.attrs and _is_rounded(node),
            lambda rewriter, node, _: repeated(rewriter, node, node.inputs, fp32_precision="tf32"),
        )


def _is_rounded(node: Node) -> bool:
    """Whether torch rounds such a result. A product of one row or one column waits for memory: cuBLAS does not."""
    result = node.outputs[0].tensor
    is_vector = node.op.family == "matmul" and 1 in (dims.product(result.shape[:-1]), *result.shape[-1:])
    return result.dtype is dtypes.f32 and not is_vector
