"""Attributes of ONNX nodes as Python values, with the defaults of the operator's schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from hidet.errors import ImportFailed
from hidet.onnx.tensors import DataFolder, tensor_array
from onnx import AttributeProto, NodeProto, defs

if TYPE_CHECKING:
    from onnx import GraphProto


class AttributeReader:
    """Reads attributes in the scope of one node.

    folder: where tensors' external data lie. body: makes a sub-graph callable.
    """

    def __init__(self, folder: DataFolder, body: Callable[[GraphProto], Any]) -> None:
        self._folder = folder
        self._body = body

    def given(self, node: NodeProto) -> dict[str, Any]:
        """The attributes that a node states."""
        return {attribute.name: self.value(attribute) for attribute in node.attribute}

    def complete(self, node: NodeProto, domain: str, opset: int) -> dict[str, Any]:
        """The attributes of a node, with defaults, by the schema of its operator; those without a default are left out.

        ImportFailed for one that the operator does not have, or that it needs and the node lacks.
        """
        given = self.given(node)
        # The first operator sets let exporters say which buffers may be overwritten; it changes no result.
        given.pop("consumed_inputs", None)
        schema = find_schema(domain, node.op_type, opset)
        if schema is None:
            return given
        for attribute in node.attribute:
            expected = schema.attributes.get(attribute.name)
            if expected is not None and int(expected.type) != attribute.type:
                raise ImportFailed(
                    f"attribute {attribute.name!r} of {node.op_type} is of kind {attribute.type}, "
                    f"expected {int(expected.type)} ({expected.type.name})"
                )
        found: dict[str, Any] = {}
        for name, attribute in schema.attributes.items():
            if name in given:
                found[name] = given.pop(name)
            elif attribute.default_value.type:
                found[name] = self.value(attribute.default_value)
            elif attribute.required and name != "consumed_inputs":
                raise ImportFailed(f"{node.op_type} needs attribute {name!r}")
        if given:
            known = ", ".join(sorted(schema.attributes)) or "none"
            raise ImportFailed(f"{node.op_type} has no attribute {next(iter(given))!r}; it has: {known}")
        return found

    def value(self, attribute: AttributeProto) -> Any:
        """A number, text (bytes that are not UTF-8 stay bytes), numpy array, sub-graph, or tuple of those."""
        kind = attribute.type
        simple: dict[int, Callable[[], Any]] = {
            AttributeProto.FLOAT: lambda: attribute.f,
            AttributeProto.INT: lambda: attribute.i,
            AttributeProto.STRING: lambda: _text(attribute.s),
            AttributeProto.FLOATS: lambda: tuple(attribute.floats),
            AttributeProto.INTS: lambda: tuple(attribute.ints),
            AttributeProto.STRINGS: lambda: tuple(map(_text, attribute.strings)),
            AttributeProto.TENSOR: lambda: tensor_array(attribute.t, self._folder),
            AttributeProto.TENSORS: lambda: tuple(tensor_array(tensor, self._folder) for tensor in attribute.tensors),
            AttributeProto.GRAPH: lambda: self._body(attribute.g),
            AttributeProto.GRAPHS: lambda: tuple(map(self._body, attribute.graphs)),
            AttributeProto.SPARSE_TENSOR: lambda: attribute.sparse_tensor,
            AttributeProto.TYPE_PROTO: lambda: attribute.tp,
        }
        if kind not in simple:
            raise ImportFailed(f"attribute {attribute.name!r} is of kind {kind}, which is not known")
        return simple[kind]()


def with_bound_attributes(node: NodeProto, bound: Mapping[str, AttributeProto]) -> NodeProto:
    """A node of a function body with the attributes of the function in place of references to them.

    One that the function was not given, and has no default for, is left out. The same node when it has no reference.
    """
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    made = NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            made.attribute.append(attribute)
        elif attribute.ref_attr_name in bound:
            made.attribute.append(bound[attribute.ref_attr_name])
            made.attribute[-1].name = attribute.name
    return made


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def require_inputs(node: NodeProto, domain: str, opset: int) -> None:
    """ImportFailed when a node has more inputs than its operator takes, or lacks one that it needs."""
    schema = find_schema(domain, node.op_type, opset)
    if schema is None:
        return
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise ImportFailed(
            f"{node.op_type} has {len(node.input)} inputs, expected {schema.min_input} to {schema.max_input}"
        )
    for name, formal in zip(node.input, schema.inputs, strict=False):
        if not name and formal.option == formal.option.Single:
            raise ImportFailed(f"{node.op_type} needs its input {formal.name!r}")


@cache
def find_schema(domain: str, operator: str, opset: int) -> Any | None:
    """The installed onnx package's OpSchema of an operator as of an opset; None where it has none."""
    try:
        return defs.get_schema(operator, opset, domain)
    except defs.SchemaError:
        return None
