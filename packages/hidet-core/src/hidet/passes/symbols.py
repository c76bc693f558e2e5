"""Which nodes depend on sizes that are known at run time alone."""

from __future__ import annotations

from hidet.dims import DimExpr
from hidet.graph.graph import Node
from hidet.graph.types import TensorType


def depends_on_sizes(node: Node) -> bool:
    """Whether a symbolic size is among a node's attributes, or is an extent or stride of a result."""
    for value in node.outputs:
        if _has_symbols(value.type):
            return True
    return any(map(_has_symbols, node.attrs.values()))


def _has_symbols(thing: object) -> bool:
    if isinstance(thing, tuple):
        return any(map(_has_symbols, thing))
    if isinstance(thing, TensorType):
        return thing.is_symbolic
    return isinstance(thing, DimExpr)
