"""Rewriting a graph node by node: keep, replace or emit, in one walk in graph order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hidet.graph.builder import GraphBuilder, rebuild_node
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.operator import OperatorSpec


class GraphRewriter:
    """Collects the nodes of a new graph with the signature of `graph`.

    A pass walks `graph.nodes` and calls `keep` or, for what it replaces, `emit` and `substitute`. Values emitted while
    rewriting node n carry its place in the user's model.
    """

    def __init__(self, graph: Graph, operators: Mapping[str, OperatorSpec]) -> None:
        self.graph = graph
        self.mapping: dict[Value, Value] = {}
        self.changed = False
        self._builder = GraphBuilder(operators, graph.name, first_number=_next_number(graph))

    def keep(self, node: Node) -> None:
        """Take over a node, reading replaced values where they were."""
        self._builder.append(rebuild_node(node, self.mapping))

    def current(self, value: Value) -> Value:
        """What stands for an old value now."""
        return self.mapping.get(value, value)

    def emit(self, op: str | OperatorSpec, *inputs: Value | None, at: Node | None, **attrs: Any) -> Value:
        """Apply a one-output operator to (current) values, in the place of node `at`."""
        with self._builder.at(None if at is None else at.loc):
            return self._builder.emit(op, *(None if v is None else self.current(v) for v in inputs), **attrs)

    def emit_all(
        self, op: str | OperatorSpec, inputs: Sequence[Value | None], attrs: Mapping[str, Any], at: Node
    ) -> tuple[Value, ...]:
        """Apply an operator with several outputs."""
        with self._builder.at(at.loc):
            return self._builder.emit_all(op, [None if v is None else self.current(v) for v in inputs], attrs)

    def constant(self, data: Any, like: Value) -> Value:
        """A constant of the dtype of `like`."""
        return self._builder.constant(data, like.tensor.dtype)

    def substitute(self, old: Value, new: Value) -> None:
        """From here on, `new` stands for `old`."""
        self.mapping[old] = new
        self.changed = True

    def finish(self) -> Graph:
        """The new graph; the old object when nothing was substituted or emitted."""
        if not self.changed:
            return self.graph
        outputs = tuple(self.current(v) for v in self.graph.outputs)
        constants = {**self.graph.constants, **self._builder.constants}
        return replace(self.graph, nodes=self._builder.nodes, outputs=outputs, constants=constants)


def _next_number(graph: Graph) -> int:
    """A number no value of the graph is named by."""
    names = (v.name for node in graph.nodes for v in node.outputs)
    own = (v.name for v in (*graph.inputs, *graph.constants))
    return 1 + max((int(name) for name in (*names, *own) if name.isdecimal()), default=-1)
