"""Types by their names in hidet 0.6: what they are called with makes types of scripts, and `isinstance` tells kinds.

isinstance(tensor.dtype, DataType), isinstance(task.inputs[0].type, TensorType), data_type("float16")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hidet.dtypes import DType
from hidet.ir import types
from hidet.lang.types import TensorKind, ValueKind, VoidKind, dtype_of, value_type, vectorize, void
from hidet.lang.types import tensor_type as make_tensor_type


class Kind(type):
    """Classes that stand for several: an object is an instance where `holds` says so."""

    holds: Callable[[Any], bool]

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.holds(instance)


class BaseType(metaclass=Kind):
    """Any type."""

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        known = (DType, types.VectorType, types.PointerType, types.BufferType, ValueKind, TensorKind, VoidKind)
        return isinstance(instance, (*known, FuncType))


class DataType(BaseType):
    """The types of numbers: `hidet.float32`, that of a tensor, those of vectors."""

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        kind = getattr(instance, "type", instance) if isinstance(instance, ValueKind) else instance
        return isinstance(kind, DType | types.VectorType)


class TensorType(BaseType):
    """The types of tensors in scripts: `TensorType("float32", [3, 4])` is `float32[3, 4]`."""

    def __new__(cls, dtype: Any, shape: Sequence[Any] | None = None, layout: Any = None) -> TensorKind:  # type: ignore[misc]  # the type itself
        return make_tensor_type(dtype, shape, layout)

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(instance, TensorKind | types.BufferType)


class PointerType(BaseType):
    """The types of pointers: `PointerType("float32")` is `~float32`."""

    def __new__(cls, base_type: Any) -> ValueKind | TensorKind:  # type: ignore[misc]  # the type itself
        return ~ValueKind(value_type(base_type))

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(getattr(instance, "type", instance), types.PointerType)


class TensorPointerType(TensorType):
    """`TensorType`: a parameter of a script is a pointer to what it is declared as."""


class VoidType(BaseType):
    """The type of what gives nothing."""

    def __new__(cls) -> VoidKind:  # type: ignore[misc]  # the type itself
        return void

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is that."""
        return isinstance(instance, VoidKind)


class ReferenceType(BaseType):
    """No type any more: what a script assigns to is the variable itself."""

    @staticmethod
    def holds(instance: object) -> bool:
        """No object is one."""
        return False


@dataclass(frozen=True, slots=True)
class FuncType:
    """The types of parameters and of the result of a function."""

    param_types: tuple[Any, ...]
    ret_type: Any = void


def data_type(dtype: Any) -> ValueKind:
    """The type of a name ("float16", "f16", "f16x2"), or a type itself. DTypeError for unknown ones."""
    if isinstance(dtype, str):
        base, _, lanes = dtype.rpartition("x")
        return vectorize(base, int(lanes)) if base and lanes.isdigit() else ValueKind(dtype_of(dtype))
    return ValueKind(value_type(dtype))


def tensor_type(dtype: Any, shape: Sequence[Any] | None = None, layout: Any = None) -> TensorKind:
    """The type of a tensor, `float32[3, 4]`."""
    return make_tensor_type(dtype, shape, layout)


tensor_pointer_type = tensor_type


def pointer_type(base_type: Any) -> Any:
    """The type of a pointer, `~float32`."""
    return PointerType(base_type)


__all__ = [
    "BaseType",
    "DataType",
    "FuncType",
    "PointerType",
    "ReferenceType",
    "TensorPointerType",
    "TensorType",
    "VoidType",
    "data_type",
    "pointer_type",
    "tensor_pointer_type",
    "tensor_type",
]
