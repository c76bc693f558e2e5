"""Which symbolic sizes the parts of a graph mention."""

from __future__ import annotations

from typing import Any

from hidet.dims import DimExpr, Symbol, symbols
from hidet.dtypes import DType
from hidet.graph.graph import Graph, Node
from hidet.graph.types import DimType, TensorType, dims_of


def symbols_of(thing: Any) -> set[Symbol]:
    """The symbols in a size, a type, an attribute value or a sub-graph, those of its sub-graphs included.

    Those in types of sequences and optional values are none: they say that an extent is open, and have no value.
    """
    if isinstance(thing, tuple):
        return {symbol for item in thing for symbol in symbols_of(item)}
    if isinstance(thing, TensorType | DimType):
        return {symbol for dim in dims_of(thing) for symbol in symbols(dim)}
    if isinstance(thing, DimExpr):
        return set(symbols(thing))
    if not isinstance(thing, Graph):
        return set()
    values = (*thing.inputs, *thing.outputs)
    return symbols_of(tuple(value.type for value in values)).union(*map(symbols_used, thing.nodes))


def symbols_used(node: Node) -> set[Symbol]:
    """The symbols in a node's attributes and in the types of its inputs and results."""
    types = (value.type for value in (*node.values, *node.outputs))
    return symbols_of((*node.attrs.values(), *types))


def symbol_names(thing: Any) -> set[str]:
    """Names of what `symbols_of` finds."""
    return {symbol.name for symbol in symbols_of(thing)}


def names_used(node: Node) -> set[str]:
    """Names of what `symbols_used` finds."""
    return {symbol.name for symbol in symbols_used(node)}


def depends_on_sizes(node: Node) -> bool:
    """Whether a symbolic size is among a node's attributes, or is an extent or stride of a result."""
    things = [*node.attrs.values(), *[value.type for value in node.outputs]]
    return any(_has_symbols(thing) for thing in things if type(thing) not in _NUMBERS)


_NUMBERS = frozenset({bool, int, float, str, type(None), DType})


def _has_symbols(thing: object) -> bool:
    if isinstance(thing, tuple):
        return any(_has_symbols(item) for item in thing if type(item) not in _NUMBERS)
    if isinstance(thing, TensorType):
        return thing.is_symbolic
    return isinstance(thing, DimExpr)
