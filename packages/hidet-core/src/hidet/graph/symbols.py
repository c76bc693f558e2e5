"""Which symbolic sizes the parts of a graph mention."""

from __future__ import annotations

from typing import Any

from hidet.dims import DimExpr, symbols
from hidet.graph.graph import Graph, Node
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType, dims_of


def symbol_names(thing: Any) -> set[str]:
    """Names of the symbols in a size, a type, an attribute value or a sub-graph."""
    if isinstance(thing, tuple):
        return {name for item in thing for name in symbol_names(item)}
    if isinstance(thing, TensorType | DimType | SequenceType | OptionalType):
        return {symbol.name for dim in dims_of(thing) for symbol in symbols(dim)}
    if isinstance(thing, DimExpr):
        return {symbol.name for symbol in symbols(thing)}
    return names_in_graph(thing) if isinstance(thing, Graph) else set()


def names_used(node: Node) -> set[str]:
    """Names of the symbols in a node's attributes and in the types of its inputs and results."""
    values = (*node.values, *node.outputs)
    return symbol_names(tuple(node.attrs.values())) | {name for v in values for name in symbol_names(v.type)}


def names_in_graph(graph: Graph) -> set[str]:
    """Names of all symbols that a graph mentions, those of its sub-graphs included."""
    found = {name for value in (*graph.inputs, *graph.outputs) for name in symbol_names(value.type)}
    return found.union(*(names_used(node) for node in graph.nodes))
