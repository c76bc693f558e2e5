"""Local rewriting: rules that look at one node and at what its inputs were made of, applied until none fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Graph, Node, Value, readers
from hidet.graph.operator import OperatorSpec
from hidet.passes.graph.eliminate_dead import without_dead
from hidet.passes.rewriter import GraphRewriter

# A rule shortens what it matches, so few rounds are ever needed; the bound only stops rules that undo each other.
_MAX_ROUNDS = 16


class Site:
    """A node under consideration, in the new graph as far as it exists.

    `node` reads current values. Everything a rule may ask or do goes through here.
    """

    def __init__(self, node: Node, walk: _Walk) -> None:
        self.node = node
        self._walk = walk

    def made_by(self, value: Value | None, *operators: str) -> Node | None:
        """The node that computes `value` if its operator is one of `operators`."""
        node = None if value is None else self._walk.rewriter.producer(value)
        return node if node is not None and node.op.name in operators else None

    def is_read_once(self, value: Value) -> bool:
        """Whether one node alone needs `value`: then what made it disappears once that node is replaced."""
        return self._walk.read_count.get(value, 0) == 1

    def must_own_memory(self, value: Value) -> bool:
        """Whether a caller or another framework gets `value`, or a view of it, as a tensor."""
        return value in self._walk.handed_out

    def number(self, value: Value | None) -> int | float | bool | None:
        """The number that every element of `value` is, for constants of one element and results of `full`."""
        if value is None:
            return None
        data = self._walk.rewriter.constant_data(value)
        if data is not None:
            array = data.numpy()
            return array.item() if array.size == 1 else None
        node = self.made_by(value, "full")
        given = None if node is None else node.attrs["value"]
        return given if isinstance(given, int | float) else None

    def emit(self, op: str | OperatorSpec, *inputs: Value | None, **attrs: Any) -> Value:
        """Apply a one-output operator in the node's place."""
        return self._walk.rewriter.emit(op, *inputs, at=self.node, **attrs)

    def constant(self, data: Any, like: Value) -> Value:
        """A constant of the dtype of `like`."""
        return self._walk.rewriter.constant(data, like)


Rule = Callable[[Site], Value | None]


def rewrite_locally(
    graph: Graph,
    operators: Mapping[str, OperatorSpec],
    rules: Mapping[str, Sequence[Rule]],
    for_all: Sequence[Rule] = (),
) -> Graph:
    """Apply `rules` (by operator name) and the rules `for_all` until none of them fits.

    A rule returns the value that stands for the node's only result, or None. It must keep shape and dtype, and the
    result must be exact but for rounding.
    """
    for _ in range(_MAX_ROUNDS):
        simpler = _Walk(graph, operators).run(rules, for_all)
        if simpler is graph:
            return graph
        graph = without_dead(simpler)
    return graph


class _Walk:
    """One round over the graph."""

    def __init__(self, graph: Graph, operators: Mapping[str, OperatorSpec]) -> None:
        self.graph = graph
        self.rewriter = GraphRewriter(graph, operators)
        self.read_count = {value: len(nodes) for value, nodes in readers(graph).items()}
        for value in graph.outputs:
            self.read_count[value] = self.read_count.get(value, 0) + 1
        self.handed_out = _handed_out(graph)

    def run(self, rules: Mapping[str, Sequence[Rule]], for_all: Sequence[Rule]) -> Graph:
        rewriter = self.rewriter
        for original in self.graph.nodes:
            new = None
            if len(original.outputs) == 1:
                site = Site(rebuild_node(original, rewriter.mapping), self)
                for rule in (*rules.get(original.op.name, ()), *for_all):
                    new = rule(site)
                    if new is not None:
                        break
            if new is None:
                rewriter.keep(original)
            else:
                rewriter.substitute(original.outputs[0], new)
        return rewriter.finish()


def _handed_out(graph: Graph) -> set[Value]:
    """Values that outputs or foreign operators see, directly or as the memory behind a view."""
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op.kind in ("eager", "host") or (node.op.kind == "view" and node.outputs[0] in found):
            found.update(node.values)
    return found
