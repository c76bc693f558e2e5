"""The pass: windows of neighbouring dilations add up, so that an image is read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hidet.context import CompileContext
from hidet.graph import Graph
from hidet.passes.rewriter import GraphRewriter


@dataclass(frozen=True)
class MergeDilations:
    """dilate(dilate(x, a), b) -> dilate(x, a + b - 1), up to windows of `largest`.

    largest: a field of a pass is an option of `hidet opt -p 'morphology.merge_dilations{largest=5}'`.
    """

    name: ClassVar[str] = "morphology.merge_dilations"
    largest: int = 9

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The same object when nothing changed."""
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            (image, size) = (node.inputs[0], node.attrs["size"]) if node.op.name == "dilate" else (None, 0)
            inner = None if image is None else rewriter.producer(rewriter.current(image))
            if inner is None or inner.op.name != "dilate" or inner.attrs["size"] + size - 1 > self.largest:
                rewriter.keep(node)
                continue
            merged = rewriter.emit("dilate", inner.inputs[0], at=node, size=inner.attrs["size"] + size - 1)
            rewriter.substitute(node.outputs[0], merged)
        return rewriter.finish()
