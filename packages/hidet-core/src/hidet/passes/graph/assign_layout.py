"""Layout assignment: which memory order each tensor gets. Logical shapes never change.

Convolutions want their channels innermost, because a pixel's channels are then one vector. Their results and whatever
is computed element by element, pooled or normalised from them keep that order, also through views; graph inputs and
outputs keep theirs. Which operators want or keep it is a fact of theirs (`OperatorSpec.layout`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.dims import Dim
from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Place, Views, add_view
from hidet.graph.types import TensorType, strides_of_order

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class AssignLayout:
    """Give channels-last strides (N, space, C in memory) to rank 3 to 5 values around convolutions."""

    name: ClassVar[str] = "assign-layout"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order; a node whose output type changes is rebuilt around a new value."""
        if not ctx.target.prefers_channels_last or not any(n.op.layout == "channels-last" for n in graph.nodes):
            return graph
        fixed = set(graph.outputs)
        mapping: dict[Value, Value] = {}
        # Tensors of a network have few types: values that had one keep to one.
        moved: dict[TensorType, TensorType] = {}
        views: dict[Value, Place] = {}
        sources = (*graph.inputs, *graph.constants, *(() if graph.prepare is None else graph.prepare.results))
        is_last = functools.cache(is_channels_last)
        last = {value for value, type_ in _strided(sources, views) if is_last(type_)}
        nodes: list[Node] = []
        for node in graph.nodes:
            new = rebuild_node(node, mapping)
            if _wants_channels_last(new, last) and not fixed.issuperset(node.outputs):
                outputs = tuple([v if v in fixed else _channels_last(v, moved) for v in node.outputs])
                mapping.update((a, b) for a, b in zip(node.outputs, outputs, strict=True) if a is not b)
                new = Node(node.op, new.inputs, node.attrs, outputs, node.loc, node.definition)
            nodes.append(new)
            if new.op.kind == "view":
                add_view(new, views)
            last.update([value for value, type_ in _strided(new.outputs, views) if is_last(type_)])
        return graph.with_nodes(tuple(nodes)) if mapping else graph


def _wants_channels_last(node: Node, last: Set[Value]) -> bool:
    """Whether the result of a node is to lie channels-last. last: values that do."""
    prefers = node.op.layout == "channels-last"
    result = node.outputs[0].type
    if (not prefers and last.isdisjoint(node.inputs)) or not isinstance(result, TensorType):
        return False
    if not 3 <= result.rank <= 5 or node.op.kind == "view":
        return False
    if prefers:
        return True
    if node.op.layout == "follows":
        return node.inputs[0] in last
    definition = node.definition
    if node.op.kind != "compute" or definition is None or not definition.is_injective:
        return False
    return any(v in last and v.tensor.shape == result.shape for v in node.values)


def _strided(values: Sequence[Value], views: Views) -> list[tuple[Value, TensorType]]:
    """The tensors among some values whose strides are given, with the types of the places where they lie."""
    types = [(value, views[value].type if value in views else value.type) for value in values]
    return [(value, type_) for value, type_ in types if isinstance(type_, TensorType) and type_.strides is not None]


def is_channels_last(type_: TensorType) -> bool:
    """Whether a tensor lies in memory with its axis 1 innermost and is not row-major as well."""
    return (
        type_.strides is not None
        and type_.rank >= 3
        and type_.strides == channels_last_strides(type_)
        and not type_.is_contiguous
    )


def channels_last_strides(type_: TensorType) -> tuple[Dim, ...]:
    """Strides with axis 1 innermost."""
    return strides_of_order(type_.shape, (0, *range(2, type_.rank), 1))


def _channels_last(value: Value, moved: dict[TensorType, TensorType]) -> Value:
    """The value with channels-last strides; the same one if it has them. moved: types so far, by what they were."""
    type_ = moved.get(value.tensor)
    if type_ is None:
        type_ = moved[value.tensor] = value.tensor.with_strides(channels_last_strides(value.tensor))
    return value if type_.strides == value.tensor.strides else Value(value.name, type_)
