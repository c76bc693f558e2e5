"""Folding a batch norm into the convolution before it: its scale goes into the weight, its shift into the bias.

y = (conv(x, w) + b - mean) * s + beta,  s = gamma / sqrt(variance + eps)
  = conv(x, w * s) + ((b - mean) * s + beta)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node, Value, producers, readers
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

_ANCHORS = ("conv", "linear")


@dataclass(frozen=True)
class FoldConvBatchNorm:
    """Only where nobody else reads the convolution's result, and its weight is a constant.

    The arithmetic on weights is ordinary nodes; `split-prepare` moves them out of the call.
    """

    name: ClassVar[str] = "fold-conv-batch-norm"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Match each batch norm against the producer of its input."""
        table, made = readers(graph), producers(graph)
        steady = set(graph.constants)
        anchors: dict[Node, Node] = {}
        for node in graph.nodes:
            if node.op.name != "batch_norm":
                continue
            source = node.inputs[0]
            assert source is not None
            anchor = made.get(source)
            if anchor is None or anchor.op.name not in _ANCHORS or len(table[source]) != 1 or source in graph.outputs:
                continue
            if steady.issuperset(anchor.values[1:]) and steady.issuperset(node.values[1:]):
                anchors[anchor] = node
        if not anchors:
            return graph
        norms = set(anchors.values())
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        known: dict[Pair, list[Node | None]] = {}
        pending: dict[Value, Node] = {norm.inputs[0]: anchor for anchor, norm in anchors.items()}  # type: ignore[misc]  # input 0 is present
        for node in graph.nodes:
            if node in anchors:
                continue
            if node not in norms:
                rewriter.keep(node)
                continue
            assert node.inputs[0] is not None
            rewriter.substitute(node.outputs[0], _reduced_axes(rewriter, pending[node.inputs[0]], node, known))
        return rewriter.finish()


Pair = tuple[int, int]
"""The definitions of an anchor and of its norm, by identity: equal pairs become equal nodes."""


def _reduced_axes(rewriter: GraphRewriter, anchor: Node, norm: Node, known: dict[Pair, list[Node | None]]) -> Value:
    """The result of an anchor and its norm as nodes of the new graph. known: what pairs before it have become."""
    _, mean, variance, gamma, beta = (*norm.inputs, None, None)[:5]
    x, weight, bias = (*anchor.inputs, None)[:3]
    assert weight is not None
    pair = id(anchor.definition), id(norm.definition)
    like = known.get(pair, [None] * 4)
    scale = rewriter.emit("batch_norm_scale", variance, gamma, at=norm, like=like[0], eps=norm.attrs["eps"])
    shift = rewriter.emit("batch_norm_shift", mean, scale, bias, beta, at=norm, like=like[1], dtype=weight.tensor.dtype)
    scaled = rewriter.emit("scale_filters", weight, scale, at=norm, like=like[2])
    (result,) = rewriter.emit_all(anchor.op, (x, scaled, shift), anchor.attrs, anchor, like=like[3])
    if pair not in known:
        known[pair] = [rewriter.producer(value) for value in (scale, shift, scaled, result)]
    return result
