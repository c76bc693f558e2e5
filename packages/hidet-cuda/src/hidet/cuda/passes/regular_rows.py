"""Products with one matrix read the other as its rows, or as those of several; what lies otherwise is copied before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.schedules.operands import rows_of
from hidet.cuda.schedules.strides import row_axes, single_stride
from hidet.graph.graph import Graph
from hidet.graph.storage import find_views, layout_of
from hidet.graph.types import TensorType
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class RegularRows:
    """Copies what products with one matrix read as rows, where it is a view of several steps: windows of an image."""

    name: ClassVar[str] = "cuda-regular-rows"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        if not any(rows_of(node) for node in graph.nodes):
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        views = find_views(graph)
        for node in graph.nodes:
            x = rows_of(node)
            if x is None or _is_regular(layout_of(x, views), node.outputs[0].tensor):
                rewriter.keep(node)
                continue
            copy = rewriter.copy(x, TensorType(x.tensor.dtype, x.tensor.shape, None, x.tensor.device), node)
            (new,) = rewriter.emit_all(node.op, [copy, *node.inputs[1:]], node.attrs, node, [node.outputs[0].tensor])
            rewriter.substitute(node.outputs[0], new)
        return rewriter.finish()


def _is_regular(x: TensorType, result: TensorType) -> bool:
    """Whether rows are walked as one, or those of each of several matrices and these, in the operand and the result."""

    def is_walked(axes: Sequence[int]) -> bool:
        extents = [x.shape[axis] for axis in axes]
        return all(
            single_stride(extents, [type_.element_strides[axis] for axis in axes]) is not None for type_ in (x, result)
        )

    return any(is_walked(rows) and is_walked(batch) for rows, batch in row_axes(x.shape[:-1], x.element_strides[:-1]))
