"""Convolutions of few channels a filter read the same tap of several filters at once: their weights are
channels-last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.gpu.passes.channels_last import is_product
from hidet.gpu.passes.replace import replace_results
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, layout_of
from hidet.graph.types import strides_of_order
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class DepthwiseChannelsLast:
    """Channels-last copies of the weights of depthwise convolutions (filters innermost), where they lie otherwise.

    A copy of parameters is made once, because `split-prepare` moves it out of the call.
    """

    name: ClassVar[str] = "gpu-depthwise-channels-last"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        return replace_results(graph, ctx, _is_narrow, _of_copied_filters)


def _of_copied_filters(rewriter: GraphRewriter, node: Node, views: Views) -> Value | None:
    weight = node.inputs[1]
    assert weight is not None
    if layout_of(weight, views).element_strides[0] == 1:
        return None
    shape = weight.tensor.shape
    wanted = weight.tensor.with_strides(strides_of_order(shape, (*range(1, len(shape)), 0)))
    inputs = (node.inputs[0], rewriter.copy(weight, wanted, node), *node.inputs[2:])
    (made,) = rewriter.emit_all(node.op, inputs, node.attrs, node, like=node)
    return made


def _is_narrow(node: Node) -> bool:
    """Whether a node is a convolution in groups of fewer channels than make a matrix."""
    return node.op.name == "conv" and not is_product(node)
