"""Recomposition: chains of primitive operators become the operator of core that they spell out.

One operator has one schedule: a written-out attention would pass its scores through memory, and a written-out norm
would read its input three times. Results may differ from the chain's by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph
from hidet.passes.local import rewrite_locally
from hidet.passes.patterns import all_rules

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class Recompose:
    """Recognise averages, activations, normalisations, softmax and attention."""

    name: ClassVar[str] = "recompose"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Rounds over the graph until nothing changes: weights and biases join norms that earlier rounds found."""
        return rewrite_locally(graph, ctx.registry.operators, all_rules())
