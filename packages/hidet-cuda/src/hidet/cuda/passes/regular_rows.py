"""Linear layers read their input as the rows of a matrix, or of several; what lies otherwise is copied before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.schedules.finish import single_stride
from hidet.graph.graph import Graph
from hidet.graph.storage import find_views, layout_of
from hidet.graph.types import TensorType
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class RegularRows:
    """Copies inputs of linear layers that are views of several steps: windows of an image, for example."""

    name: ClassVar[str] = "cuda-regular-rows"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        if not any(node.op.name == "linear" for node in graph.nodes):
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        views = find_views(graph)
        for node in graph.nodes:
            x = node.inputs[0] if node.op.name == "linear" else None
            if x is None or _is_regular(layout_of(x, views)):
                rewriter.keep(node)
                continue
            copy = rewriter.copy(x, TensorType(x.tensor.dtype, x.tensor.shape, None, x.tensor.device), node)
            (new,) = rewriter.emit_all("linear", [copy, *node.inputs[1:]], node.attrs, node, [node.outputs[0].tensor])
            rewriter.substitute(node.outputs[0], new)
        return rewriter.finish()


def _is_regular(type_: TensorType) -> bool:
    """Whether the leading axes are walked as one, or those behind some of them and these."""
    shape, strides = type_.shape[:-1], type_.element_strides[:-1]
    return any(
        single_stride(shape[:split], strides[:split]) is not None
        and single_stride(shape[split:], strides[split:]) is not None
        for split in range(len(shape))
    )
