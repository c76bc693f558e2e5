"""Graphs for the viewer Netron: JSON as protobuf writes ONNX models, which it opens. Operators keep their names."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import IO, Any

from hidet.api.flow import FlowGraph
from hidet.api.flow.text import operator_name
from hidet.dtypes import DType
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType

_TYPES = {
    **dict(zip(("float32", "uint8", "int8", "uint16", "int16", "int32", "int64"), range(1, 8), strict=True)),
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
}
"""ONNX's numbers of element types (TensorProto.DataType); 0 for others."""


def dump(flow_graph: FlowGraph | Graph, fp: IO[str]) -> None:
    """Write a graph into an open file, without the elements of its constants."""
    json.dump(netron_model(flow_graph), fp, indent=1)


def netron_model(flow_graph: FlowGraph | Graph) -> dict[str, Any]:
    """A graph as a model of ONNX, of operators of the domain "hidet"."""
    graph = flow_graph.graph if isinstance(flow_graph, FlowGraph) else flow_graph
    made = [value for node in graph.nodes for value in node.outputs]
    return {
        "irVersion": "8",
        "producerName": "hidet",
        "opsetImport": [{"domain": "hidet", "version": "1"}],
        "graph": {
            "name": graph.name,
            "node": [_node(number, node) for number, node in enumerate(graph.nodes)],
            "input": [_declared(value) for value in graph.inputs],
            "output": [_declared(value) for value in graph.outputs],
            "valueInfo": [_declared(value) for value in made],
            "initializer": [_initializer(value) for value in graph.constants],
        },
    }


def _node(number: int, node: Node) -> dict[str, Any]:
    told = [_attribute(name, value) for name, value in node.attrs.items() if value is not None]
    return {
        "name": f"{node.op.name}_{number}",
        "opType": operator_name(node.op.name),
        "domain": "hidet",
        "input": ["" if value is None else value.name for value in node.inputs],
        "output": [value.name for value in node.outputs],
        "attribute": told,
        "docString": "" if node.loc is None else str(node.loc),
    }


def _attribute(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool | int):
        return {"name": name, "type": "INT", "i": str(int(value))}
    if isinstance(value, float):
        return {"name": name, "type": "FLOAT", "f": value if value - value == 0 else str(value)}
    if isinstance(value, Sequence) and value and all(type(item) is int for item in value):
        return {"name": name, "type": "INTS", "ints": [str(item) for item in value]}
    text = value.name if isinstance(value, DType | Graph) else str(value)
    return {"name": name, "type": "STRING", "s": base64.b64encode(text.encode()).decode()}


def _declared(value: Value) -> dict[str, Any]:
    type_ = value.type
    if not isinstance(type_, TensorType):
        return {"name": value.name}
    shape = [{"dimValue": str(dim)} if isinstance(dim, int) else {"dimParam": str(dim)} for dim in type_.shape]
    tensor = {"elemType": _TYPES.get(type_.dtype.name, 0), "shape": {"dim": shape}}
    return {"name": value.name, "type": {"tensorType": tensor}}


def _initializer(value: Value) -> dict[str, Any]:
    type_ = value.tensor
    return {"name": value.name, "dataType": _TYPES.get(type_.dtype.name, 0), "dims": [str(dim) for dim in type_.shape]}
