"""The last step of an import: which inputs and nodes are needed, and the types that outputs must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hidet.graph import DimType, Graph, TensorType, Value
from hidet.graph.symbols import symbols_of, symbols_used
from hidet.passes.graph.eliminate_dead import without_dead


def needed_inputs(graph: Graph, mutated: Sequence[Value], last: Sequence[Value]) -> list[Value]:
    """The inputs that nodes or outputs read, those that are overwritten, sizes, and what alone tells a size.
    Those in `last` come at the end."""
    needed = {value for node in graph.nodes for value in node.values} | set(graph.outputs) | set(mutated)
    needed.update(value for value in graph.inputs if isinstance(value.type, DimType))
    spare = [value for value in graph.inputs if value not in needed and symbols_of(value.type)]
    if spare:
        told = symbols_of(tuple(value.type for value in graph.inputs if value in needed))
        untold = set().union(*map(symbols_used, graph.nodes)) - told
        for value in spare:
            if untold & symbols_of(value.type):
                needed.add(value)
                untold -= symbols_of(value.type)
    return sorted((value for value in graph.inputs if value in needed), key=lambda value: value in last)


def assemble(
    graph: Graph, types: Mapping[Value, TensorType], mutated: Sequence[tuple[Value, int]], last: Sequence[Value] = ()
) -> Graph:
    """`graph` without what nobody needs.

    types: other types, of the same dtype and shape, for values that nodes compute. mutated: pairs of an input and the
    number of the output that overwrites it. last: inputs that come after all others.
    """
    kept = without_dead(graph)
    inputs = needed_inputs(kept, [value for value, _ in mutated], last)
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
