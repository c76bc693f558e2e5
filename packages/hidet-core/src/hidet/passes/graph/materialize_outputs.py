"""Giving every output memory of its own where sharing would hand out someone else's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Value
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class MaterializeOutputs:
    """An output that is, or is a view of, an input or a constant is copied; so is one written into an input's memory.

    Outputs that are views of one computed value keep sharing memory, as eager execution has it.
    """

    name: ClassVar[str] = "materialize-outputs"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Follow views from each output back to where its memory comes from."""
        foreign: set[Value] = {*graph.inputs, *graph.constants}
        parameters: set[Value] = {*graph.parameters, *graph.constants}
        for node in graph.nodes:
            if node.op.kind == "view" and node.inputs[0] in foreign:
                foreign.update(node.outputs)
            if node.values and all(v in parameters for v in node.values):
                # Computed by `prepare` once: its memory must not be handed out.
                parameters.update(node.outputs)
                foreign.update(node.outputs)
        mutating = {graph.outputs[position] for _, position in graph.mutates}
        chosen = {v for v in graph.outputs if v in foreign or (v in mutating and graph.outputs.count(v) > 1)}
        if not chosen:
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            rewriter.keep(node)
        last = graph.nodes[-1] if graph.nodes else None
        for value in chosen:
            rewriter.substitute(value, rewriter.emit("copy", value, at=last))
        return rewriter.finish()
