"""Which nodes depend on sizes that are known at run time alone."""

from __future__ import annotations

from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.graph.graph import Node
from hidet.graph.types import TensorType


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
