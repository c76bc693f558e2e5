"""Which values lie in the memory of others: results of view operators that strides can express."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.dims import Dim
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.operator import FOREIGN_KINDS
from hidet.graph.types import TensorType
from hidet.records import record


@record
class Place:
    """A value lies in the memory of `root`, `offset` elements after its start, with the strides of `type`.

    A value with memory of its own is its own root, at offset 0.
    """

    root: Value
    offset: Dim
    type: TensorType


Views = Mapping[Value, Place]
"""The places of values that lie in the memory of others; all other values have memory of their own."""


def place_of(value: Value, views: Views) -> Place:
    """Where a tensor lies."""
    return views.get(value) or Place(value, 0, value.tensor)


def layout_of(value: Value, views: Views) -> TensorType:
    """The type of a tensor with its final strides."""
    view = views.get(value)
    return value.tensor if view is None else view.type


def place_of_view(node: Node, views: Views) -> Place | None:
    """Where the result of a view operator lies, by where its input does; None where only a copy can make it."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None and node.op.view is not None
    base = place_of(source, views)
    view = node.op.view(base.type, node.attrs, result.tensor)
    if view is None:
        return None
    return Place(base.root, base.offset + view.offset, result.tensor.with_strides(view.strides))


def find_views(graph: Graph) -> dict[Value, Place]:
    """The results of views in a graph, and where they lie."""
    found: dict[Value, Place] = {}
    for node in graph.nodes:
        if node.op.kind == "view":
            add_view(node, found)
    return found


def add_view(node: Node, found: dict[Value, Place]) -> None:
    """Note the place of a view's result, those of views before it being known; other nodes make no views."""
    if node.op.kind == "view":
        place = place_of_view(node, found)
        if place is not None:
            found[node.outputs[0]] = place


def handed_out(graph: Graph) -> set[Value]:
    """Values that outputs or foreign operators see, directly or as the memory behind a view."""
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        kind = node.op.kind
        if kind in FOREIGN_KINDS or (kind == "view" and node.outputs[0] in found):
            found.update(node.values)
    return found
