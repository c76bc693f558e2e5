"""Batch norms of large tensors: their factors come from kernels of their own, which small tensors are not worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node
from hidet.passes.graph.split_batch_norm import split_batch_norms
from hidet.schedule.cost import element_count

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class SplitLargeBatchNorms:
    """Norms of fewer than `least_elements` elements stay whole, in the epilogue of what is before them."""

    name: ClassVar[str] = "gpu-split-batch-norm"
    # The four operands and the root of a norm cost 0.8 ps an element in the epilogue of a convolution, a small kernel
    # between two large ones 2 to 4 us (H200).
    least_elements: int = 8 << 20

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """By the size of what is normalised."""

        def is_large(node: Node) -> bool:
            return element_count(node.outputs[0].tensor.shape) >= self.least_elements

        return split_batch_norms(graph, ctx, is_large)
