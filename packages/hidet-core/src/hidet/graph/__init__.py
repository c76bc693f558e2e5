"""The graph IR: typed values, nodes and immutable graphs."""

from importlib import import_module
from pkgutil import extend_path

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

# Wheels may continue this package in folders of their own.
__path__ = extend_path(__path__, __name__)

_FLOW = ("FlowGraph", "optimize", "trace_from")


def __getattr__(name: str) -> object:
    # What users call lies above the compiler; see `hidet.api.flow`.
    if name in _FLOW:
        return getattr(import_module("hidet.api.flow"), name)
    return import_module("hidet.plugins.attributes").find("hidet.graph", name)
