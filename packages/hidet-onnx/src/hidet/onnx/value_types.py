"""Element types, tensor types and sizes of ONNX in terms of core's: `TensorProto.DataType` and `TypeProto`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dims import Dim, symbol
from hidet.dtypes import DType
from hidet.errors import ImportFailed, ShapeNeeded
from hidet.frontend import SizeNames, identifier
from hidet.graph import DimType, TensorType
from hidet.graph.types import OptionalType, SequenceType, ValueType

if TYPE_CHECKING:
    from onnx import TypeProto

# Numbers of TensorProto.DataType.
_DTYPES: dict[int, DType] = {
    1: dtypes.f32,
    2: dtypes.u8,
    3: dtypes.i8,
    4: dtypes.u16,
    5: dtypes.i16,
    6: dtypes.i32,
    7: dtypes.i64,
    8: dtypes.string,
    9: dtypes.boolean,
    10: dtypes.f16,
    11: dtypes.f64,
    12: dtypes.u32,
    13: dtypes.u64,
    14: dtypes.c64,
    15: dtypes.c128,
    16: dtypes.bf16,
    17: dtypes.dtype("float8_e4m3fn"),
    18: dtypes.dtype("float8_e4m3fnuz"),
    19: dtypes.dtype("float8_e5m2"),
    20: dtypes.dtype("float8_e5m2fnuz"),
    21: dtypes.dtype("uint4"),
    22: dtypes.dtype("int4"),
    23: dtypes.dtype("float4_e2m1fn"),
    24: dtypes.dtype("float8_e8m0fnu"),
    25: dtypes.dtype("uint2"),
    26: dtypes.dtype("int2"),
}
_NUMBERS = {entry: number for number, entry in _DTYPES.items()}

MAX_RANK = 64
"""numpy arrays have at most 64 axes."""


def dtype_of(number: int) -> DType:
    """The element type of a `TensorProto.DataType`. ImportFailed for an unknown number."""
    found = _DTYPES.get(number)
    if found is None:
        raise ImportFailed(f"element type number {number} is unknown: expected a TensorProto.DataType")
    return found


def onnx_number(dtype: DType) -> int:
    """The `TensorProto.DataType` of an element type. ImportFailed for a type that ONNX lacks."""
    found = _NUMBERS.get(dtype)
    if found is None:
        raise ImportFailed(f"ONNX has no element type {dtype.name}")
    return found


@dataclass(frozen=True, slots=True)
class EmptySequence:
    """A sequence without values, of which nothing says how many axes its values have."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Absent:
    """An optional value that is not there."""


def value_type(
    proto: TypeProto, name: str, sizes: SizeNames, shape: Sequence[Dim] | ValueType | None = None
) -> ValueType:
    """The type of a graph input.

    shape: extents that take the place of the declared ones, those of elements for a sequence; or the type itself; None
    keeps what is declared. ImportFailed for maps, sparse tensors and a tensor whose rank is neither declared nor given.
    """
    kind = proto.WhichOneof("value")
    if isinstance(shape, TensorType | SequenceType | OptionalType | DimType):
        return shape
    if kind == "sequence_type":
        return SequenceType(value_type(proto.sequence_type.elem_type, name, sizes, shape))
    if kind == "optional_type":
        return OptionalType(value_type(proto.optional_type.elem_type, name, sizes, shape))
    if kind != "tensor_type":
        raise ImportFailed(
            f"input {name!r} is a {kind or 'value without a type'}: expected a tensor, a sequence or an optional"
        )
    tensor = proto.tensor_type
    dtype = dtype_of(tensor.elem_type)
    if shape is not None:
        return TensorType(dtype, tuple(shape))
    if not tensor.HasField("shape"):
        raise shape_needed(name)
    if len(tensor.shape.dim) > MAX_RANK:
        raise ImportFailed(f"input {name!r} has {len(tensor.shape.dim)} axes: expected at most {MAX_RANK}")
    extents: list[Dim] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            extents.append(dim.dim_value)
        elif any(map(str.isalpha, dim.dim_param)):
            extents.append(sizes.named(dim.dim_param))
        else:
            # Exporters write "?", "-1" and the like for what they do not know: a name without a letter is none.
            extents.append(sizes.fresh(f"{name}_{axis}"))
    return TensorType(dtype, tuple(extents))


ArgumentType = ValueType | EmptySequence | Absent


def type_of_argument(proto: TypeProto, value: Any, name: str) -> ArgumentType:
    """The type of an input by what it is called with: an array, a list of arrays, or None for an absent value.

    Extents in which the values of a sequence differ are open. ImportFailed for an argument of another kind, and for
    values of different ranks.
    """
    kind = proto.WhichOneof("value")
    if kind == "optional_type":
        inner = Absent() if value is None else type_of_argument(proto.optional_type.elem_type, value, name)
        return inner if isinstance(inner, Absent | EmptySequence) else OptionalType(inner)
    if kind == "sequence_type":
        if not isinstance(value, list | tuple):
            raise ImportFailed(f"input {name!r} is a {type(value).__name__}: expected a list of arrays")
        element = dtype_of(proto.sequence_type.elem_type.tensor_type.elem_type)
        return _type_of_list([item.shape for item in value], name, element) if value else EmptySequence(element)
    if not hasattr(value, "shape"):
        raise ImportFailed(f"input {name!r} is a {type(value).__name__}: expected an array")
    return TensorType(dtype_of(proto.tensor_type.elem_type), tuple(value.shape))


def _type_of_list(shapes: Sequence[Sequence[int]], name: str, element: DType) -> SequenceType:
    if len(set(map(len, shapes))) > 1:
        raise ImportFailed(f"input {name!r} has values of different ranks, which is not supported")
    columns = enumerate(zip(*shapes, strict=True))
    common = [c[0] if len(set(c)) == 1 else symbol(f"{identifier(name)}_{axis}") for axis, c in columns]
    return SequenceType(TensorType(element, tuple(common)))


def shape_needed(name: str) -> ShapeNeeded:
    """The error that the model does not say how many axes an input has."""
    return ShapeNeeded(
        f"the model does not say how many axes input {name!r} has",
        name,
        hint=f"give its shape: from_onnx(model, shapes={{{name!r}: (...)}}), on the command line --shape {name}=1x8",
    )
