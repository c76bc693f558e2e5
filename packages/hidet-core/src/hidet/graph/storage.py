"""Which values lie in the memory of others: results of view operators that strides can express."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hidet.dims import Dim
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A value lies in the memory of `root`, `offset` elements after its start, with the strides of `type`.

    A value with memory of its own is its own root, at offset 0.
    """

    root: Value
    offset: Dim
    type: TensorType


def place_of_view(node: Node, places: Mapping[Value, Place]) -> Place | None:
    """Where the result of a view operator lies, by where its input does; None where only a copy can make it."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None and node.op.view is not None
    base = places[source]
    view = node.op.view(base.type, node.attrs, result.tensor)
    if view is None:
        return None
    return Place(base.root, base.offset + view.offset, result.tensor.with_strides(view.strides))


def places(graph: Graph) -> dict[Value, Place]:
    """The place of every tensor of the graph."""
    found: dict[Value, Place] = {}
    prepared = () if graph.prepare is None else graph.prepare.results
    for value in (*graph.inputs, *graph.constants, *prepared):
        add_own(value, found)
    for node in graph.nodes:
        add_node(node, found)
    return found


def add_own(value: Value, found: dict[Value, Place]) -> None:
    """Note that `value`, if it is a tensor, has memory of its own."""
    if isinstance(value.type, TensorType):
        found[value] = Place(value, 0, value.type)


def add_node(node: Node, found: dict[Value, Place]) -> None:
    """Note the places of a node's results, those of its inputs being known."""
    place = place_of_view(node, found) if node.op.kind == "view" else None
    if place is not None:
        found[node.outputs[0]] = place
        return
    for value in node.outputs:
        add_own(value, found)
