"""The graph IR: an immutable, topologically ordered tuple of nodes over typed values.

Graph(name, inputs, nodes, outputs, constants, parameters, mutates, prepare)
Node(op, inputs, attrs, outputs, loc)
Value(name, type)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hidet.graph.attrs import Attrs
from hidet.graph.operator import FOREIGN_KINDS, OperatorSpec
from hidet.graph.types import TensorType, ValueType
from hidet.notebook import Shown
from hidet.records import record

if TYPE_CHECKING:
    from hidet.compute.definition import Definition
    from hidet.loc import Loc


@record
class Value:
    """One result of a node, a graph input or a constant; identity is the object, `name` is for people."""

    name: str
    type: ValueType

    @property
    def tensor(self) -> TensorType:
        """The type of a tensor value; TypeError for other values."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"value %{self.name} is a {self.type}, not a tensor")
        return self.type

    def __repr__(self) -> str:
        return f"%{self.name}"


@record
class Node:
    """One operator application; absent optional inputs are None. `definition` is the operator's, on these inputs."""

    op: OperatorSpec
    inputs: tuple[Value | None, ...]
    attrs: Attrs
    outputs: tuple[Value, ...]
    loc: Loc | None = None
    definition: Definition | None = field(default=None, repr=False)

    @property
    def values(self) -> tuple[Value, ...]:
        """The inputs that are present."""
        given = self.inputs
        return tuple([v for v in given if v is not None]) if None in given else given  # type: ignore[return-value]  # none is None


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Data of a constant value: a numpy array, or any object with `__array__`, kept where it is (never copied)."""

    data: Any

    def numpy(self) -> Any:
        """The data as a numpy array."""
        import numpy

        return numpy.asarray(self.data)


@dataclass(frozen=True, slots=True, eq=False)
class Prepare:
    """Work on constants alone, done once and for all.

    graph: has no inputs. results: values of the main graph (neither inputs nor constants of it) that its outputs
    provide, in order.
    """

    graph: Graph
    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Graph(Shown):
    """A program on tensors.

    inputs: what a caller passes, in order. parameters: those inputs that are weights, which are mostly the same tensors
    as in the call before, with contents that may have changed. outputs: what a caller gets. constants: data of values
    that no node computes. mutates: pairs (input, output): the caller's input number is overwritten by that output.
    prepare: see `Prepare`; None when there is nothing.
    """

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    constants: Mapping[Value, Constant] = field(default_factory=dict)
    parameters: frozenset[Value] = frozenset()
    mutates: tuple[tuple[int, int], ...] = ()
    prepare: Prepare | None = None
    _producers: Mapping[Value, Node] | None = field(default=None, init=False, repr=False)  # kept by `producers`
    _readers: Mapping[Value, Sequence[Node]] | None = field(default=None, init=False, repr=False)  # kept by `readers`
    _foreign: frozenset[Node] | None = field(default=None, init=False, repr=False)  # kept by `foreign_nodes`

    def __str__(self) -> str:
        from hidet.graph.printer import print_graph

        return print_graph(self)

    def with_nodes(self, nodes: tuple[Node, ...], outputs: tuple[Value, ...] | None = None) -> Graph:
        """The same signature around other nodes."""
        return replace(self, nodes=nodes, outputs=self.outputs if outputs is None else outputs)


def producers(graph: Graph) -> Mapping[Value, Node]:
    """The node that computes each value. Found once a graph, for all passes that ask."""
    if graph._producers is None:
        object.__setattr__(graph, "_producers", {value: node for node in graph.nodes for value in node.outputs})
    assert graph._producers is not None
    return graph._producers


def readers(graph: Graph) -> Mapping[Value, Sequence[Node]]:
    """The nodes that read each value, in order; a node that reads a value twice appears once. Found once a graph."""
    if graph._readers is None:
        object.__setattr__(graph, "_readers", _find_readers(graph))
    assert graph._readers is not None
    return graph._readers


def foreign_nodes(graph: Graph) -> frozenset[Node]:
    """The nodes that are steps of the host program (`operator.is_foreign`). Found once a graph."""
    if graph._foreign is None:
        found = frozenset([node for node in graph.nodes if node.op.kind in FOREIGN_KINDS])
        object.__setattr__(graph, "_foreign", found)
    assert graph._foreign is not None
    return graph._foreign


def stored_values(graph: Graph) -> frozenset[Value]:
    """Parameters, constants and what is prepared of them, but for what the graph overwrites: no step of a call writes
    them."""
    written = {graph.inputs[number] for number, _ in graph.mutates}
    prepared = () if graph.prepare is None else graph.prepare.results
    return frozenset((*graph.parameters, *graph.constants, *prepared)) - written


def _find_readers(graph: Graph) -> dict[Value, list[Node]]:
    table: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.values:
            known = table.get(value)
            if known is None:
                table[value] = [node]
            elif known[-1] is not node:
                known.append(node)
    return table


def subgraphs_of(node: Node) -> Iterator[Graph]:
    """The graphs among a node's attributes, in order."""
    for value in node.attrs.values():
        if isinstance(value, _MAY_HOLD_GRAPHS):
            yield from _graphs_in(value)


_MAY_HOLD_GRAPHS = (Graph, tuple)


def _graphs_in(value: Any) -> Iterator[Graph]:
    if isinstance(value, Graph):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _graphs_in(item)
