"""Attention as products and a softmax, where option `compat.attention` asks for no kernel of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hidet import dtypes
from hidet.graph.graph import Graph, Node, Value
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class ComposeAttention:
    """Takes operator `attention` apart, but for grouped queries, and rows of symbolic length without a scale."""

    name: ClassVar[str] = "compat-compose-attention"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        if ctx.option("compat.attention"):
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            factor = _factor(node) if node.op.name == "attention" else None
            if factor is None:
                rewriter.keep(node)
            else:
                rewriter.substitute(node.outputs[0], _composed(rewriter, node, factor))
        return rewriter.finish()


def _factor(node: Node) -> float | None:
    """The factor on scores; None for attention that stays as it is."""
    width, scale = node.values[0].tensor.shape[-1], node.attrs["scale"]
    if node.attrs["enable_gqa"]:
        return None
    if scale is not None:
        return float(scale)
    return 1 / math.sqrt(max(width, 1)) if isinstance(width, int) else None


def _composed(rewriter: GraphRewriter, node: Node, factor: float) -> Value:
    """What stands for the result. A row of scores that reads no key gives 0."""
    q, k, v, mask = (*node.inputs, None)[:4]
    assert q is not None and k is not None and v is not None
    dtype = q.tensor.dtype

    def emit(name: str, *inputs: Value | None, **attrs: Any) -> Value:
        return rewriter.emit(name, *inputs, at=node, **attrs)

    scores = emit("mul", emit("matmul", q, k, trans_b=True), rewriter.constant(factor, q))
    lowest = rewriter.constant(-math.inf, scores)
    if mask is not None:
        is_bool = mask.tensor.dtype.is_bool
        scores = emit("where", mask, scores, lowest) if is_bool else emit("add", scores, mask)
    if node.attrs["is_causal"]:
        rows, keys = q.tensor.shape[-2], k.tensor.shape[-2]
        read = emit("tril", emit("full", shape=(rows, keys), value=True, dtype=dtypes.boolean))
        scores = emit("where", read, scores, lowest)
    weights = emit("softmax", scores, axis=-1)
    if mask is not None:
        top = emit("amax", scores, axes=(-1,), keepdim=True)
        weights = emit("where", emit("equal", top, lowest), rewriter.constant(0, weights), weights)
    result = emit("matmul", weights, v)
    return result if result.tensor.dtype is dtype else emit("cast", result, dtype=dtype)
