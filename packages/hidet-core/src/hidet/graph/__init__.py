"""The graph IR: typed values, nodes and immutable graphs."""

from hidet.graph.attrs import Attrs
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Constant, Graph, Node, Prepare, Value
from hidet.graph.operator import Attribute, OperatorSpec, View
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType

__all__ = [
    "Attribute",
    "Attrs",
    "Constant",
    "DimType",
    "Graph",
    "GraphBuilder",
    "Node",
    "OperatorSpec",
    "OptionalType",
    "Prepare",
    "SequenceType",
    "TensorType",
    "Value",
    "View",
]
