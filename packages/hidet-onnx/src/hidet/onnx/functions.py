"""Operators by their function bodies: the model's own functions, and those that ONNX defines operators by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet.errors import UnsupportedOp
from hidet.graph import TensorType, Value
from hidet.graph.types import OptionalType, SequenceType, ValueType
from hidet.onnx.attributes import find_schema
from hidet.onnx.loader import canonical_domain
from hidet.onnx.value_types import onnx_number
from onnx import FunctionProto, TypeProto

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """A function body.

    opsets: version by domain that it is written for.
    """

    function: FunctionProto
    opsets: Mapping[str, int]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs in the body."""
        return tuple(self.function.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs in the body."""
        return tuple(self.function.output)

    @property
    def nodes(self) -> tuple[NodeProto, ...]:
        """The body."""
        return tuple(self.function.node)

    def attributes(self, node: NodeProto) -> dict[str, AttributeProto]:
        """What `ref_attr_name` means in the body when `node` calls the function."""
        found = {entry.name: entry for entry in self.function.attribute_proto}
        domain = canonical_domain(node.domain)
        schema = find_schema(domain, node.op_type, self.opsets.get(domain, 0))
        if schema is not None:
            for name, attribute in schema.attributes.items():
                if attribute.default_value.type:
                    found.setdefault(name, attribute.default_value)
        return {**found, **{attribute.name: attribute for attribute in node.attribute}}


def has_function_body(domain: str, operator: str, opset: int) -> bool:
    """Whether ONNX defines an operator by a function body."""
    schema = find_schema(domain, operator, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def expansion_of(
    node: NodeProto,
    own: FunctionProto | None,
    domain: str,
    opset: int,
    types: Sequence[TypeProto | None],
    opsets: Mapping[str, int],
) -> Expansion:
    """The body that a node stands for.

    own: the model's function of that name; None when it has none. types: those of the node's inputs, which some bodies
    depend on; None for an absent one. UnsupportedOp when ONNX defines the operator by no function.
    """
    if own is not None:
        return Expansion(own, {canonical_domain(entry.domain): entry.version for entry in own.opset_import})
    body = _schema_body(node, domain, opset, types)
    if body is None:
        raise UnsupportedOp(f"operator {node.op_type} of domain {domain or 'ai.onnx'!r}, opset {opset}, is not known")
    written = {canonical_domain(entry.domain): entry.version for entry in body.opset_import}
    return Expansion(body, {**opsets, **written})


def _schema_body(node: NodeProto, domain: str, opset: int, types: Sequence[TypeProto | None]) -> FunctionProto | None:
    """The newest body of the operator's version that the model's opset allows."""
    schema = find_schema(domain, node.op_type, opset)
    if schema is None:
        return None
    body = FunctionProto()
    if schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        given = [(entry or TypeProto()).SerializeToString() for entry in types]
        text = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
        if not text:
            return None
        body.ParseFromString(text)
        return body
    if not schema.has_function:
        return None
    version = _newest(schema.function_opset_versions, opset)
    body.ParseFromString(schema.get_function_with_opset_version(version))
    return body


def _newest(versions: Sequence[int], opset: int) -> int:
    fitting = [version for version in versions if version <= opset]
    return max(fitting) if fitting else min(versions)


def type_proto(item: object) -> TypeProto | None:
    """The ONNX type of a value, symbolic extents left open; None for what is no graph value."""
    return _type_proto(item.type) if isinstance(item, Value) else None


def _type_proto(type_: ValueType) -> TypeProto | None:
    made = TypeProto()
    if isinstance(type_, SequenceType | OptionalType):
        inner = _type_proto(type_.element)
        part = made.sequence_type if isinstance(type_, SequenceType) else made.optional_type
        if inner is not None:
            part.elem_type.CopyFrom(inner)
        return made
    if not isinstance(type_, TensorType):
        return None
    made.tensor_type.elem_type = onnx_number(type_.dtype)
    made.tensor_type.shape.SetInParent()
    for extent in type_.shape:
        dim = made.tensor_type.shape.dim.add()
        if isinstance(extent, int):
            dim.dim_value = extent
    return made
