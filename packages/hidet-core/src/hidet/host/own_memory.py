"""Insert copies where an output would alias memory owned by a step of the host program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.builder import GraphBuilder
from hidet.graph.control import makes_results
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.operator import OperatorSpec
from hidet.graph.storage import Views, find_views, layout_of, place_of
from hidet.graph.types import TensorType, is_host_value

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class OwnMemory:
    """Copies

    - carried values of loops that do not lie row-major: every iteration must find its values alike;
    - outputs that are views of what a step makes, or that overwrite an input with it;
    - for a sub-graph (is_inner), outputs that are views or do not lie row-major, because whoever runs it knows shapes
      alone, and those that are another output, because a loop puts each where it belongs.
    """

    name: ClassVar[str] = "own-memory"
    is_inner: bool

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The graph with those copies."""
        made = _with_own_memory(graph, ctx.registry.operators, self.is_inner)
        return graph if made.outputs == graph.outputs and made.nodes == graph.nodes else made


def _with_own_memory(graph: Graph, operators: Mapping[str, OperatorSpec], is_inner: bool) -> Graph:
    made = {value for node in graph.nodes if makes_results(node) for value in node.outputs}
    if not made and not is_inner:
        return graph
    views = find_views(graph)
    builder = GraphBuilder(operators, graph.name)
    for node in graph.nodes:
        builder.append(_with_plain_state(node, views, builder) if node.op.name == "while" else node)
    mutating = {output for _, output in graph.mutates}
    outputs = list(graph.outputs)
    seen: set[Value] = set()
    for number, value in enumerate(outputs):
        if not isinstance(value.type, TensorType) or is_host_value(value.type):
            continue
        place = place_of(value, views)
        is_view = place.root is not value
        needs_copy = place.root in made and (is_view or number in mutating)
        is_again = place.root in seen
        seen.add(place.root)
        if needs_copy or (is_inner and (is_view or is_again or not place.type.is_contiguous)):
            type_ = value.type.with_strides(None) if is_inner else value.type
            (outputs[number],) = builder.emit_all("copy", [value], {}, [type_])
    return replace(graph, nodes=builder.nodes, outputs=tuple(outputs))


def _with_plain_state(node: Node, views: Views, builder: GraphBuilder) -> Node:
    inputs = list(node.inputs)
    for number in range(2, 2 + node.attrs["carried"]):
        value = inputs[number]
        if value is not None and isinstance(value.type, TensorType) and not layout_of(value, views).is_contiguous:
            type_ = value.tensor.with_strides(None)
            (inputs[number],) = builder.emit_all("copy", [value], {}, [type_])
    return node if tuple(inputs) == node.inputs else replace(node, inputs=tuple(inputs))
