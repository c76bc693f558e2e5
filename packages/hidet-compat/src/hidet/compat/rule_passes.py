"""Passes that apply the rules that users have registered; most have registered none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.compat.rules import RESOLVE_RULES, REWRITE_RULES
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
