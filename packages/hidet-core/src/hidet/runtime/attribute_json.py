"""Attributes of operators as JSON and back: what host operators of a saved program are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet.dims import Dim, DimExpr
from hidet.dtypes import DType, dtype
from hidet.errors import ArtifactError
from hidet.graph.attrs import Attrs
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType, ValueType

Json = Any


def encode_attrs(attrs: Mapping[str, Any], encode_dim: Callable[[Dim], Json]) -> Json:
    """JSON of attributes. encode_dim: how a size is written. ArtifactError for a value that only this process knows."""

    def encode(value: Any) -> Json:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple):
            return [encode(item) for item in value]
        if isinstance(value, DimExpr):
            return {"dim": encode_dim(value)}
        if isinstance(value, DType):
            return {"dtype": value.name}
        if isinstance(value, TensorType):
            return {"tensor": encode((value.dtype, value.shape, value.strides, value.device, value.alignment))}
        if isinstance(value, DimType):
            return {"size": encode(value.dim)}
        if isinstance(value, SequenceType | OptionalType):
            return {"sequence" if isinstance(value, SequenceType) else "optional": encode(value.element)}
        raise ArtifactError(f"an attribute of type {type(value).__name__} cannot be saved: {value!r}")

    return {name: encode(value) for name, value in attrs.items()}


def decode_attrs(data: Json, decode_dim: Callable[[Json], Dim]) -> Attrs:
    """The attributes of `encode_attrs`'s JSON; KeyError, TypeError or ValueError for anything else."""

    def decode_type(item: Json) -> ValueType:
        made = decode(item)
        if not isinstance(made, TensorType | DimType | SequenceType | OptionalType):
            raise ValueError(f"{item!r} is no type")
        return made

    def decode(value: Json) -> Any:
        if isinstance(value, list):
            return tuple(decode(item) for item in value)
        if not isinstance(value, dict):
            return value
        ((kind, item),) = value.items()
        return readers[kind](item)

    readers: dict[str, Callable[[Json], Any]] = {
        "dim": decode_dim,
        "dtype": dtype,
        "tensor": lambda item: TensorType(*map(decode, item)),
        "size": lambda item: DimType(decode(item)),
        "sequence": lambda item: SequenceType(decode_type(item)),
        "optional": lambda item: OptionalType(decode_type(item)),
    }
    return Attrs({name: decode(value) for name, value in data.items()})
