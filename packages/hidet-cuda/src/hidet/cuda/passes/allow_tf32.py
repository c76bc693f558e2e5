"""Products and convolutions of f32 are marked for matrix units where the user allows tf32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims, dtypes
from hidet.cuda.passes.replace import repeated, replace_results
from hidet.graph.graph import Graph, Node

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
        return replace_results(
            graph,
            ctx,
            lambda node: bool(allowed.get(node.op.name)) and _is_rounded(node),
            lambda rewriter, node, _: repeated(rewriter, node, node.inputs, fp32_precision="tf32"),
        )


def _is_rounded(node: Node) -> bool:
    """Whether torch rounds such a result. A product of one row or one column waits for memory: cuBLAS does not."""
    result = node.outputs[0].tensor
    is_vector = node.op.name != "conv" and 1 in (dims.product(result.shape[:-1]), *result.shape[-1:])
    return result.dtype is dtypes.f32 and not is_vector
