"""Passes that apply the rules that users have registered; most have registered none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.compat.rules import QUANTIZE_RULES, RESOLVE_RULES, REWRITE_RULES
from hidet.graph.graph import Graph

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class RewriteSubgraphs:
    """Applies rewrite rules."""

    name: ClassVar[str] = "rewrite-subgraphs"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The graph itself where there is no rule."""
        if not REWRITE_RULES:
            return graph
        from hidet.graph.transforms.rewriting import rewrite_graph, subgraph_changes

        return rewrite_graph(graph, ctx.registry.operators, subgraph_changes)


@dataclass(frozen=True)
class ResolveOperators:
    """Applies resolve rules."""

    name: ClassVar[str] = "resolve-operators"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The graph itself where there is no rule."""
        if not RESOLVE_RULES:
            return graph
        from hidet.graph.transforms.rewriting import resolve_changes, rewrite_graph

        return rewrite_graph(graph, ctx.registry.operators, resolve_changes)


@dataclass(frozen=True)
class QuantizeWeights:
    """Applies the quantisation rules of a `PassContext`."""

    name: ClassVar[str] = "compat-quantize-weights"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The graph itself where no rules were asked for."""
        number = ctx.option("compat.quantize")
        if not isinstance(number, int):
            return graph
        from hidet.graph.transforms.rewriting import changes_by, rewrite_graph

        return rewrite_graph(graph, ctx.registry.operators, changes_by(QUANTIZE_RULES[number]))
