"""Less work on the way into sub-graphs: constants move inside, what nobody reads is not passed, what no iteration
changes is not carried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.attrs import Attrs
from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Constant, Graph, Node, Value

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class NarrowCaptures:
    """Rebuild `if` and `while` around fewer inputs. Weights that are constants are then packed for the sub-graph."""

    name: ClassVar[str] = "narrow-captures"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        mapping: dict[Value, Value] = {}
        nodes: list[Node] = []
        for original in graph.nodes:
            node = rebuild_node(original, mapping)
            if node.op.name == "while":
                node = _without_steady_values(node, mapping)
            if node.op.name in ("if", "while"):
                node = _narrowed(node, graph.constants)
            nodes.append(node)
        if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return graph
        return replace(graph, nodes=tuple(nodes), outputs=tuple(mapping.get(value, value) for value in graph.outputs))


def _narrowed(node: Node, constants: Mapping[Value, Constant]) -> Node:
    """The node without captures that are constants, or that no sub-graph reads."""
    names = ("then", "otherwise") if node.op.name == "if" else ("body",)
    fixed = 1 if node.op.name == "if" else 2 + node.attrs["carried"]
    shift = fixed if node.op.name == "if" else 1
    graphs: list[Graph] = [node.attrs[name] for name in names]
    kept: list[int] = []
    for number in range(fixed, len(node.inputs)):
        outer = node.inputs[number]
        inner = [graph.inputs[number - shift] for graph in graphs]
        if outer in constants or not any(_is_read(v, g) for v, g in zip(inner, graphs, strict=True)):
            continue
        kept.append(number)
    if len(kept) == len(node.inputs) - fixed:
        return node
    dropped = [number for number in range(fixed, len(node.inputs)) if number not in kept]
    attrs = dict(node.attrs)
    for name, graph in zip(names, graphs, strict=True):
        held = dict(graph.constants)
        for number in dropped:
            outer, inside = node.inputs[number], graph.inputs[number - shift]
            if outer in constants and outer is not None and _is_read(inside, graph):
                held[inside] = constants[outer]
        positions = {number - shift for number in dropped}
        inputs = tuple(value for place, value in enumerate(graph.inputs) if place not in positions)
        attrs[name] = replace(graph, inputs=inputs, constants=held)
    inputs_left = (*node.inputs[:fixed], *(node.inputs[number] for number in kept))
    return replace(node, inputs=inputs_left, attrs=Attrs(attrs))


def _is_read(value: Value, graph: Graph) -> bool:
    return value in graph.outputs or any(value in node.values for node in graph.nodes)


def _without_steady_values(node: Node, mapping: dict[Value, Value]) -> Node:
    """The loop with carried values that every iteration returns as it got them captured instead."""
    body: Graph = node.attrs["body"]
    carried: int = node.attrs["carried"]
    first = 1 if node.attrs["tests"] else 0
    steady = [n for n in range(carried) if _is_steady(node, n, body, first)]
    if not steady:
        return node
    changing = [n for n in range(carried) if n not in steady]
    for number in steady:
        initial = node.inputs[2 + number]
        assert initial is not None
        mapping[node.outputs[number]] = initial

    def picked(items: Sequence[Value | None], start: int) -> tuple[Value | None, ...]:
        """Items of carried values, those that change first, then the rest, then the steady ones."""
        rest = items[start + carried :]
        return (*(items[start + n] for n in changing), *rest, *(items[start + n] for n in steady))

    inputs = tuple(v for v in picked(body.inputs, 1) if v is not None)
    keep = [*range(first), *(first + n for n in changing), *range(first + carried, len(body.outputs))]
    inner = replace(body, inputs=(body.inputs[0], *inputs), outputs=tuple(body.outputs[number] for number in keep))
    types = node.attrs["types"]
    left = [*changing, *range(carried, len(types))]
    attrs = {**node.attrs, "body": inner, "carried": len(changing), "types": tuple(types[number] for number in left)}
    return replace(
        node,
        inputs=(*node.inputs[:2], *picked(node.inputs, 2)),
        outputs=tuple(node.outputs[number] for number in left),
        attrs=Attrs(attrs),
    )


def _is_steady(node: Node, number: int, body: Graph, first: int) -> bool:
    """Whether a carried value stays what it is, and has one type inside and outside."""
    initial, inside = node.inputs[2 + number], body.inputs[1 + number]
    if initial is None or body.outputs[first + number] is not inside:
        return False
    return initial.type == inside.type == node.outputs[number].type
