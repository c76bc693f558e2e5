"""Rewrite rules and resolve rules applied to a flow graph by hand; compiling and optimising apply them in any case."""

from __future__ import annotations

from hidet.api.flow import FlowGraph
from hidet.graph.transforms.rewriting import Finder, FlowView, resolve_changes, rewrite_graph, subgraph_changes
from hidet.plugins.host import load_registry


class GraphPass:
    """What makes another flow graph of one; to be derived from."""

    def __init__(self) -> None:
        self.name = type(self).__name__

    def __call__(self, graph: FlowGraph) -> FlowGraph:
        """The other graph."""
        return self.process_graph(graph)

    def process_graph(self, graph: FlowGraph) -> FlowGraph:
        """The other graph; the same where nothing changes."""
        raise NotImplementedError


class RewritePass(GraphPass):
    """Applies changes until there is none."""

    def __init__(self, changes: Finder) -> None:
        super().__init__()
        self._changes = changes

    def process_graph(self, graph: FlowGraph) -> FlowGraph:
        """The changed graph; the same where nothing changes."""
        before = graph.graph
        after = rewrite_graph(before, load_registry().operators, self._changes, graph.device)
        return graph if after is before else FlowView(after, graph.device).flow_graph()


def subgraph_rewrite_pass() -> GraphPass:
    """The pass that applies the registered rewrite rules."""
    return RewritePass(subgraph_changes)


def resolve_variant_pass() -> GraphPass:
    """The pass that applies the registered resolve rules."""
    return RewritePass(resolve_changes)
