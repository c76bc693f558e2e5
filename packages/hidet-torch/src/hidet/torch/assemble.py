"""The last step of an import: which inputs and nodes are needed, and the types that outputs must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hidet.graph import DimType, Graph, TensorType, Value
from hidet.passes.graph.eliminate_dead import without_dead


def needed_inputs(graph: Graph, mutated: Sequence[Value]) -> list[Value]:
    """The inputs that nodes or outputs read, those that are overwritten, and sizes."""
    read = {value for node in graph.nodes for value in node.values} | set(graph.outputs) | set(mutated)
    return [value for value in graph.inputs if value in read or isinstance(value.type, DimType)]


def assemble(graph: Graph, types: Mapping[Value, TensorType], mutated: Sequence[tuple[Value, int]]) -> Graph:
    """`graph` without what nobody needs.

    types: other types, of the same dtype and shape, for values that nodes compute. mutated: pairs of an input and the
    number of the output that overwrites it.
    """
    kept = without_dead(graph)
    inputs = needed_inputs(kept, [value for value, _ in mutated])
    renewed = {value: Value(value.name, type_) for value, type_ in types.items()}

    def current(value: Value | None) -> Value | None:
        return renewed.get(value, value) if value is not None else None

    nodes = tuple(
        replace(
            node,
            inputs=tuple(map(current, node.inputs)),
            outputs=tuple(renewed.get(value, value) for value in node.outputs),
        )
        if any(value in renewed for value in (*node.values, *node.outputs))
        else node
        for node in kept.nodes
    )
    used = {value for node in nodes for value in node.values}
    return replace(
        kept,
        inputs=tuple(inputs),
        nodes=nodes,
        outputs=tuple(renewed.get(value, value) for value in kept.outputs),
        constants={value: data for value, data in kept.constants.items() if value in used},
        parameters=frozenset(value for value in kept.parameters if value in inputs),
        mutates=tuple((inputs.index(value), output) for value, output in mutated),
    )
