"""Tensor maps in scripts: what `tensor_load` and its like are told about a tensor, made where a kernel is launched.

@hidet.script
def first_tile(source: TensorMap, out: f32[8, 32]):
    ...
    tensor_load(~tile[0, 0], source, ~barrier[0], 0, 0)

@hidet.script
def launch(x: f32[m, n], out: f32[8, 32]):
    first_tile(tensor_map(x, box=[8, 32]), out)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ScriptError
from hidet.ir import build
from hidet.ir.expr import Call, Expr
from hidet.ir.tensor_map import MAP_WORDS, MapRequest
from hidet.lang import operators
from hidet.lang.layout import is_row_major
from hidet.lang.types import TensorKind
from hidet.lang.values import Extent, TensorValue, unwrapped

TensorMap = TensorKind(dtypes.u64, (MAP_WORDS,), space="constant")
"""The type of a kernel's parameter that is a tensor map."""

# CUDA driver API, cuTensorMapEncodeTiled.
_MOST_DIMS, _MOST_BOX, _UNIT = 5, 256, 16
_SWIZZLES = (16, 32, 64, 128)


def tensor_map(tensor: Any, box: Sequence[int], swizzle: int = 16) -> Call:
    """In a function of the host, an argument for a parameter of type `TensorMap`: how boxes of a tensor are copied.

    tensor: row-major; its memory begins, and its rows lie, at multiples of 16 bytes. box: elements that one copy
    brings, by dim of the tensor, at most 256 each. swizzle: pieces of 16 bytes of the box change places in shared
    memory within 32, 64 or 128 bytes, which no row may exceed; 16 is as they come. Coordinates of a copy are those of
    the last dim first.

    ScriptError for what the copy engine cannot do.
    """
    value = unwrapped(tensor)
    if not isinstance(value, TensorValue) or not isinstance(value.element, DType):
        raise ScriptError("tensor_map takes a tensor of numbers", hint="tensor_map(x, box=[8, 32]) of x: f32[m, n]")
    if not value.is_dense or (value.layout is not None and not is_row_major(value.layout)):
        raise ScriptError("tensor_map takes a row-major tensor", hint="pass the whole tensor; copies have coordinates")
    shape, nbytes = value.shape, value.element.nbytes
    extents: tuple[Any, ...] = tuple(box)
    if not 1 <= len(shape) <= _MOST_DIMS or len(extents) != len(shape):
        raise ScriptError(
            f"tensor_map got a tensor of {len(shape)} dims and a box of {len(extents)}, expected 1 to {_MOST_DIMS} of "
            "both"
        )
    for extent in extents:
        if not isinstance(extent, int) or not 1 <= extent <= _MOST_BOX:
            raise ScriptError(f"extents of a box are numbers from 1 to {_MOST_BOX}, got {extent!r}")
    if swizzle not in _SWIZZLES:
        raise ScriptError(f"swizzle is {swizzle!r}, expected one of {', '.join(map(str, _SWIZZLES))} bytes")
    row = extents[-1] * nbytes
    if row % _UNIT or (swizzle > _UNIT and row > swizzle):
        limit = f" and at most {swizzle}, the swizzle" if swizzle > _UNIT else ""
        raise ScriptError(f"a row of the box has {row} bytes, expected a multiple of {_UNIT}{limit}")
    strides = [_bytes(shape[axis:], nbytes) for axis in range(len(shape) - 1, 0, -1)]
    pointer = operators.decayed(value.start())
    assert isinstance(pointer, Expr)
    sizes = tuple(operators.index(extent) for extent in reversed(shape))
    return MapRequest(pointer, sizes, tuple(strides), extents[::-1], swizzle).call()


def _bytes(extents: Sequence[Extent], nbytes: int) -> Expr:
    """Bytes between neighbours along the dim before `extents`."""
    known = nbytes * prod(extent for extent in extents if isinstance(extent, int))
    unknown = [extent for extent in extents if isinstance(extent, Expr)]
    if not unknown and known % _UNIT:
        raise ScriptError(f"neighbours along a dim lie {known} bytes apart, expected a multiple of {_UNIT}")
    return prod(unknown, start=build.index(known))
