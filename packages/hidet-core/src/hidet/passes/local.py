"""Local rewriting: rules that look at one node and at what its inputs were made of, applied until none fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Graph, Node, Value, readers
from hidet.graph.operator import OperatorSpec
from hidet.graph.storage import handed_out
from hidet.graph.types import same_shape
from hidet.passes.graph.eliminate_dead import without_dead
from hidet.passes.rewriter import GraphRewriter
from hidet.plugins.specs import FAMILY

# Elements of a constant that are looked at.
_MOST_COMPARED = 4096
# Elements of a constant that rules may look at: as many as masks of long sequences have.
_MOST_ELEMENTS = 1 << 24
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
        """The node that computes `value` if its operator is one of `operators`.

        operators: names, or families as "family:pooling".
        """
        node = None if value is None else self._walk.rewriter.producer(value)
        if node is None or node.op.name in operators:
            return node
        family = node.op.family
        return node if family is not None and FAMILY + family in operators else None

    def producer(self, value: Value) -> Node | None:
        """The node that computes `value`; None for inputs and constants."""
        return self._walk.rewriter.producer(value)

    def reads(self, value: Value) -> int:
        """How many nodes and outputs need `value`."""
        return self._walk.read_count.get(value, 0)

    def is_read_once(self, value: Value) -> bool:
        """Whether one node alone needs `value`: then what made it disappears once that node is replaced."""
        return self.reads(value) == 1

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

    def truth(self, value: Value | None) -> bool | None:
        """Whether all elements of a constant of at most `_MOST_COMPARED` are true, or all false; None otherwise."""
        data = None if value is None else self._walk.rewriter.constant_data(value)
        if data is None:
            return None
        array = data.numpy()
        if not 0 < array.size <= _MOST_COMPARED:
            return None
        return True if array.all() else None if array.any() else False

    def elements(self, value: Value) -> Any | None:
        """The array of a constant of at most `_MOST_ELEMENTS`; None for other values."""
        data = self._walk.rewriter.constant_data(value)
        if data is None or math.prod(data.numpy().shape) > _MOST_ELEMENTS:
            return None
        return data.numpy()

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
    """Apply `rules` (by names of operators, or families as "family:pooling") and the rules `for_all` until none fits.

    An operator's own rules come first, then those of its family, then those for all.

    A rule returns the value that stands for the node's only result, or None. A value of another shape or dtype counts
    as None, so that rules may leave checks of broadcasting to the operators they emit.
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
        self.handed_out = handed_out(graph)

    def run(self, rules: Mapping[str, Sequence[Rule]], for_all: Sequence[Rule]) -> Graph:
        mapping = self.rewriter.mapping
        fitting: dict[tuple[str, str | None], Sequence[Rule]] = {}
        for original in self.graph.nodes:
            name, family = kind = (original.op.name, original.op.family)
            rules_here = fitting.get(kind)
            if rules_here is None:
                of_family = () if family is None else rules.get(FAMILY + family, ())
                rules_here = fitting[kind] = (*rules.get(name, ()), *of_family, *for_all)
            if len(original.outputs) != 1 or not rules_here:
                self.rewriter.keep(original)
                continue
            node = original if mapping.keys().isdisjoint(original.inputs) else rebuild_node(original, mapping)
            new = _replacement(Site(node, self), rules_here)
            if new is None:
                self.rewriter.keep(node)
            else:
                self.rewriter.substitute(original.outputs[0], new)
        return self.rewriter.finish()


def _replacement(site: Site, rules: Sequence[Rule]) -> Value | None:
    """What the first rule that fits puts in the place of the node's result."""
    for rule in rules:
        new = rule(site)
        if new is not None and _same_kind(new, site.node.outputs[0]):
            return new
    return None


def _same_kind(a: Value, b: Value) -> bool:
    return a.tensor.dtype == b.tensor.dtype and same_shape(a.tensor.shape, b.tensor.shape)
