"""Rewriting a graph node by node: keep, replace or emit, in one walk in graph order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hidet.graph.builder import GraphBuilder, rebuild_node
from hidet.graph.graph import Constant, Graph, Node, Value, foreign_nodes, producers
from hidet.graph.operator import OperatorSpec
from hidet.graph.symbols import symbol_names
from hidet.graph.types import TensorType


class GraphRewriter:
    """Collects the nodes of a new graph with the signature of `graph`.

    A pass walks `graph.nodes` and calls `keep` or, for what it replaces, `emit` and `substitute`. Values emitted while
    rewriting node n carry its place in the user's model. Outputs keep their types, strides included.
    """

    def __init__(self, graph: Graph, operators: Mapping[str, OperatorSpec]) -> None:
        self.graph = graph
        self.mapping: dict[Value, Value] = {}
        self.changed = False
        self._operators = operators
        self._original = producers(graph)
        self._nodes: list[Node] = []
        self._builder: GraphBuilder | None = None
        self._emitted: set[Value] = set()
        self._producers: dict[Value, Node] = {}

    def keep(self, node: Node) -> None:
        """Take over a node, reading replaced values where they were."""
        mapping = self.mapping
        rebuilt = node if mapping.keys().isdisjoint(node.inputs) else rebuild_node(node, mapping)
        self._nodes.append(rebuilt)
        for value in rebuilt.outputs:
            if self._original.get(value) is not rebuilt:
                self._producers[value] = rebuilt

    def producer(self, value: Value) -> Node | None:
        """The node of the new graph, as far as it exists, that computes a (current) value."""
        return self._producers.get(value) or self._original.get(value)

    def constant_data(self, value: Value) -> Constant | None:
        """The data of a (current) value that is a constant."""
        known = self.graph.constants.get(value)
        return self._builder.constants.get(value) if known is None and self._builder is not None else known

    def current(self, value: Value) -> Value:
        """What stands for an old value now."""
        return self.mapping.get(value, value)

    def emit(
        self, op: str | OperatorSpec, *inputs: Value | None, at: Node | None, like: Node | None = None, **attrs: Any
    ) -> Value:
        """Apply a one-output operator to (current) values, in the place of node `at`. like: see `emit_all`."""
        (value,) = self.emit_all(op, inputs, attrs, at, like=like)
        return value

    def emit_all(
        self,
        op: str | OperatorSpec,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any],
        at: Node | None,
        types: Sequence[TensorType] | None = None,
        like: Node | None = None,
    ) -> tuple[Value, ...]:
        """Apply an operator with any number of outputs. types: theirs, where they do not lie row-major.

        like: a node that differs from this one in what it reads alone, None where none is known. Nothing is inferred
        again then; networks have many equal layers.
        """
        builder = self._at(at)
        mapping = self.mapping
        current = [None if v is None else mapping.get(v, v) for v in inputs]
        made = builder.emit_all(op, current, attrs, types) if like is None else builder.repeat(like, current)
        self._take_emitted(builder)
        return made

    def decompose(self, node: Node) -> Sequence[Value]:
        """Emit the simpler operators that a node's operator says it consists of; what stands for its outputs."""
        assert node.op.decompose is not None
        builder = self._at(node)
        made = node.op.decompose(builder, [None if v is None else self.current(v) for v in node.inputs], node.attrs)
        self._take_emitted(builder)
        return made

    def copy(self, value: Value, type_: TensorType, at: Node | None) -> Value:
        """The elements of a (current) value in memory of their own, with the strides of `type_`."""
        (made,) = self.emit_all("copy", [value], {}, at, [type_])
        return made

    def constant(self, data: Any, like: Value) -> Value:
        """A constant of the dtype of `like`."""
        return self._at(None).constant(data, like.tensor.dtype)

    def substitute(self, old: Value, new: Value) -> None:
        """From here on, `new` stands for `old`."""
        self.mapping[old] = new
        self.changed = True

    def finish(self, outputs: Sequence[Value] | None = None) -> Graph:
        """The new graph; the old object when nothing was substituted. `outputs` None are what stands for the old."""
        if not self.changed and outputs is None:
            return self.graph
        retyped: dict[Value, Value] = {}
        chosen = [self._output(old, retyped) for old in self.graph.outputs] if outputs is None else list(outputs)
        nodes = tuple(self._nodes)
        if retyped:
            nodes = tuple([_renamed(node, retyped) for node in nodes])
        made = {} if self._builder is None else self._builder.constants
        constants = {**self.graph.constants, **made}
        return replace(self.graph, nodes=nodes, outputs=tuple(retyped.get(v, v) for v in chosen), constants=constants)

    def _at(self, at: Node | None) -> GraphBuilder:
        """A builder of nodes in the place of `at`; most walks over a graph need none, nor names for new values."""
        if self._builder is None:
            has_control = any(node.op.kind == "control" for node in foreign_nodes(self.graph))
            taken = symbol_names(self.graph) if has_control else None
            self._builder = GraphBuilder(self._operators, self.graph.name, next_number(self.graph), taken)
        self._builder.loc = None if at is None else at.loc
        return self._builder

    def _take_emitted(self, builder: GraphBuilder) -> None:
        """Add the nodes that the builder has made to the new graph."""
        for node in builder.take_nodes():
            self._nodes.append(node)
            for value in node.outputs:
                self._producers[value] = node
                self._emitted.add(value)

    def _output(self, old: Value, retyped: dict[Value, Value]) -> Value:
        """What stands for an output, laid out as the output was."""
        new = self.current(old)
        if new is old or new.type == old.type or not isinstance(old.type, TensorType):
            return new
        known = retyped.get(new)
        if new in self._emitted and known is None:
            retyped[new] = known = Value(new.name, old.type)
        return known if known is not None and known.type == old.type else self.copy(new, old.type, None)


def _renamed(node: Node, mapping: Mapping[Value, Value]) -> Node:
    """The node reading and defining mapped values."""
    rebuilt = rebuild_node(node, mapping)
    if not any(value in mapping for value in node.outputs):
        return rebuilt
    return replace(rebuilt, outputs=tuple(mapping.get(value, value) for value in node.outputs))


def next_number(graph: Graph) -> int:
    """A number no value of the graph is named by."""
    names = [v.name for node in graph.nodes for v in node.outputs]
    names += [v.name for v in (*graph.inputs, *graph.constants)]
    return 1 + max(map(int, filter(str.isdecimal, names)), default=-1)
