"""Closing a sub-graph for compilation: what it takes from the graph around it becomes arguments of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hidet.dims import Dim, as_dim
from hidet.graph.builder import rebuild_node
from hidet.graph.control import local_symbols
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.symbols import symbol_names, symbols_of
from hidet.graph.types import DimType, TensorType
from hidet.host.symbol_sources import symbol_sources


def close_subgraph(node: Node, graph: Graph, types: Mapping[Value, TensorType]) -> tuple[Graph, tuple[Dim, ...]]:
    """A sub-graph of a control node with the layout of its captures, and one more input for each size of the graph
    around it that its other inputs do not tell; and these sizes.

    types: the final types of the values around it.
    """
    graph = _laid_out(graph, _given(node), types)
    told = symbol_sources([value.type for value in graph.inputs]).keys() | local_symbols(graph)
    wanted = symbol_names(graph) - told
    if not wanted:
        return graph, ()
    found = {symbol.name: symbol for symbol in symbols_of(graph)}
    sizes = tuple(as_dim(found[name]) for name in sorted(wanted))
    extra = tuple(Value(str(size), DimType(size)) for size in sizes)
    return replace(graph, inputs=(*graph.inputs, *extra)), sizes


def _given(node: Node) -> Sequence[Value | None]:
    """The outer value that each input of a sub-graph is, None where it is not the same in all iterations."""
    if node.op.name != "while":
        return node.inputs[1:]
    carried = node.attrs["carried"]
    return [None] * (1 + carried) + list(node.inputs[2 + carried :])


def _laid_out(graph: Graph, given: Sequence[Value | None], types: Mapping[Value, TensorType]) -> Graph:
    mapping: dict[Value, Value] = {}
    for inner, outer in zip(graph.inputs, given, strict=True):
        if outer is None or not isinstance(inner.type, TensorType) or outer not in types:
            continue
        if not types[outer].is_contiguous:
            mapping[inner] = Value(inner.name, inner.type.with_strides(types[outer].element_strides))
    if not mapping:
        return graph
    return replace(
        graph,
        inputs=tuple(mapping.get(value, value) for value in graph.inputs),
        nodes=tuple(rebuild_node(node, mapping) for node in graph.nodes),
        outputs=tuple(mapping.get(value, value) for value in graph.outputs),
    )
