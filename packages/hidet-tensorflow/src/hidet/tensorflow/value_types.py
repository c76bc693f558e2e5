"""Element types and shapes of TensorFlow in terms of core's: `DataType` and `TensorShapeProto`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet import dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed, ShapeNeeded
from hidet.frontend import SizeNames
from hidet.graph import TensorType

# Numbers of tensorflow.DataType.
_DTYPES: dict[int, DType] = {
    1: dtypes.f32,
    2: dtypes.f64,
    3: dtypes.i32,
    4: dtypes.u8,
    5: dtypes.i16,
    6: dtypes.i8,
    7: dtypes.string,
    8: dtypes.c64,
    9: dtypes.i64,
    10: dtypes.boolean,
    14: dtypes.bf16,
    17: dtypes.u16,
    18: dtypes.c128,
    19: dtypes.f16,
    22: dtypes.u32,
    23: dtypes.u64,
    24: dtypes.dtype("float8_e5m2"),
    25: dtypes.dtype("float8_e4m3fn"),
    29: dtypes.dtype("int4"),
    30: dtypes.dtype("uint4"),
}

_NUMBERS = {entry: number for number, entry in _DTYPES.items()}

RESOURCE, VARIANT = 20, 21
"""Numbers of the types that stand for a variable or table, and for a list of tensors."""

Shape = tuple[int | None, ...]
"""Extents as TensorFlow knows them: None for an open one."""


def dtype_of(number: int) -> DType:
    """The element type of a `DataType`. ImportFailed for one that is no type of elements, and for quantised ones."""
    found = _DTYPES.get(number)
    if found is None:
        raise ImportFailed(f"element type number {number} of TensorFlow has none in hidet")
    return found


def number_of(dtype: DType) -> int:
    """The `DataType` of an element type. ImportFailed for a type that TensorFlow lacks."""
    found = _NUMBERS.get(dtype)
    if found is None:
        raise ImportFailed(f"TensorFlow has no element type {dtype.name}")
    return found


def shape_of(proto: Any) -> Shape | None:
    """The extents of a TensorShapeProto; None where the number of axes is unknown."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


def input_type(
    name: str, dtype: DType, shape: Shape | None, sizes: SizeNames, batch: str | None, given: Sequence[Dim] | None
) -> TensorType:
    """The type of a model's input.

    batch: the name of the size that an open first axis is; None for one of its own. given: extents in place of those
    that the model says; None keeps these. ShapeNeeded where neither says how many axes there are.
    """
    if given is not None:
        return TensorType(dtype, tuple(given))
    if shape is None:
        raise ShapeNeeded(
            f"the model does not say how many axes input {name!r} has",
            name,
            hint=f"give its shape: shapes={{{name!r}: (...)}}, on the command line --shape {name}=1x8",
        )
    extents: list[Dim] = []
    for axis, extent in enumerate(shape):
        if extent is not None:
            extents.append(extent)
        elif axis == 0 and batch is not None:
            extents.append(sizes.named(batch))
        else:
            extents.append(sizes.fresh(f"{name}_{axis}"))
    return TensorType(dtype, tuple(extents))
