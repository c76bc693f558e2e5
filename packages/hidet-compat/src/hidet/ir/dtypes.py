"""Types of numbers by their names, `hidet.ir.dtypes.float16`, and what they have in common."""

from __future__ import annotations

from typing import Any

from hidet import dtypes
from hidet.lang.types import ValueKind, VoidKind, dtype_of, kind_named, vectorize

default_int_dtype = kind_named("int32")
default_float_dtype = kind_named("float32")
default_index_dtype = kind_named("int64")


def dtype_from_numpy(dtype: Any) -> ValueKind:
    """The type of arrays of numpy."""
    return ValueKind(dtypes.from_numpy(dtype))


def promote_type(a: Any, b: Any) -> ValueKind:
    """The type in which values of two types meet, as torch has it."""
    return ValueKind(dtypes.promote(dtype_of(a), dtype_of(b)))


def __getattr__(name: str) -> ValueKind | VoidKind:
    kind = kind_named(name)
    if kind is None:
        raise AttributeError(f"module 'hidet.ir.dtypes' has no attribute {name!r}")
    return kind


__all__ = [
    "default_float_dtype",
    "default_index_dtype",
    "default_int_dtype",
    "dtype_from_numpy",
    "promote_type",
    "vectorize",
]
