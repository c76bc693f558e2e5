"""Common sub-expression elimination: nodes with equal operator, inputs and attributes are computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Constant, Graph, Node, Value, foreign_nodes

if TYPE_CHECKING:
    from hidet.context import CompileContext

# Constants up to this size are compared by content; it is what operators have beside tensors: numbers, short tables.
_COMPARED_BYTES = 1024


@dataclass(frozen=True)
class CommonSubexpr:
    """Value numbering in graph order. Random, foreign and effectful nodes are left alone."""

    name: ClassVar[str] = "common-subexpr"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Later duplicates are replaced by the first occurrence; output types must agree, strides included.

        Values whose memory is returned, as they are or through views, are computed apart: the caller may write to one.
        """
        outputs, foreign, returned = set(graph.outputs), foreign_nodes(graph), _returned_memory(graph)
        mapping = _equal_constants(graph, outputs)
        # Most nodes read something that no other node with their operator reads: attributes need not be compared.
        seen: dict[tuple[object, ...], list[Node]] = {}
        kept: list[Node] = []
        for original in graph.nodes:
            node = rebuild_node(original, mapping)
            if original in foreign or node.op.is_random or node.op.has_effect:
                kept.append(node)
                continue
            alike = seen.setdefault((node.op.name, node.inputs), [])
            first = next((other for other in alike if _is_equal(node, other)), None)
            if first is None:
                alike.append(node)
            is_returned = not returned.isdisjoint(node.outputs)
            if (
                first is None
                or not outputs.isdisjoint(node.outputs)
                or (is_returned and not returned.isdisjoint(first.outputs))
            ):
                kept.append(node)
                continue
            mapping.update(zip(node.outputs, first.outputs, strict=True))
            if is_returned:
                returned.update(first.outputs)
        if not mapping:
            return graph
        constants = {value: data for value, data in graph.constants.items() if value not in mapping}
        return replace(graph, nodes=tuple(kept), constants=constants)


def _returned_memory(graph: Graph) -> set[Value]:
    """The values in whose memory outputs lie."""
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op.kind == "view" and node.inputs[0] is not None and not found.isdisjoint(node.outputs):
            found.difference_update(node.outputs)
            found.add(node.inputs[0])
    return found


def _is_equal(a: Node, b: Node) -> bool:
    """Whether nodes with one operator and equal inputs compute the same."""
    return a.attrs == b.attrs and [v.type for v in a.outputs] == [v.type for v in b.outputs]


def _equal_constants(graph: Graph, outputs: set[Value]) -> dict[Value, Value]:
    """Small constants that repeat another one, bit by bit."""
    seen: dict[Hashable, Value] = {}
    mapping: dict[Value, Value] = {}
    for value, constant in graph.constants.items():
        first = seen.setdefault((value.type, _content(constant)), value)
        if first is not value and value not in outputs:
            mapping[value] = first
    return mapping


def _content(constant: Constant) -> Hashable:
    if getattr(constant.data, "nbytes", _COMPARED_BYTES + 1) > _COMPARED_BYTES:
        return id(constant.data)
    data: bytes = constant.numpy().tobytes()
    return data
