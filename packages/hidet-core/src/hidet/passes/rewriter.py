"""Rewriting a graph node by node: keep, replace or emit, in one walk in graph order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hidet.graph.builder import GraphBuilder, rebuild_node
from hidet.graph.graph import Constant, Graph, Node, Value
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
        has_control = any(node.op.kind == "control" for node in graph.nodes)
        taken = symbol_names(graph) if has_control else None
        self._builder = GraphBuilder(operators, graph.name, next_number(graph), taken)
        self._emitted: set[Value] = set()
        self._producers: dict[Value, Node] = {}

    def keep(self, node: Node) -> None:
        """Take over a node, reading replaced values where they were."""
        rebuilt = rebuild_node(node, self.mapping)
        self._builder.append(rebuilt)
        self._producers.update(dict.fromkeys(rebuilt.outputs, rebuilt))

    def producer(self, value: Value) -> Node | None:
        """The node of the new graph, as far as it exists, that computes a (current) value."""
        return self._producers.get(value)

    def constant_data(self, value: Value) -> Constant | None:
        """The data of a (current) value that is a constant."""
        return self.graph.constants.get(value) or self._builder.constants.get(value)

    def current(self, value: Value) -> Value:
        """What stands for an old value now."""
        return self.mapping.get(value, value)

    def emit(self, op: str | OperatorSpec, *inputs: Value | None, at: Node | None, **attrs: Any) -> Value:
        """Apply a one-output operator to (current) values, in the place of node `at`."""
        (value,) = self.emit_all(op, inputs, attrs, at)
        return value

    def emit_all(
        self,
        op: str | OperatorSpec,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any],
        at: Node | None,
        types: Sequence[TensorType] | None = None,
    ) -> tuple[Value, ...]:
        """Apply an operator with any number of outputs. types: theirs, where they do not lie row-major."""
        with self._emitting(at):
            return self._builder.emit_all(op, [None if v is None else self.current(v) for v in inputs], attrs, types)

    def decompose(self, node: Node) -> Sequence[Value]:
        """Emit the simpler operators that a node's operator says it consists of; what stands for its outputs."""
        assert node.op.decompose is not None
        with self._emitting(node):
            return node.op.decompose(
                self._builder, [None if v is None else self.current(v) for v in node.inputs], node.attrs
            )

    def copy(self, value: Value, type_: TensorType, at: Node | None) -> Value:
        """The elements of a (current) value in memory of their own, with the strides of `type_`."""
        (made,) = self.emit_all("copy", [value], {}, at, [type_])
        return made

    def constant(self, data: Any, like: Value) -> Value:
        """A constant of the dtype of `like`."""
        return self._builder.constant(data, like.tensor.dtype)

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
        nodes = self._builder.nodes
        if retyped:
            nodes = tuple(_renamed(node, retyped) for node in nodes)
        constants = {**self.graph.constants, **self._builder.constants}
        return replace(self.graph, nodes=nodes, outputs=tuple(retyped.get(v, v) for v in chosen), constants=constants)

    @contextmanager
    def _emitting(self, at: Node | None) -> Iterator[None]:
        """Give nodes emitted inside the place of `at`, and note what they make."""
        start = self._builder.node_count
        with self._builder.at(None if at is None else at.loc):
            yield
        for node in self._builder.nodes_from(start):
            self._producers.update(dict.fromkeys(node.outputs, node))
            self._emitted.update(node.outputs)

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
    names = (v.name for node in graph.nodes for v in node.outputs)
    own = (v.name for v in (*graph.inputs, *graph.constants))
    return 1 + max((int(name) for name in (*names, *own) if name.isdecimal()), default=-1)
