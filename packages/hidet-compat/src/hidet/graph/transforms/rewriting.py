"""Rules of users, which see tensors and operators on them, applied to graphs of the compiler.

A graph is shown to a rule as symbolic tensors; the operators that its results remember are put where they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hidet.api.flow import FlowGraph, Operation
from hidet.api.tensors.tensor import Tensor, placed
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.operator import OperatorSpec
from hidet.graph.transforms.graph_patterns import SubgraphRewriteRule, match_rule, registered_rewrite_rules
from hidet.graph.transforms.resolve_variant import rules_for
from hidet.graph.types import TensorType, same_shape
from hidet.passes.graph.eliminate_dead import without_dead
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.graph.transforms.graph_patterns import Usage

_MAX_ROUNDS = 64
"""Rounds over a graph: only rules that undo each other need more."""

Change = tuple[Sequence[Tensor], Sequence[Tensor]]
"""Results of operators, and the tensors that stand for them."""
Finder = Callable[["FlowView", Operation], Iterator[Change]]


class FlowView:
    """A graph as tensors that remember how they are computed. device: of all of them.

    Values that are no tensors, and what makes them, are not shown: their readers see inputs.
    """

    def __init__(self, graph: Graph, device: str = "cpu") -> None:
        self.graph = graph
        self.values: dict[Tensor, Value] = {}
        self.tensors: dict[Value, Tensor] = {}
        self.nodes: dict[Operation, Node] = {}
        self.readers: dict[Tensor, list[tuple[Operation | None, int]]] = {}
        for value, constant in graph.constants.items():
            self._know(value, placed(constant.numpy(), device))
        for value in graph.inputs:
            self._know(value, _symbol(value, device))
        for node in graph.nodes:
            self._show(node, device)
        for value in graph.outputs:
            self.readers.setdefault(self.tensors[value], []).append((None, 0))

    @property
    def usage(self) -> Usage:
        """Who reads each tensor."""
        return self.readers

    def flow_graph(self) -> FlowGraph:
        """The graph itself in this form."""
        inputs, outputs = ([self.tensors[v] for v in values] for values in (self.graph.inputs, self.graph.outputs))
        return FlowGraph(inputs, outputs, list(self.nodes))

    def _know(self, value: Value, tensor: Tensor | None) -> None:
        if tensor is not None:
            self.values[tensor] = value
            self.tensors[value] = tensor

    def _show(self, node: Node, device: str) -> None:
        is_plain = all(v is None or v in self.tensors for v in node.inputs)
        is_plain = is_plain and all(isinstance(v.type, TensorType) for v in node.outputs)
        if not is_plain or node.op.kind == "control":
            for value in node.outputs:
                self._know(value, _symbol(value, device))
            return
        # Nothing is inferred again: the node has its types.
        operation = Operation.__new__(Operation)
        operation.op, operation.attrs = node.op, node.attrs
        operation.inputs = tuple(None if v is None else self.tensors[v] for v in node.inputs)
        operation.outputs = tuple(
            Tensor(None, device, (value.tensor.shape, value.tensor.dtype), (operation, number))
            for number, value in enumerate(node.outputs)
        )
        self.nodes[operation] = node
        for value, tensor in zip(node.outputs, operation.outputs, strict=True):
            self._know(value, tensor)
        for number, read in enumerate(operation.inputs):
            if read is not None:
                self.readers.setdefault(read, []).append((operation, number))


def _symbol(value: Value, device: str) -> Tensor | None:
    kind = value.type
    return Tensor(None, device, (kind.shape, kind.dtype)) if isinstance(kind, TensorType) else None


def rewrite_graph(graph: Graph, operators: Mapping[str, OperatorSpec], changes: Finder, device: str = "cpu") -> Graph:
    """The graph with all changes that are found, and those that are found in the result, and so on. The same object
    where there is none."""
    for _ in range(_MAX_ROUNDS):
        changed = _round(graph, operators, changes, device)
        if changed is graph:
            break
        graph = without_dead(changed)
    return graph


def _round(graph: Graph, operators: Mapping[str, OperatorSpec], changes: Finder, device: str) -> Graph:
    """The first change of each result: all may be done together, since each stands for what the graph had."""
    view = FlowView(graph, device)
    planned = _plan(view, changes)
    rewriter = GraphRewriter(graph, operators)
    for node in graph.nodes:
        for change in planned.get(node, ()):
            _emit(rewriter, view, node, change)
        rewriter.keep(node)
    return rewriter.finish()


def _plan(view: FlowView, changes: Finder) -> Mapping[Node, Sequence[Change]]:
    """The changes to make, each at the node that makes the first of the results, before anyone reads them. What a
    change reads has to be there by then."""
    order = {value: number for number, node in enumerate(view.graph.nodes) for value in node.outputs}
    planned: dict[Node, list[Change]] = {}
    taken: set[Tensor] = set()
    for operation in view.nodes:
        for old, new in changes(view, operation):
            read = [*new, *(t for made in _operations(new, view) for t in made.inputs if t is not None)]
            first = min(order[view.values[tensor]] for tensor in old)
            is_ready = all(order.get(view.values[t], -1) < first for t in read if t in view.values)
            if is_ready and taken.isdisjoint(old) and _fit(old, new):
                planned.setdefault(view.graph.nodes[first], []).append((old, new))
                taken.update(old)
                break
    return planned


def _operations(results: Sequence[Tensor], view: FlowView) -> list[Operation]:
    """The operations that a rule has made, each behind those it needs."""
    found: dict[Operation, None] = {}
    stack = [tensor.op for tensor in results if tensor not in view.values and tensor.op is not None]
    while stack:
        needed = [t.op for t in stack[-1].inputs if t is not None and t not in view.values and t.op is not None]
        waiting = [operation for operation in needed if operation not in found]
        if waiting:
            stack.extend(waiting)
        else:
            found.setdefault(stack.pop())
    return list(found)


def _fit(old: Sequence[Tensor], new: Sequence[Tensor]) -> bool:
    """Whether tensors may stand for others: as many, of the same shapes and types."""
    return len(old) == len(new) and all(
        a.dtype == b.dtype and same_shape(a.shape, b.shape) for a, b in zip(old, new, strict=True)
    )


def _emit(rewriter: GraphRewriter, view: FlowView, node: Node, change: Change) -> None:
    """Put operations before a node, and their results in the place of old ones."""
    old, new = change
    made: dict[Tensor, Value] = {}

    def value(tensor: Tensor | None) -> Value | None:
        if tensor is None or tensor in view.values:
            return None if tensor is None else view.values[tensor]
        if tensor not in made:
            like = Value("constant", TensorType(tensor.dtype, tuple(tensor.shape)))
            made[tensor] = rewriter.constant(tensor.numpy(), like)
        return made[tensor]

    for operation in _operations(new, view):
        inputs = [value(tensor) for tensor in operation.inputs]
        results = rewriter.emit_all(operation.op, inputs, operation.attrs, at=node)
        made.update(zip(operation.outputs, results, strict=True))
    for before, after in zip(old, new, strict=True):
        stands = value(after)
        assert stands is not None
        rewriter.substitute(view.values[before], rewriter.current(stands))


def changes_by(rules: Sequence[SubgraphRewriteRule]) -> Finder:
    """What rewrite rules make of results of an operation."""

    def find(view: FlowView, operation: Operation) -> Iterator[Change]:
        for rule in rules:
            for tensor in operation.outputs:
                found = match_rule(rule, tensor, view.usage)
                new = None if found is None else rule.target(found[1])
                if found is not None and new is not None:
                    yield found[0], new

    return find


def subgraph_changes(view: FlowView, operation: Operation) -> Iterator[Change]:
    """What registered rewrite rules make of results of an operation."""
    return changes_by(registered_rewrite_rules())(view, operation)


def resolve_changes(view: FlowView, operation: Operation) -> Iterator[Change]:
    """What registered resolve rules make of an operation."""
    for rule in rules_for(operation):
        new = rule.resolve(operation)  # type: ignore[arg-type]  # an instance of the rule's class
        if new is not None:
            yield operation.outputs, new
