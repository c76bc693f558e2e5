"""Products with one matrix read the other as contiguous rows, of one stride; what lies otherwise is copied before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.gpu.passes.replace import repeated, replace_results
from hidet.gpu.schedules.operands import rows_of
from hidet.gpu.schedules.strides import row_axes, single_stride
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, layout_of
from hidet.graph.types import TensorType
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class ContiguousRows:
    """Copies what products with one matrix read as rows, where it is a view of several steps: windows of an image."""

    name: ClassVar[str] = "gpu-contiguous-rows"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        return replace_results(graph, ctx, lambda node: rows_of(node) is not None, _of_copied_rows)


def _of_copied_rows(rewriter: GraphRewriter, node: Node, views: Views) -> Value | None:
    x = rows_of(node)
    if x is None or _is_regular(layout_of(x, views), node.outputs[0].tensor):
        return None
    copy = rewriter.copy(x, TensorType(x.tensor.dtype, x.tensor.shape, None, x.tensor.device), node)
    return repeated(rewriter, node, [copy, *node.inputs[1:]])


def _is_regular(x: TensorType, result: TensorType) -> bool:
    """Whether rows are walked as one, or those of each of several matrices and these, in the operand and the result."""

    def is_walked(axes: Sequence[int]) -> bool:
        extents = [x.shape[axis] for axis in axes]
        return all(
            single_stride(extents, [type_.element_strides[axis] for axis in axes]) is not None for type_ in (x, result)
        )

    return any(is_walked(rows) and is_walked(batch) for rows, batch in row_axes(x.shape[:-1], x.element_strides[:-1]))
